"""Accounts at platforms, and how a request shows whose it is."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict, SecretStr

from domain.orders.capability import Access, Signing


@dataclass(frozen=True, slots=True)
class Account:
    """One account of ours: the number of its platform, the shop, and the root of its addresses."""

    platform: str
    shop: str
    base_url: str


class Credentials(BaseModel):
    """What an account is opened with; a kind of platform uses what it needs of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    """With it, and with key and secret as client id and client secret, a token is fetched where the record says."""


Keyring = Callable[[bool], Awaitable[Credentials]]
"""Reads an account's credentials where their reference leads; True asks for newer ones than it gave before."""


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as it goes out."""

    parameters: Mapping[str, str]
    headers: Mapping[str, str]


def sign(access: Access, credentials: Credentials, parameters: Mapping[str, str], now: datetime) -> Signed:
    """Add what the platform knows us by; `now` is its own time, which some compare with theirs."""
    match access.signing:
        case Signing.NONE:
            return Signed(parameters, {})
        case Signing.HEADER:
            return Signed(parameters, {access.header: access.prefix + credentials.token.get_secret_value()})
        case Signing.BASIC:
            pair = f"{credentials.key}:{credentials.secret.get_secret_value()}"
            return Signed(parameters, {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"})
        case Signing.SORTED_MD5:
            return Signed(_sorted_md5(access, credentials, parameters, now), {})


def _sorted_md5(
    access: Access, credentials: Credentials, parameters: Mapping[str, str], now: datetime
) -> Mapping[str, str]:
    whole = {
        **parameters,
        access.key_parameter: credentials.key,
        access.token_parameter: credentials.token.get_secret_value(),
        access.time_parameter: access.moments.write(now),
    }
    secret = credentials.secret.get_secret_value()
    text = secret + "".join(f"{name}{whole[name]}" for name in sorted(whole)) + secret
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()
    return {**whole, access.sign_parameter: digest}

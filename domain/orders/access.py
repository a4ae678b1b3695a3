"""Access to an account at a platform: its credentials, how they are declared, and how a request is signed with them."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from domain.orders.declarations import Parameters, PlatformDeclarationBase, Seconds, Text, TimeFormat


class ClientAuthentication(StrEnum):
    """How the client authenticates at the token endpoint."""

    BODY = "body"
    """Client id and secret are fields of the form."""
    BASIC = "basic"
    """Client id and secret are user and password of basic authentication."""


class TokenRenewal(PlatformDeclarationBase):
    """The endpoint where access tokens are fetched with a refresh token: OAuth 2.0, as in Login with Amazon."""

    url: Text = Field(
        pattern=r"^(https?://[^/?#\s]+)?/[^?#\s]*$", description="of the token end point; a path begins at `base_url`"
    )
    parameters: Parameters = Field(default={}, description="further fields of the form, such as a scope")
    client: ClientAuthentication = Field(
        default=ClientAuthentication.BODY,
        description="where client id and secret stand: in the `body`, or as `basic` authentication",
    )
    lifetime_seconds: Seconds = Field(default=3_600, description="how long a token is good, where nobody says")


class AuthenticationMethod(StrEnum):
    """How a request is authenticated."""

    NONE = "none"
    HEADER = "header"
    """The token is sent in a header."""
    BASIC = "basic"
    """Key and secret are user and password of basic authentication."""
    SORTED_MD5 = "sorted_md5"
    """The MD5 of all parameters, sorted, between the secret: Taobao, Pinduoduo."""


HEADER_NAME_OR_NONE: Final = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]*$"


class PlatformAccess(PlatformDeclarationBase):
    """Which parts of an account's credentials a request carries, and where."""

    signing: AuthenticationMethod = Field(
        default=AuthenticationMethod.NONE,
        description="how a request shows whose it is: the token in a `header`, key and secret as `basic` "
        "authentication, or all parameters between the secret as one MD5 (`sorted_md5`)",
    )
    header: Text = Field(default="", pattern=HEADER_NAME_OR_NONE, description="name of the header with the token")
    prefix: Text = Field(default="", description="stands before the token")
    key_parameter: Text = Field(default="", description="of `sorted_md5`: name of the parameter with the key")
    token_parameter: Text = Field(default="", description="of `sorted_md5`: name of the parameter with the token")
    time_parameter: Text = Field(default="", description="of `sorted_md5`: name of the parameter with the time")
    time_format: TimeFormat = Field(default=TimeFormat(), description="how that time is written")
    sign_parameter: Text = Field(default="", description="of `sorted_md5`: name of the parameter with the MD5")
    renewal: TokenRenewal | None = Field(
        default=None, description="where the token is fetched, if the credentials hold a `refresh_token`"
    )

    @model_validator(mode="after")
    def _require_names_that_signing_needs(self) -> Self:
        match self.signing:
            case AuthenticationMethod.HEADER if not self.header:
                raise ValueError("signing by `header` needs the name of the header")
            case AuthenticationMethod.SORTED_MD5 if not (self.key_parameter and self.sign_parameter):
                raise ValueError("signing by `sorted_md5` needs the names `key_parameter` and `sign_parameter`")
        return self


@dataclass(frozen=True, slots=True)
class Account:
    """One account: the name of its platform, the shop, and the base URL of the platform's API."""

    platform: str
    shop: str
    base_url: str


class Credentials(BaseModel):
    """Credentials of an account; each kind of platform uses some of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str = ""
    secret: SecretStr = SecretStr("")
    token: SecretStr = SecretStr("")
    refresh_token: SecretStr = SecretStr("")
    """With key and secret as client id and client secret, it fetches access tokens by `access.renewal`."""


CredentialsReader = Callable[[bool], Awaitable[Credentials]]
"""Reads an account's credentials from where they are kept; True demands newer ones than before."""


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """The parameters and headers of a request, authentication included."""

    parameters: Mapping[str, str]
    headers: Mapping[str, str]


def add_authentication(
    access: PlatformAccess, credentials: Credentials, parameters: Mapping[str, str], now: datetime
) -> AuthenticatedRequest:
    """Return a request with the account's authentication; `now` is the platform's time, which some check."""
    match access.signing:
        case AuthenticationMethod.NONE:
            return AuthenticatedRequest(parameters, {})
        case AuthenticationMethod.HEADER:
            return AuthenticatedRequest(
                parameters, {access.header: access.prefix + credentials.token.get_secret_value()}
            )
        case AuthenticationMethod.BASIC:
            pair = f"{credentials.key}:{credentials.secret.get_secret_value()}"
            return AuthenticatedRequest(parameters, {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"})
        case AuthenticationMethod.SORTED_MD5:
            return AuthenticatedRequest(_add_sorted_md5_signature(access, credentials, parameters, now), {})


def _add_sorted_md5_signature(
    access: PlatformAccess, credentials: Credentials, parameters: Mapping[str, str], now: datetime
) -> Mapping[str, str]:
    signed = {
        access.key_parameter: credentials.key,
        access.token_parameter: credentials.token.get_secret_value(),
        access.time_parameter: access.time_format.format_time(now),
    }
    whole = {**parameters, **{name: value for name, value in signed.items() if name}}
    secret = credentials.secret.get_secret_value()
    text = secret + "".join(f"{name}{whole[name]}" for name in sorted(whole)) + secret
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()
    return {**whole, access.sign_parameter: digest}

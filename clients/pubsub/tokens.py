"""Who we are to Google: a token that a service account's key signs, or one of the machine's own account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import jwt
import msgspec

from infra.pubsub_settings import METADATA

AUDIENCE: Final = "https://pubsub.googleapis.com/"
METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
LIFETIME_SECONDS: Final = 3_600
"""As long as Google takes a token that its owner signed."""
RENEWAL_SECONDS: Final = 300
"""So long before its end a token is replaced."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    ends_at: float


class Tokens:
    """The token of the moment, for the header of each request.

    Args:
        source: A path to a service account's key, `metadata`, or nothing where nobody asks who we are.
    """

    def __init__(self, session: aiohttp.ClientSession, source: str) -> None:
        self._session = session
        self._source = source
        self._token = _Token("", 0.0)
        self._turn = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        """What a request shows.

        Raises:
            ConnectionError: There is no token to be had.
        """
        if not self._source:
            return {}
        async with self._turn:
            if time.time() > self._token.ends_at - RENEWAL_SECONDS:
                self._token = await self._renewed()
        return {"Authorization": f"Bearer {self._token.text}"}

    async def _renewed(self) -> _Token:
        if self._source == METADATA:
            return await self._from_metadata()
        return await asyncio.to_thread(_signed, Path(self._source))

    async def _from_metadata(self) -> _Token:
        try:
            async with self._session.get(METADATA_URL, headers={"Metadata-Flavor": "Google"}) as answer:
                answer.raise_for_status()
                told = msgspec.json.decode(await answer.read(), type=dict[str, Any])
                return _Token(str(told["access_token"]), time.time() + float(told["expires_in"]))
        except (aiohttp.ClientError, KeyError, ValueError, TimeoutError) as error:
            raise ConnectionError(
                f"Google's metadata server gave no token ({type(error).__name__}). "
                "Outside Google Cloud, name a key file in HAULAGE_ADDRESSES__PUBSUB__KEY_FILE."
            ) from error


def _signed(path: Path) -> _Token:
    """Google takes what the account itself signed for one service: no exchange, and nothing to reach."""
    now = int(time.time())
    try:
        key = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        owner = key["client_email"]
        claims = {"iss": owner, "sub": owner, "aud": AUDIENCE, "iat": now, "exp": now + LIFETIME_SECONDS}
        text = jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
    except (OSError, KeyError, ValueError, TypeError, jwt.PyJWTError) as error:
        raise ConnectionError(
            f"The key of the service account cannot be used ({type(error).__name__}). HAULAGE_ADDRESSES__PUBSUB__"
            "KEY_FILE must name the JSON file that Google made, with client_email, private_key and private_key_id."
        ) from error
    return _Token(text, now + LIFETIME_SECONDS)

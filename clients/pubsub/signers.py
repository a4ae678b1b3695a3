"""Who pushes: the signed tokens of Pub/Sub, held against the keys that Google publishes."""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import Any, Final

import jwt
import msgspec
from jwt.types import Options

from clients.http import GuardedClient
from domain.faults import Fault
from infra.pubsub_settings import PushSettings

KEYS_MAX_BYTES: Final = 256 * 1024
KEYS_TIMEOUT_SECONDS: Final = 5.0
KEYS_KEPT_SECONDS: Final = 3_600.0
KEYS_PAUSE_SECONDS: Final = 10.0
"""Between two looks for a key that is not among those known: strangers can name any."""
LEEWAY_SECONDS: Final = 60
TOKENS_MAX: Final = 1_000
"""Tokens that are remembered: Pub/Sub shows one again and again, and to check its signature costs as much as a push."""

_OPTIONS: Final[Options] = {"require": ["exp", "iat", "aud", "iss"]}


class NotPubSub(Exception):
    """The token is none of those that were agreed on; the message says what is wrong with it."""


class Signers:
    """Knows pushes by their tokens: signed by Google for our audience and our account, or our own secret."""

    def __init__(self, http: GuardedClient, settings: PushSettings) -> None:
        self._http = http
        self._settings = settings
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked_at = float("-inf")
        self._let_in: dict[str, float] = {}
        self._turn = asyncio.Lock()

    async def check(self, token: str) -> None:
        """Let a push in.

        Raises:
            NotPubSub: It shows the wrong token.
            ConnectionError: The public keys cannot be had, so that nobody can tell.
        """
        secret = self._settings.secret.get_secret_value()
        if secret and hmac.compare_digest(token.encode(), secret.encode()):
            return
        if not (self._settings.audience and self._settings.email):
            raise NotPubSub("it is not the secret of this installation")
        if time.time() < self._let_in.get(token, 0.0):
            return
        try:
            header = jwt.get_unverified_header(token)
            claims = await self._claims(token, str(header.get("kid", "")))
        except jwt.PyJWTError as error:
            raise NotPubSub(str(error)) from None
        # Anybody's account may have a token made out for our audience.
        if claims.get("email") != self._settings.email or claims.get("email_verified") is not True:
            raise NotPubSub("another account than the one agreed on signed it")
        self._remember(token, claims["exp"])

    def _remember(self, token: str, expires: float) -> None:
        """No longer than the keys themselves are."""
        if len(self._let_in) >= TOKENS_MAX:
            self._let_in.clear()
        self._let_in[token] = min(expires, time.time() + KEYS_KEPT_SECONDS)

    async def _claims(self, token: str, key_id: str) -> dict[str, Any]:
        key = await self._key(key_id)
        if key is None:
            raise NotPubSub("nobody knows the key that signed it")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=["RS256"],
            audience=self._settings.audience,
            issuer=self._settings.issuers,
            leeway=LEEWAY_SECONDS,
            options=_OPTIONS,
        )
        return claims

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        async with self._turn:
            age = time.monotonic() - self._asked_at
            if age > KEYS_KEPT_SECONDS or (key_id not in self._keys and age > KEYS_PAUSE_SECONDS):
                self._keys = await self._published()
                self._asked_at = time.monotonic()
            return self._keys.get(key_id)

    async def _published(self) -> dict[str, jwt.PyJWK]:
        url = self._settings.keys_url
        try:
            answer = await self._http.get(url, max_bytes=KEYS_MAX_BYTES, timeout_seconds=KEYS_TIMEOUT_SECONDS)
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            found = jwt.PyJWKSet.from_dict(msgspec.json.decode(answer.body, type=dict[str, Any]))
        except (Fault, ValueError, jwt.PyJWTError) as error:
            raise ConnectionError(f"The keys at {url} cannot be read ({type(error).__name__}).") from error
        return {key.key_id: key for key in found.keys if key.key_id}

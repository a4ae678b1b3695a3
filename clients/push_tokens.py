"""Verify the tokens of Pub/Sub's pushes: signed by Google, or a configured secret."""

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
from infra import log
from infra.address_settings import PubSubPushSettings

KEYS_MAX_BYTES: Final = 256 * 1024
KEYS_TIMEOUT_SECONDS: Final = 5.0
KEYS_CACHE_SECONDS: Final = 3_600.0
KEYS_RELOAD_SECONDS: Final = 10.0
"""The shortest interval between two attempts to load the keys: any stranger can name an unknown one."""
KEYS_TRUST_SECONDS: Final = 86_400.0
"""How long a known key is good while the keys cannot be loaded again."""
LEEWAY_SECONDS: Final = 60
CACHED_TOKENS_MAX: Final = 1_000
"""Verified tokens in the cache: Pub/Sub repeats a token, and verifying its signature costs as much as a push."""

_log = log.get(__name__)
_OPTIONS: Final[Options] = {"require": ["exp", "iat", "aud", "iss"]}


class InvalidPushToken(Exception):
    """The token is not valid for pushes; the message says why."""


class PushTokenVerifier:
    """Verifies the tokens of pushes: signed by Google for our audience and account, or the configured secret."""

    def __init__(self, http: GuardedClient, settings: PubSubPushSettings) -> None:
        self._http = http
        self._settings = settings
        self._keys: dict[str, jwt.PyJWK] = {}
        self._loaded_at = self._tried_at = float("-inf")
        self._failure: ConnectionError | None = None
        self._accepted: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def require_valid_token(self, token: str) -> None:
        """Return if the token is valid.

        Raises:
            InvalidPushToken: It is not.
            ConnectionError: Google's public keys cannot be loaded, so that it is unknown.
        """
        secret = self._settings.secret.get_secret_value()
        if secret and hmac.compare_digest(token.encode(), secret.encode()):
            return
        if not (self._settings.audience and self._settings.email):
            raise InvalidPushToken("it is not the secret of this installation")
        if time.time() < self._accepted.get(token, 0.0):
            return
        try:
            header = jwt.get_unverified_header(token)
            claims = await self._decode_claims(token, str(header.get("kid", "")))
        except jwt.PyJWTError as error:
            raise InvalidPushToken(str(error)) from None
        # Any Google account may have a token issued for our audience.
        if claims.get("email") != self._settings.email or claims.get("email_verified") is not True:
            raise InvalidPushToken("another account than the configured one signed it")
        self._cache_accepted_token(token, claims["exp"])

    def _cache_accepted_token(self, token: str, expires: float) -> None:
        """Cache a verified token, no longer than the keys themselves."""
        if len(self._accepted) >= CACHED_TOKENS_MAX:
            self._accepted.clear()
        self._accepted[token] = min(expires, time.time() + KEYS_CACHE_SECONDS)

    async def _decode_claims(self, token: str, key_id: str) -> dict[str, Any]:
        key = await self._find_key_or_reload_keys(key_id)
        if key is None:
            raise InvalidPushToken("the key that signed it is not among Google's keys")
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

    async def _find_key_or_reload_keys(self, key_id: str) -> jwt.PyJWK | None:
        """Return a key, None if there is none of this id; a known one also while Google's keys cannot be loaded.

        Raises:
            ConnectionError: It is unknown, because the keys cannot be loaded.
        """
        if self._is_reload_due(key_id):
            async with self._lock:
                # One that waited for the lock finds the result of the attempt before.
                if self._is_reload_due(key_id):
                    await self._reload_keys()
        is_trusted = time.monotonic() - self._loaded_at <= KEYS_TRUST_SECONDS
        if self._failure is not None and not (is_trusted and key_id in self._keys):
            # A new one: each raise adds to the traceback of an exception.
            raise ConnectionError(str(self._failure)) from self._failure
        return self._keys.get(key_id)

    def _is_reload_due(self, key_id: str) -> bool:
        now = time.monotonic()
        is_needed = key_id not in self._keys or now - self._loaded_at > KEYS_CACHE_SECONDS
        return is_needed and now - self._tried_at > KEYS_RELOAD_SECONDS

    async def _reload_keys(self) -> None:
        try:
            self._keys, self._failure = await self._load_keys(), None
            self._loaded_at = time.monotonic()
        except ConnectionError as error:
            self._failure = error
            _log.warning("push_keys_load_failed", error=str(error))
        finally:
            self._tried_at = time.monotonic()

    async def _load_keys(self) -> dict[str, jwt.PyJWK]:
        url = self._settings.keys_url
        try:
            answer = await self._http.get(url, max_bytes=KEYS_MAX_BYTES, timeout_seconds=KEYS_TIMEOUT_SECONDS)
            if answer.status != 200:
                raise ValueError(f"status {answer.status}")
            found = jwt.PyJWKSet.from_dict(msgspec.json.decode(answer.body, type=dict[str, Any]))
        except (Fault, ValueError, jwt.PyJWTError) as error:
            raise ConnectionError(f"The keys at {url} cannot be read ({type(error).__name__}).") from error
        return {key.key_id: key for key in found.keys if key.key_id}

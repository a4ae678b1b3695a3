"""Authentication with Google: credentials of our requests, and verification of the tokens of its pushes."""

from __future__ import annotations

import asyncio
import hmac
import time
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from jwt.types import Options

from clients.http import GuardedClient, HttpTransport, RenewingToken, ServiceFailure, TransportError
from domain.faults import Fault
from infra.address_settings import METADATA, PushSettings

AUDIENCE: Final = "https://pubsub.googleapis.com/"
METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
METADATA_TIMEOUT_SECONDS: Final = 10.0
TOKEN_MAX_BYTES: Final = 64 * 1024
LIFETIME_SECONDS: Final = 3_600
"""The longest life that Google accepts of a token that its owner signed."""
RENEWAL_SECONDS: Final = 300.0
"""How long before it expires a token is replaced."""

KEYS_MAX_BYTES: Final = 256 * 1024
KEYS_TIMEOUT_SECONDS: Final = 5.0
KEYS_CACHE_SECONDS: Final = 3_600.0
KEYS_RELOAD_SECONDS: Final = 10.0
"""The shortest interval between two reloads for an unknown key: any stranger can name one."""
LEEWAY_SECONDS: Final = 60
CACHED_TOKENS_MAX: Final = 1_000
"""Verified tokens in the cache: Pub/Sub repeats a token, and verifying its signature costs as much as a push."""

_OPTIONS: Final[Options] = {"require": ["exp", "iat", "aud", "iss"]}


class PubSubFailure(ServiceFailure, ConnectionError):
    """Pub/Sub did not do what was asked. The call may be repeated: Pub/Sub delivers again what was not acknowledged."""


class PubSubCredentials:
    """The authorization of requests to Pub/Sub.

    Args:
        transport: Reaches the metadata server.
        source: The path of a service account's key, `metadata`, or nothing for an emulator.
    """

    def __init__(self, transport: HttpTransport, source: str) -> None:
        self._transport = transport
        self._source = source
        self._token = RenewingToken(early_seconds=RENEWAL_SECONDS, early_share=1.0)

    async def get_token(self, refused: str | None = None) -> str | None:
        """Return the token of a request; None if requests have none.

        Args:
            refused: A token that Pub/Sub has refused.

        Raises:
            PubSubFailure: There is no token.
        """
        return await self._token.get(refused, self._fetch) if self._source else None

    async def _fetch(self) -> tuple[str, float]:
        if self._source == METADATA:
            return await self._fetch_from_metadata()
        return await asyncio.to_thread(_sign, Path(self._source))

    async def _fetch_from_metadata(self) -> tuple[str, float]:
        try:
            response = await self._transport.request(
                "GET",
                METADATA_URL,
                headers={"Metadata-Flavor": "Google"},
                max_bytes=TOKEN_MAX_BYTES,
                timeout_seconds=METADATA_TIMEOUT_SECONDS,
            )
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            values = msgspec.json.decode(response.body, type=dict[str, Any])
            return str(values["access_token"]), float(values["expires_in"])
        except (TransportError, KeyError, ValueError) as error:
            raise PubSubFailure(
                f"Google's metadata server gave no token ({type(error).__name__}). "
                "Outside Google Cloud, name a key file in HAULAGE_ADDRESSES__PUBSUB__KEY_FILE.",
                is_transient=isinstance(error, TransportError),
            ) from error


def _sign(path: Path) -> tuple[str, float]:
    """Return a token that the service account signs itself: Google accepts it for one service without an exchange."""
    now = int(time.time())
    try:
        key = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        owner = key["client_email"]
        claims = {"iss": owner, "sub": owner, "aud": AUDIENCE, "iat": now, "exp": now + LIFETIME_SECONDS}
        text = jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
    except (OSError, KeyError, ValueError, TypeError, jwt.PyJWTError) as error:
        raise PubSubFailure(
            f"The key of the service account cannot be used ({type(error).__name__}). HAULAGE_ADDRESSES__PUBSUB__"
            "KEY_FILE must name the JSON file that Google made, with client_email, private_key and private_key_id."
        ) from error
    return text, LIFETIME_SECONDS


class InvalidPushToken(Exception):
    """The token is not valid for pushes; the message says why."""


class PushTokenVerifier:
    """Verifies the tokens of pushes: signed by Google for our audience and account, or the configured secret."""

    def __init__(self, http: GuardedClient, settings: PushSettings) -> None:
        self._http = http
        self._settings = settings
        self._keys: dict[str, jwt.PyJWK] = {}
        self._loaded_at = float("-inf")
        self._accepted: dict[str, float] = {}
        self._lock = asyncio.Lock()

    async def verify(self, token: str) -> None:
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
        self._remember(token, claims["exp"])

    def _remember(self, token: str, expires: float) -> None:
        """Cache a verified token, no longer than the keys themselves."""
        if len(self._accepted) >= CACHED_TOKENS_MAX:
            self._accepted.clear()
        self._accepted[token] = min(expires, time.time() + KEYS_CACHE_SECONDS)

    async def _decode_claims(self, token: str, key_id: str) -> dict[str, Any]:
        key = await self._find_key(key_id)
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

    async def _find_key(self, key_id: str) -> jwt.PyJWK | None:
        async with self._lock:
            age = time.monotonic() - self._loaded_at
            if age > KEYS_CACHE_SECONDS or (key_id not in self._keys and age > KEYS_RELOAD_SECONDS):
                self._keys = await self._load_keys()
                self._loaded_at = time.monotonic()
            return self._keys.get(key_id)

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

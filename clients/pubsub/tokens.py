"""Authorization with Google: a token that a service account's key signs, or one of the machine's own account."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec

from clients.http import HttpTransport, RenewingToken, ServiceFailure, TransportError
from infra.address_settings import METADATA

AUDIENCE: Final = "https://pubsub.googleapis.com/"
METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
METADATA_TIMEOUT_SECONDS: Final = 10.0
TOKEN_MAX_BYTES: Final = 64 * 1024
LIFETIME_SECONDS: Final = 3_600
"""The longest life that Google accepts of a token that its owner signed."""
RENEWAL_SECONDS: Final = 300.0
"""How long before it expires a token is replaced."""


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

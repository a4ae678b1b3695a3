"""Access tokens: fetched with an account's refresh token, kept until shortly before they expire, shared by slices."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec

from clients.http import Answer, GuardedClient
from clients.platforms.answers import BUSY_STATUSES, retry_after_seconds
from clients.platforms.failures import PlatformBusy, PlatformFailure, TokenExpired
from domain.faults import SourceFault
from domain.orders.access import ClientAuthentication, Credentials, TokenRenewal
from infra import log

ANSWER_MAX_BYTES: Final = 64 * 1024
ANSWER_TIMEOUT_SECONDS: Final = 15.0
RETRY_PAUSES_SECONDS: Final = (0.1, 0.5)
EARLY_SECONDS: Final = 60.0
EARLY_SHARE: Final = 0.1
"""A token is fetched anew so long before its end, but no longer than this share of its life."""
KEPT_MAX: Final = 4
_PASSING_ERRORS: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_SHOWN_CHARACTERS: Final = 300


Fetch = Callable[[], Awaitable[tuple[str, float]]]
"""Fetches a token, and says how many seconds it lives."""


class AccessToken:
    """One that all of this process share: one of them fetches it, the others wait for that, and for how it ends."""

    def __init__(self) -> None:
        self._token: str | None = None
        self._stale_at = 0.0
        """By the clock of the event loop."""
        self._fetching: asyncio.Task[str] | None = None

    async def get(self, refused: str | None, fetch: Fetch) -> str:
        """A token that is good, as far as we know.

        Args:
            refused: One that is not, whatever was said of its life.
            fetch: Gets another, where there is none or it is refused or almost over.
        """
        is_good = asyncio.get_running_loop().time() < self._stale_at
        if self._token is not None and is_good and self._token != refused:
            return self._token
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch(fetch))
            # Where all who wait for it are cancelled, nobody else looks how it ended.
            self._fetching.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._fetching)

    async def _fetch(self, fetch: Fetch) -> str:
        try:
            self._token, lifetime_seconds = await fetch()
            early = min(EARLY_SECONDS, lifetime_seconds * EARLY_SHARE)
            self._stale_at = asyncio.get_running_loop().time() + lifetime_seconds - early
            return self._token
        finally:
            self._fetching = None


class AccessTokens:
    """The access tokens of one account, by what they are fetched with: that may be replaced while slices are read."""

    def __init__(self) -> None:
        self._tokens: dict[Credentials, AccessToken] = {}

    def of(self, credentials: Credentials) -> AccessToken:
        """The one for these credentials."""
        if credentials not in self._tokens:
            self._tokens[credentials] = AccessToken()
            if len(self._tokens) > KEPT_MAX:
                del self._tokens[next(iter(self._tokens))]
        return self._tokens[credentials]


class TokenEndPoint:
    """Where access tokens are fetched. What it is sent and what it answers is secret, and never told.

    Args:
        who: Names the account in sentences.
    """

    def __init__(self, http: GuardedClient, renewal: TokenRenewal, base_url: str, who: str) -> None:
        self._http = http
        self._renewal = renewal
        self._url = base_url.rstrip("/") + renewal.url if renewal.url.startswith("/") else renewal.url
        self._who = who

    async def fetch(self, credentials: Credentials) -> tuple[str, float]:
        """An access token and its life in seconds; raises TokenExpired or PlatformBusy."""
        for pause_seconds in RETRY_PAUSES_SECONDS:
            try:
                return await self._fetch_once(credentials)
            except PlatformBusy as busy:
                if busy.retry_after_seconds is not None:
                    raise
                await asyncio.sleep(pause_seconds)
        return await self._fetch_once(credentials)

    async def _fetch_once(self, credentials: Credentials) -> tuple[str, float]:
        try:
            answer = await self._http.post_for_answer(
                self._url,
                body=urlencode(self._form(credentials)).encode(),
                headers={
                    "Accept": "application/json",
                    "Content-Type": "application/x-www-form-urlencoded",
                    **self._authorization(credentials),
                },
                max_bytes=ANSWER_MAX_BYTES,
                timeout_seconds=ANSWER_TIMEOUT_SECONDS,
            )
        except SourceFault as fault:
            told = f"{self._who}: its token end point cannot be asked. {fault.record.message}"
            if fault.transient:
                raise PlatformBusy(told, "Ask again later.", retry_after_seconds=fault.retry_after_seconds) from None
            raise TokenExpired(told, fault.record.hint) from None
        values = _object_of(answer.body)
        if answer.status != 200 or "error" in values:
            raise self._failure(answer, values, credentials)
        token = values.get("access_token")
        if not isinstance(token, str) or not token.isprintable() or not token:
            raise self._tokenless(values)
        given = values.get("refresh_token")
        if given is not None and given != credentials.refresh_token.get_secret_value():
            # Whether the one that we have stays good shows when it is used next.
            log.get(__name__).warning("platform_refresh_token_replaced", end_point=self._url)
        return token, _lifetime_seconds(values.get("expires_in"), self._renewal.lifetime_seconds)

    def _form(self, credentials: Credentials) -> dict[str, str]:
        form = {
            **self._renewal.parameters,
            "grant_type": "refresh_token",
            "refresh_token": credentials.refresh_token.get_secret_value(),
        }
        if self._renewal.client is ClientAuthentication.BODY:
            form |= {"client_id": credentials.key, "client_secret": credentials.secret.get_secret_value()}
        return form

    def _authorization(self, credentials: Credentials) -> dict[str, str]:
        if self._renewal.client is ClientAuthentication.BODY:
            return {}
        pair = f"{quote_plus(credentials.key)}:{quote_plus(credentials.secret.get_secret_value())}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _failure(self, answer: Answer, values: dict[str, Any], credentials: Credentials) -> PlatformFailure:
        error, description = (_shown(values.get(name), credentials) for name in ("error", "error_description"))
        told = f"{self._who}: its token end point answered {answer.status}" + (f", {error}" if error else "")
        told += f": {description.rstrip('. ')}." if description else "."
        if answer.status in BUSY_STATUSES or error in _PASSING_ERRORS:
            return PlatformBusy(told, "Ask again later.", retry_after_seconds=retry_after_seconds(answer))
        return TokenExpired(
            told,
            "Renew `key`, `secret` and `refresh_token` in its credentials, or mend `access.renewal` in its record.",
        )

    def _tokenless(self, values: dict[str, Any]) -> PlatformFailure:
        if not values:
            return PlatformBusy(
                f"{self._who}: its token end point answered 200 with no JSON object.", "Look what answers there."
            )
        return TokenExpired(
            f"{self._who}: its token end point answered 200 without an access_token.",
            "Mend `access.renewal` in its record.",
        )


def _object_of(body: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _shown(value: Any, credentials: Credentials) -> str:
    """Some words of an error, without the secrets that they may repeat."""
    text = value if isinstance(value, str) else ""
    secrets = (credentials.secret, credentials.refresh_token, credentials.token)
    known = [re.escape(secret) for each in secrets if (secret := each.get_secret_value())]
    return (re.sub("|".join(known), "…", text) if known else text)[:_SHOWN_CHARACTERS]


def _lifetime_seconds(told: Any, otherwise: float) -> float:
    try:
        seconds = float(told)
    except (TypeError, ValueError):
        return otherwise
    return seconds if 0 < seconds < float("inf") else otherwise

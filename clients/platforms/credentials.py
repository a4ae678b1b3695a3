"""Credentials of an account: read from the file that a name refers to, and completed by an access token."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import msgspec
from pydantic import SecretStr, ValidationError

from clients.http import (
    BUSY_STATUSES,
    GuardedClient,
    HttpResponse,
    RetryingServiceCaller,
    RetryPolicy,
    SharedRenewingToken,
    TokenAndLifeSeconds,
    parse_retry_after,
)
from clients.platforms.failures import CredentialsRefused, PlatformBusy, PlatformFailure
from domain.faults import SourceFault
from domain.orders.access import (
    Account,
    ClientAuthentication,
    Credentials,
    CredentialsReader,
    TokenRenewal,
)
from infra import log

_EXPECTED: Final = "it is no JSON object of key, secret, token and refresh_token"


def build_credentials_reader(folder: Path, name: str | None) -> CredentialsReader:
    """Build a reader of the credentials with this name; without a name they are empty."""

    async def read_credentials_or_empty(renew: bool) -> Credentials:
        return (
            Credentials() if name is None else await asyncio.to_thread(_read_credentials_file, folder / f"{name}.json")
        )

    return read_credentials_or_empty


def _read_credentials_file(path: Path) -> Credentials:
    try:
        found = Credentials.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.strerror if isinstance(error, OSError) else _EXPECTED
        raise CredentialsRefused(
            f"The credentials {path.stem!r} cannot be read from HAULAGE_ORDERS__CREDENTIALS_FOLDER: {reason}.",
            f'Put a file {path.name} there, like {{"key": "…", "secret": "…", "token": "…"}}, or with a '
            '"refresh_token" where tokens renew themselves.',
        ) from None
    if not found.token.get_secret_value().isprintable():
        raise CredentialsRefused(
            f"The `token` of the credentials {path.stem!r} holds a line break or another character that no header has.",
            f"Write it into {path.name} without: `echo` ends a line, `printf %s` does not.",
        )
    return found


class AccountCredentialsReader:
    """Credentials of one account, read once and again when they are refused.

    Args:
        tokens: Shared by all readers of the account in this process.
        renewal: Where tokens are fetched, if the credentials hold a refresh token.
        who: Name of the account in messages.
    """

    def __init__(
        self,
        http: GuardedClient,
        tokens: AccessTokensByCredentials,
        renewal: TokenRenewal | None,
        account: Account,
        read_credentials: CredentialsReader,
        who: str,
    ) -> None:
        self._tokens = tokens
        self._end_point = TokenEndpoint(http, renewal, account.base_url, who) if renewal else None
        self._read_credentials = read_credentials
        self._who = who
        self._read: Credentials | None = None

    async def get_with_access_token(self) -> Credentials:
        """Return credentials that are valid as far as is known; raises CredentialsRefused or PlatformBusy."""
        self._read = self._read or await self._read_credentials(False)
        return await self._fetch_and_add_access_token(self._read, None)

    async def reread_and_renew(self, refused: Credentials) -> Credentials:
        """Return credentials after others were refused: read them again, and fetch a new token."""
        self._read = await self._read_credentials(True)
        return await self._fetch_and_add_access_token(self._read, refused.token.get_secret_value())

    async def _fetch_and_add_access_token(self, read: Credentials, refused: str | None) -> Credentials:
        if not read.refresh_token.get_secret_value():
            return read
        end_point = self._end_point
        if end_point is None:
            raise CredentialsRefused(
                f"{self._who}: its credentials hold a refresh_token, and its record does not say where it is used.",
                "Declare `access.renewal` in its record, or put a `token` into its credentials instead.",
            )
        token = await self._tokens.get_token(read).get_or_fetch(refused, lambda: end_point.fetch_token(read))
        return read.model_copy(update={"token": SecretStr(token)})


ANSWER_MAX_BYTES: Final = 64 * 1024
ANSWER_TIMEOUT_SECONDS: Final = 15.0
RETRY_PAUSES_SECONDS: Final = (0.1, 0.5)
KEPT_MAX: Final = 4
_TRANSIENT_ERRORS: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_EXCERPT_CHARACTERS: Final = 300


class AccessTokensByCredentials:
    """The access tokens of one account, by the credentials that they are fetched with."""

    def __init__(self) -> None:
        self._tokens: dict[Credentials, SharedRenewingToken] = {}

    def get_token(self, credentials: Credentials) -> SharedRenewingToken:
        """Return the token of these credentials."""
        if credentials not in self._tokens:
            self._tokens[credentials] = SharedRenewingToken()
            if len(self._tokens) > KEPT_MAX:
                del self._tokens[next(iter(self._tokens))]
        return self._tokens[credentials]


class TokenEndpoint:
    """Fetches access tokens. What it sends and receives is secret, and appears in no message.

    Args:
        who: The name of the account in messages.
    """

    def __init__(self, http: GuardedClient, renewal: TokenRenewal, base_url: str, who: str) -> None:
        self._http = http
        self._renewal = renewal
        self._url = base_url.rstrip("/") + renewal.url if renewal.url.startswith("/") else renewal.url
        self._who = who
        self._caller = RetryingServiceCaller(
            "platform_tokens", retry=RetryPolicy(RETRY_PAUSES_SECONDS, patience_seconds=0.0)
        )

    async def fetch_token(self, credentials: Credentials) -> TokenAndLifeSeconds:
        """Return an access token and its life in seconds; raises CredentialsRefused or PlatformBusy."""
        return await self._caller.call_with_retries("fetch", lambda: self._fetch_token_once(credentials))

    async def _fetch_token_once(self, credentials: Credentials) -> TokenAndLifeSeconds:
        try:
            answer = await self._http.post(
                self._url,
                body=urlencode(self._build_form_fields(credentials)).encode(),
                headers={
                    "Accept": "application/json",
                    "Content-Type": "application/x-www-form-urlencoded",
                    **self._build_authorization_header(credentials),
                },
                max_bytes=ANSWER_MAX_BYTES,
                timeout_seconds=ANSWER_TIMEOUT_SECONDS,
            )
        except SourceFault as fault:
            message = f"{self._who}: its token endpoint cannot be reached. {fault.record.message}"
            if fault.transient:
                raise PlatformBusy(message, "Ask again later.", retry_after_seconds=fault.retry_after_seconds) from None
            raise CredentialsRefused(message, fault.record.hint) from None
        values = _decode_object_or_empty(answer.body)
        if answer.status != 200 or values.get("error"):
            raise self._build_failure(answer, values, credentials)
        token = values.get("access_token")
        if not isinstance(token, str) or not token.isprintable() or not token:
            raise self._build_missing_token_failure(values)
        given = values.get("refresh_token")
        if given is not None and given != credentials.refresh_token.get_secret_value():
            # Whether the present one stays valid shows when it is used next.
            log.get(__name__).warning("platform_refresh_token_replaced", end_point=self._url)
        return token, _parse_positive_lifetime_or_default(values.get("expires_in"), self._renewal.lifetime_seconds)

    def _build_form_fields(self, credentials: Credentials) -> dict[str, str]:
        form = {
            **self._renewal.parameters,
            "grant_type": "refresh_token",
            "refresh_token": credentials.refresh_token.get_secret_value(),
        }
        if self._renewal.client is ClientAuthentication.BODY:
            form |= {"client_id": credentials.key, "client_secret": credentials.secret.get_secret_value()}
        return form

    def _build_authorization_header(self, credentials: Credentials) -> dict[str, str]:
        if self._renewal.client is ClientAuthentication.BODY:
            return {}
        pair = f"{quote_plus(credentials.key)}:{quote_plus(credentials.secret.get_secret_value())}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    def _build_failure(self, answer: HttpResponse, values: dict[str, Any], credentials: Credentials) -> PlatformFailure:
        error, description = (
            _truncate_and_redact(values.get(name), credentials) for name in ("error", "error_description")
        )
        message = f"{self._who}: its token endpoint answered {answer.status}" + (f", {error}" if error else "")
        message += f": {description.rstrip('. ')}." if description else "."
        if answer.status in BUSY_STATUSES or error in _TRANSIENT_ERRORS:
            return PlatformBusy(message, "Ask again later.", retry_after_seconds=parse_retry_after(answer.headers))
        return CredentialsRefused(
            message,
            "Renew `key`, `secret` and `refresh_token` in its credentials, or correct `access.renewal` in its record.",
        )

    def _build_missing_token_failure(self, values: dict[str, Any]) -> PlatformFailure:
        if not values:
            return PlatformBusy(
                f"{self._who}: its token endpoint answered 200 with no JSON object.", "See what answers there."
            )
        return CredentialsRefused(
            f"{self._who}: its token endpoint answered 200 without an access_token.",
            "Correct `access.renewal` in its record.",
        )


def _decode_object_or_empty(body: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return values if isinstance(values, dict) else {}


def _truncate_and_redact(value: Any, credentials: Credentials) -> str:
    """Return the beginning of an error text without the secrets that it may repeat."""
    text = value if isinstance(value, str) else ""
    secrets = (credentials.secret, credentials.refresh_token, credentials.token)
    known = [re.escape(secret) for each in secrets if (secret := each.get_secret_value())]
    return (re.sub("|".join(known), "…", text) if known else text)[:_EXCERPT_CHARACTERS]


def _parse_positive_lifetime_or_default(value: Any, default: float) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return default
    return seconds if 0 < seconds < float("inf") else default

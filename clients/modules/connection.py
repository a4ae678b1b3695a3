"""The connections to modules: credentials, limits of time, size and calls, and repeated calls."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from yarl import URL

from clients.http import (
    BUSY_STATUSES,
    CallConcurrencyAndRateLimiter,
    CircuitBreaker,
    HttpResponse,
    HttpTransport,
    OpenSocket,
    RetryingServiceCaller,
    RetryPolicy,
    ServiceFailure,
    SharedRenewingToken,
    TokenAndLifeSeconds,
    TransportError,
    TransportFailureKind,
    parse_retry_after,
)
from domain.addresses.operations import Module
from domain.faults import sanitize_and_shorten_text
from domain.redaction import remove_long_secrets
from infra.address_settings import AllModulesSettings, ModuleSettings

ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
EXCERPT_CHARACTERS: Final = 2_000
FAULTS_SHOWN: Final = 3
EXCERPT_SHOWN: Final = 100
PATIENCE_SECONDS: Final = 10.0
"""A module that asks for a longer pause than this counts as away."""
OPEN_MAX: Final = 16
"""Open connections beyond which the least recently used are closed, if no call uses them."""

T = TypeVar("T")


class ModuleFailure(ServiceFailure):
    """A module did not do what was asked, or it is unknown whether it did.

    Args:
        message: What came back, and what to do next.
        is_transient: Whether the same call may succeed in a moment.
        is_away: Whether the module answers no call at all; otherwise that is not known.
        is_paused: Whether it is paused, so that it was not called.
        is_answered: Whether it answered each attempt, so that none of them is still under way.
        is_too_large: Whether it answered with more than is read, or that it would.
    """

    def __init__(
        self,
        message: str,
        *,
        is_transient: bool,
        is_away: bool = False,
        is_paused: bool = False,
        is_answered: bool = False,
        is_too_large: bool = False,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(
            sanitize_and_shorten_text(message),
            is_transient=is_transient,
            is_answered=is_answered,
            retry_after_seconds=retry_after_seconds,
        )
        self.is_away = is_away or is_paused
        self.is_paused = is_paused
        self.is_too_large = is_too_large


class ModuleCredentials(BaseModel):
    """The content of a file of credentials."""

    token: SecretStr


class ModuleConnection:
    """Makes calls to one module; every call may be repeated without harm."""

    def __init__(
        self, module: Module, settings: ModuleSettings, folder: Path, open_socket_if_allowed: OpenSocket | None = None
    ) -> None:
        self._module = module
        self._settings = settings
        self._folder = folder
        self._transport = HttpTransport(
            connect_timeout_seconds=settings.timeout_seconds, open_socket_if_allowed=open_socket_if_allowed
        )
        self._token = SharedRenewingToken()
        self._caller = RetryingServiceCaller(
            f"module_{module}",
            retry=RetryPolicy.exponential(
                settings.retries, settings.retry_pause_seconds, max_requested_pause_seconds=PATIENCE_SECONDS
            ),
            limiter=CallConcurrencyAndRateLimiter(settings.concurrency),
            breaker=CircuitBreaker(settings.breaker_failures, settings.breaker_seconds),
            build_open_failure=self._build_circuit_open_failure,
        )

    @property
    def is_in_use(self) -> bool:
        """Whether a call is running."""
        return self._caller.running > 0

    async def open(self) -> None:
        """Open the session."""
        await self._transport.__aenter__()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.__aexit__(None, None, None)

    async def call_with_retries(
        self,
        method: str,
        path: str,
        parse: Callable[[bytes], T],
        body: bytes | None = None,
        *,
        is_probe: bool = False,
        max_bytes: int = ANSWER_MAX_BYTES,
    ) -> T:
        """Make a call; repeat it after transient failures.

        Args:
            is_probe: Whether it is made although the breaker is open, to find out whether the module answers.
            max_bytes: The largest answer that is read.

        Raises:
            ModuleFailure: There was no response, or not a valid one.
        """
        if self._settings.paused:
            raise ModuleFailure(
                f"Module {self._module} is paused, and is not called until it is resumed. The versions of the "
                "configuration of addresses say by whom and why.",
                is_transient=False,
                is_paused=True,
            )
        name = path.lstrip("/").partition("/")[0].partition("?")[0]
        return await self._caller.call_with_retries(
            name,
            lambda: self._send_with_renewed_token_and_parse(method, path, parse, body, max_bytes),
            is_probe=is_probe,
        )

    async def _send_with_renewed_token_and_parse(
        self, method: str, path: str, parse: Callable[[bytes], T], body: bytes | None, max_bytes: int
    ) -> T:
        token = await self._get_token(None)
        response = await self._send(method, path, body, token, max_bytes)
        if response.status == HTTPStatus.UNAUTHORIZED and token is not None:
            # The token may have been replaced in its file since it was read.
            response = await self._send(method, path, body, await self._get_token(token), max_bytes)
        if response.status != HTTPStatus.OK:
            raise self._build_refusal_failure(method, path, response)
        try:
            return parse(response.body)
        except ValueError as error:
            raise ModuleFailure(
                f"Module {self._module} answered {method} {path} with what is not of the contract: "
                f"{_describe_contract_violation(error)}. Mend its handler.",
                is_transient=False,
                is_answered=True,
            ) from None

    async def _send(
        self, method: str, path: str, body: bytes | None, token: str | None, max_bytes: int
    ) -> HttpResponse:
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = await self._transport.request(
                method,
                self._build_url(path),
                headers=headers,
                body=body,
                max_bytes=max_bytes,
                timeout_seconds=self._settings.timeout_seconds,
            )
        except TransportError as error:
            raise self._build_transport_failure(error) from error
        # A module may repeat what it was sent, and wrong answers are quoted.
        return replace(response, body=remove_long_secrets(response.body, [token] if token else []))

    def _build_transport_failure(self, error: TransportError) -> ModuleFailure:
        module = f"Module {self._module} at {self._settings.base_url}"
        match error.fault:
            case TransportFailureKind.TIMEOUT:
                sentence = f"{module} gave no answer within {self._settings.timeout_seconds:g} s. {_ADVICE}"
                return ModuleFailure(sentence, is_transient=True)
            case TransportFailureKind.DENIED:
                sentence = f"{module} has an address that is not allowed. Add it and its port to HAULAGE_GUARD__ALLOW."
                return ModuleFailure(sentence, is_transient=False)
            case TransportFailureKind.TOO_LARGE:
                sentence = f"Module {self._module} answered with more than {error.detail}. Mend its handler."
                return ModuleFailure(sentence, is_transient=False, is_too_large=True)
            case _:
                return ModuleFailure(f"{module} gave no whole answer ({error}). {_ADVICE}", is_transient=True)

    def _build_url(self, path: str) -> URL:
        if not self._settings.base_url:
            raise ModuleFailure(
                f"It is not set where module {self._module} is. Set {_describe_setting(self._module, 'base_url')} to "
                "the root of its contract.",
                is_transient=False,
            )
        return URL(self._settings.base_url.rstrip("/") + path, encoded=True)

    async def _get_token(self, refused: str | None) -> str | None:
        if not self._settings.credentials:
            return None
        return await self._token.get_or_fetch(refused, self._read_token_file)

    async def _read_token_file(self) -> TokenAndLifeSeconds:
        path = self._folder / f"{self._settings.credentials}.json"
        try:
            credentials = ModuleCredentials.model_validate_json(await asyncio.to_thread(path.read_bytes))
            return credentials.token.get_secret_value(), math.inf
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no JSON object with a token"
            raise ModuleFailure(
                f"The credentials {path.stem!r} of module {self._module} cannot be read from "
                f"HAULAGE_ADDRESSES__CREDENTIALS_FOLDER: {reason}. Put a file {path.name} there, like "
                '{"token": "…"}.',
                is_transient=False,
            ) from None

    def _build_circuit_open_failure(self, breaker: CircuitBreaker) -> ModuleFailure:
        return ModuleFailure(
            f"Module {self._module} {breaker.describe_open_state()}",
            is_transient=False,
            is_away=True,
        )

    def _build_refusal_failure(self, method: str, path: str, response: HttpResponse) -> ModuleFailure:
        status = response.status
        detail = _get_problem_detail_or_excerpt(response.body)
        sentence = f"Module {self._module} answered {method} {path} with {status}: {detail!r}."
        match status:
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                advice = f"Check what {_describe_setting(self._module, 'credentials')} names."
            case HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED:
                advice = f"Check {_describe_setting(self._module, 'base_url')}, and batch if it takes no batches."
            case _:
                advice = "See its log."
        return ModuleFailure(
            f"{sentence} {advice}",
            is_transient=status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in BUSY_STATUSES,
            is_away=status in _AWAY_STATUSES,
            is_answered=True,
            is_too_large=status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            retry_after_seconds=parse_retry_after(response.headers),
        )


class ModuleConnections:
    """Opens a connection for each module and its settings when it is first needed.

    Args:
        environment: The settings of the environment. An address that they do not name was given by an operator.
        open_socket_if_allowed: Opens the sockets to addresses of operators, or refuses to.
    """

    def __init__(
        self, environment: AllModulesSettings, folder: Path, open_socket_if_allowed: OpenSocket | None
    ) -> None:
        self._environment = environment
        self._folder = folder
        self._open_socket = open_socket_if_allowed
        self._open: dict[tuple[Module, ModuleSettings], ModuleConnection] = {}

    async def get_or_open(self, module: Module, settings: ModuleSettings) -> ModuleConnection:
        """Return the connection to a module under these settings."""
        key = (module, settings)
        connection = self._open.pop(key, None)
        if connection is None:
            is_configured = settings.base_url == getattr(self._environment, module).base_url
            connection = ModuleConnection(module, settings, self._folder, None if is_configured else self._open_socket)
            await connection.open()
        # The most recently used is the last of the dictionary.
        self._open[key] = connection
        await self._close_unused_beyond_limit()
        return connection

    async def close(self) -> None:
        """Close all connections."""
        while self._open:
            _, connection = self._open.popitem()
            await connection.close()

    async def _close_unused_beyond_limit(self) -> None:
        excess = max(0, len(self._open) - OPEN_MAX)
        for key in [key for key, connection in self._open.items() if not connection.is_in_use][:excess]:
            await self._open.pop(key).close()


# A route that is not there says nothing about what was sent to it: the module takes no batches, or is elsewhere.
_AWAY_STATUSES = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_ADVICE = "See whether it runs and lets us in."


def _describe_setting(module: Module, name: str) -> str:
    return f"HAULAGE_ADDRESSES__MODULES__{module.upper()}__{name.upper()} (or PATCH /v1/addresses/config)"


def _describe_contract_violation(error: ValueError) -> str:
    """Describe in one sentence what contradicts the contract; pydantic writes a line and a link for each fault."""
    if not isinstance(error, ValidationError):
        return str(error)
    wrong = error.errors(include_url=False, include_context=False)
    sentences = [_describe_validation_fault(each) for each in wrong[:FAULTS_SHOWN]]
    left = len(wrong) - len(sentences)
    return "; ".join(sentences) + (f"; and {left} more like these" if left else "")


def _describe_validation_fault(detail: ErrorDetails) -> str:
    value, is_missing = detail["input"], detail["type"] == "missing"
    if detail["type"] == "json_invalid":
        return f"it is no JSON: {_get_problem_detail_or_excerpt(value)[:EXCERPT_SHOWN]!r}"
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]).removeprefix(".")
    sentence = f"{place or 'the answer'}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
    # For objects and lists the place is enough: addresses do not belong into a log.
    if is_missing or not isinstance(value, str | int | float | None):
        return sentence
    return f"{sentence}, not {value[:EXCERPT_SHOWN] if isinstance(value, str) else value!r}"


def _get_problem_detail_or_excerpt(text: bytes) -> str:
    """Return the detail of a problem document, or else the beginning of the text."""
    shown = text[:EXCERPT_CHARACTERS].decode(errors="replace")
    try:
        problem = json.loads(text)
    except (ValueError, RecursionError):
        return shown
    detail: Any = problem.get("detail") if isinstance(problem, dict) else None
    return detail[:EXCERPT_CHARACTERS] if isinstance(detail, str) else shown

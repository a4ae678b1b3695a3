"""The way to one module: its credential, its limits of time and calls, and calling again where that may help."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from socket import socket
from typing import Any, Final, TypeVar

import aiohttp
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from yarl import URL

from clients.modules.breaker import Breaker
from domain.addresses.operations import Module
from domain.faults import sanitize_text
from infra import log, metrics
from infra.settings import ModuleSettings

ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
EXCERPT_CHARACTERS: Final = 2_000
FAULTS_SHOWN: Final = 3
EXCERPT_SHOWN: Final = 100
PAUSE_MAX_SECONDS: Final = 10.0

T = TypeVar("T")
Read = Callable[[bytes], T]


class ModuleFailure(Exception):
    """A module did not do what was asked, or nobody knows. The message says what came back and what to do next.

    Args:
        passing: Whether the same call may well succeed in a moment.
        away: Whether it answers nobody, whatever is asked; else that is to be found out.
        answered: Whether it gave a whole answer to each call, so that none of them is still on its way.
    """

    def __init__(self, message: str, *, passing: bool, away: bool = False, answered: bool = False) -> None:
        super().__init__(sanitize_text(message))
        self.passing = passing
        self.away = away
        self.answered = answered


class LeftAlone(ModuleFailure):
    """The breaker is open: nothing was sent."""


class Credential(BaseModel):
    """What a file of credentials holds."""

    token: SecretStr


class Channel:
    """Calls to one module; every one of them may be repeated without harm."""

    _session: aiohttp.ClientSession

    def __init__(
        self,
        module: Module,
        settings: ModuleSettings,
        folder: Path,
        open_socket: Callable[[Any], socket] | None = None,
    ) -> None:
        self._module = module
        self._settings = settings
        self._folder = folder
        self._open_socket = open_socket
        self.calls = 0
        """Calls that have begun and not ended."""
        self._places = asyncio.Semaphore(settings.concurrency)
        self._breaker = Breaker(settings.breaker_failures, settings.breaker_seconds, asyncio.get_running_loop().time)
        self._token: str | None = None

    def open(self) -> None:
        """Be ready to call."""
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout_seconds)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._open_socket),
            headers={"User-Agent": "Haulage", "Content-Type": "application/json"},
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def call(
        self, method: str, path: str, read: Read[T], body: bytes | None = None, *, is_probe: bool = False
    ) -> T:
        """Call until there is an answer or the retries are used up.

        Args:
            is_probe: It is to show whether the module answers at all, and goes out although the breaker is open.

        Raises:
            ModuleFailure: There was none, or it was no good one.
        """
        self.calls += 1
        try:
            return await self._repeated(method, path, read, body, is_probe=is_probe)
        finally:
            self.calls -= 1

    async def _repeated(self, method: str, path: str, read: Read[T], body: bytes | None, *, is_probe: bool) -> T:
        before: ModuleFailure | None = None
        for attempt in range(self._settings.retries + 1):
            try:
                return await self._counted(method, path, read, body, is_probe=is_probe)
            except LeftAlone as failure:
                # What the module answered before says more than that it is left alone because of that.
                raise before or failure from None
            except ModuleFailure as failure:
                failure.answered = failure.answered and (before is None or before.answered)
                before = failure
                if not failure.passing or attempt == self._settings.retries:
                    raise
            await asyncio.sleep(min(PAUSE_MAX_SECONDS, self._settings.retry_pause_seconds * 2**attempt))
        raise AssertionError("the last attempt neither answered nor failed")

    async def _counted(self, method: str, path: str, read: Read[T], body: bytes | None, *, is_probe: bool) -> T:
        async with self._places:
            if not is_probe and not self._breaker.admits():
                raise LeftAlone(
                    f"Module {self._module} failed {self._settings.breaker_failures} times in a row and is left alone "
                    f"for {self._settings.breaker_seconds:g} s. See whether it runs and lets us in.",
                    passing=False,
                    away=True,
                )
            try:
                answer = await self._once(method, path, read, body)
            except ModuleFailure as failure:
                if failure.passing:
                    self._breaker.failed()
                else:
                    self._breaker.succeeded()
                metrics.MODULE_CALLS.labels(self._module, "failed").inc()
                log.get(__name__).warning("module_call_failed", module=self._module, path=path, error=str(failure))
                raise
        self._breaker.succeeded()
        metrics.MODULE_CALLS.labels(self._module, "ok").inc()
        return answer

    async def _once(self, method: str, path: str, read: Read[T], body: bytes | None) -> T:
        status, text = await self._answer(method, path, body, renew=False)
        if status == HTTPStatus.UNAUTHORIZED and self._settings.credentials:
            # The token may have been replaced in its file since we read it.
            status, text = await self._answer(method, path, body, renew=True)
        if status != HTTPStatus.OK:
            raise self._refused(method, path, status, text)
        try:
            return read(text)
        except ValueError as error:
            raise ModuleFailure(
                f"Module {self._module} answered {method} {path} with what is not of the contract: "
                f"{_contradiction(error)}. Mend its handler.",
                passing=False,
                answered=True,
            ) from None

    async def _answer(self, method: str, path: str, body: bytes | None, *, renew: bool) -> tuple[int, bytes]:
        url = self._url(path)
        headers = await self._authorization(renew=renew)
        where = f"Module {self._module} at {self._settings.base_url}"
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, await self._read(response)
        except TimeoutError as error:
            raise ModuleFailure(
                f"{where} gave no answer within {self._settings.timeout_seconds:g} s. {_LOOK}", passing=True
            ) from error
        except aiohttp.ClientError as error:
            if self._open_socket and isinstance(error.__cause__, PermissionError):
                raise ModuleFailure(
                    f"{where} is nothing that we may connect to. Add its address and port to HAULAGE_GUARD__ALLOW.",
                    passing=False,
                ) from error
            raise ModuleFailure(
                f"{where} gave no whole answer ({type(error).__name__}). {_LOOK}", passing=True
            ) from error

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > ANSWER_MAX_BYTES:
                raise ModuleFailure(
                    f"Module {self._module} answered with more than {ANSWER_MAX_BYTES:,} bytes. Mend its handler.",
                    passing=False,
                )
        return bytes(body)

    def _url(self, path: str) -> URL:
        if not self._settings.base_url:
            raise ModuleFailure(
                f"It is not set where module {self._module} is. Set {_variable(self._module, 'base_url')} to the root "
                "of its contract.",
                passing=False,
            )
        return URL(self._settings.base_url.rstrip("/") + path, encoded=True)

    async def _authorization(self, *, renew: bool) -> dict[str, str]:
        if not self._settings.credentials:
            return {}
        if self._token is None or renew:
            self._token = await asyncio.to_thread(self._read_token)
        return {"Authorization": f"Bearer {self._token}"}

    def _read_token(self) -> str:
        path = self._folder / f"{self._settings.credentials}.json"
        try:
            return Credential.model_validate_json(path.read_bytes()).token.get_secret_value()
        except (OSError, ValidationError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no JSON object with a token"
            raise ModuleFailure(
                f"The credentials {path.stem!r} of module {self._module} cannot be read from "
                f"HAULAGE_ADDRESSES__CREDENTIALS_FOLDER: {reason}. Put a file {path.name} there, like "
                '{"token": "…"}.',
                passing=False,
            ) from None

    def _refused(self, method: str, path: str, status: int, text: bytes) -> ModuleFailure:
        passing = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        told = f"Module {self._module} answered {method} {path} with {status}: {_excerpt(text)!r}."
        match status:
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                next_step = f"Check what {_variable(self._module, 'credentials')} names."
            case HTTPStatus.NOT_FOUND | HTTPStatus.METHOD_NOT_ALLOWED:
                next_step = f"Check {_variable(self._module, 'base_url')}, and batch if it takes no batches."
            case _:
                next_step = "See its log."
        return ModuleFailure(f"{told} {next_step}", passing=passing, away=status in _AWAY, answered=True)


_AWAY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_LOOK = "See whether it runs and lets us in."


def _variable(module: Module, name: str) -> str:
    return f"HAULAGE_ADDRESSES__MODULES__{module.upper()}__{name.upper()} (or PATCH /v1/addresses/config)"


def _contradiction(error: ValueError) -> str:
    """What of an answer is not of the contract; pydantic's own text has a link and a line for each fault."""
    if not isinstance(error, ValidationError):
        return str(error)
    wrong = error.errors(include_url=False, include_context=False)
    sentences = [_fault_of(each) for each in wrong[:FAULTS_SHOWN]]
    left = len(wrong) - len(sentences)
    return "; ".join(sentences) + (f"; and {left} more like these" if left else "")


def _fault_of(detail: ErrorDetails) -> str:
    told, is_missing = detail["input"], detail["type"] == "missing"
    if detail["type"] == "json_invalid":
        return f"it is no JSON: {_excerpt(told)[:EXCERPT_SHOWN]!r}"
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in detail["loc"]).removeprefix(".")
    sentence = f"{place or 'the answer'}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
    # Of objects and lists the place says enough: addresses do not belong into a log.
    if is_missing or not isinstance(told, str | int | float | None):
        return sentence
    return f"{sentence}, not {told[:EXCERPT_SHOWN] if isinstance(told, str) else told!r}"


def _excerpt(text: bytes) -> str:
    """The sentence of a problem document, else the beginning of whatever it is."""
    shown = text[:EXCERPT_CHARACTERS].decode(errors="replace")
    try:
        problem = json.loads(text)
    except ValueError:
        return shown
    detail: Any = problem.get("detail") if isinstance(problem, dict) else None
    return detail[:EXCERPT_CHARACTERS] if isinstance(detail, str) else shown

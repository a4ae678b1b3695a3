"""The client of GSE's HTTP interface: begin a transfer, get its results, terminate it, and get agent states.

Its connection adds keys, headers and time-outs, and repeats the calls that may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

import msgspec

from clients.gse.responses import GseFailure, GseOutcomeUnknown, GseRefused, GseResponse, GseUnavailable
from clients.http import (
    CallConcurrencyAndRateLimiter,
    CircuitBreaker,
    HttpTransport,
    RetryingServiceCaller,
    RetryPolicy,
    TransportError,
    TransportFailureKind,
)
from domain.redaction import remove_long_secrets
from domain.transfers.gse import FolderAndFileName, GseAgentWithUser, GseProgress, GseRecordsByAgent, GseTransferRequest
from infra import log, metrics
from infra.component_settings import GseSettings

TRANSFER = "/api/v2/task/extensions/async_transfer_file"
RESULTS = "/api/v2/task/extensions/get_transfer_file_result"
TERMINATE = "/api/v2/task/extensions/async_terminate_transfer_file"
STATES = "/api/v2/cluster/list_agent_state"

AGENTS_PER_STATE_CALL = 1_000
PENDING_CODES = frozenset({1000115})
"""Codes of responses that mean that there are no results yet."""

ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
CODES_MAX: Final = 100
"""Codes come from outside: further ones share a label of the metric."""

_ADVICE: Final = "See whether the gateway runs and lets us in."

T = TypeVar("T")


def _ignore_task_id(_: str) -> None:
    """Do nothing."""


async def _begin_at_once() -> None:
    """Do nothing."""


class GseClient:
    """Calls GSE. A success is a 2xx response with code 0, and for a transfer a task id; all else raises GseFailure."""

    def __init__(self, settings: GseSettings) -> None:
        self._settings = settings
        self._connection = GseConnection(settings)

    async def __aenter__(self) -> Self:
        await self._connection.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._connection.__aexit__(kind, error, traceback)

    @property
    def source_agent(self) -> GseAgentWithUser:
        """The agent of this worker's host."""
        return GseAgentWithUser(
            self._settings.source_agent_id, self._settings.source_container_id, self._settings.source_user
        )

    def get_cached_file_location_for_agent(self, cached: Path) -> FolderAndFileName:
        """Return where the agent finds a cached file; the cache's folder may be mounted there under another name."""
        folder, agent_folder = cached.parent.absolute(), self._settings.source_folder
        if agent_folder:
            folder = Path(agent_folder) / folder.relative_to(self._settings.cache_folder.absolute())
        return FolderAndFileName(str(folder), cached.name)

    async def begin_transfer(
        self,
        request: GseTransferRequest,
        on_task_id: Callable[[str], None] = _ignore_task_id,
        before_sending: Callable[[], Awaitable[None]] = _begin_at_once,
    ) -> str:
        """Begin a transfer and return GSE's task id. The call is not retried: a retry may send everything twice.

        Args:
            request: The file and its targets.
            on_task_id: Called with the id in the same turn of the event loop in which the response is read.
            before_sending: Called when the call's turn has come; if it raises, nothing is sent.

        Raises:
            GseRefused: Nothing began, and the same call will be refused again.
            GseUnavailable: Nothing began; the call may succeed later.
            GseOutcomeUnknown: The transfer may have begun, under an unknown id.
        """

        def parse_and_report_task_id(response: GseResponse) -> str:
            task_id = _parse_task_id(response)
            on_task_id(task_id)
            return task_id

        return await self._connection.call_once(TRANSFER, request.to_body(), parse_and_report_task_id, before_sending)

    async def get_results(
        self, task_id: str, agents: Collection[GseAgentWithUser] = (), file: FolderAndFileName | None = None
    ) -> GseRecordsByAgent:
        """Return the results of a transfer for these agents, including the source for the upload, or for all.

        With a location, records of other files are left out.

        Raises:
            GseRefused: GSE does not know the task, or denies access.
            GseUnavailable: No attempt had a response; the call may succeed later.
        """
        body: dict[str, Any] = {"task_id": task_id}
        if agents:
            body["agents"] = [each.to_id_fields() for each in agents]
        return await self._connection.call_with_retries(RESULTS, body, partial(_parse_results, file=file))

    async def request_termination(self, task_id: str, agents: Sequence[GseAgentWithUser]) -> None:
        """Have GSE terminate a transfer to these agents; later results show that it did. Raises like `get_results`."""
        if not agents:
            raise ValueError("no agent was named: GSE would accept that and terminate nothing. Name the unfinished.")
        body = {"task_id": task_id, "agents": [each.to_agent_and_user_fields() for each in agents]}
        await self._connection.call_with_retries(TERMINATE, body, _parse_task_id)

    async def get_agent_states(self, agent_ids: Sequence[str]) -> dict[str, int]:
        """Return the state of each agent that GSE reports (see `domain.transfers.gse`). Raises like `get_results`."""
        states: dict[str, int] = {}
        for start in range(0, len(agent_ids), AGENTS_PER_STATE_CALL):
            chunk = list(agent_ids[start : start + AGENTS_PER_STATE_CALL])
            states |= await self._connection.call_with_retries(STATES, {"agent_id_list": chunk}, _parse_agent_states)
        return states


def _parse_task_id(response: GseResponse) -> str:
    match response.get_data_none_if_pending_or_raise():
        case {"result": {"task_id": str(task_id)}} if task_id and task_id.isprintable():
            return task_id
        case _:
            # PostgreSQL stores no NUL: a shard that could not save such an id would retry until the deadline.
            raise response.build_malformed_failure("a readable task id")


def _parse_results(response: GseResponse, file: FolderAndFileName | None) -> GseRecordsByAgent:
    match response.get_data_none_if_pending_or_raise(pending_codes=PENDING_CODES):
        case {"result": list(entries)}:
            records = [GseProgress.parse(entry) for entry in entries]
        case None | {"result": None}:
            records = []
        case _:
            raise response.build_malformed_failure("a list of results")
    if unread := records.count(None):
        log.get(__name__).warning("gse_records_unreadable", unreadable=unread, records=len(records))
    return GseRecordsByAgent.from_records(filter(None, records), file)


def _parse_agent_states(response: GseResponse) -> dict[str, int]:
    states = {}
    match response.get_data_none_if_pending_or_raise():
        case list(entries):
            for entry in entries:
                match entry:
                    case {"bk_agent_id": str(agent_id), "status_code": int(state)}:
                        states[agent_id] = state
            return states
        case _:
            raise response.build_malformed_failure("a list of agents")


class GseConnection:
    """Makes calls to GSE. One that must not happen twice has a connection of its own.

    On a kept connection, a call that GSE has begun looks the same as a connection that it has closed meanwhile.
    """

    def __init__(self, settings: GseSettings) -> None:
        self._settings = settings
        self._kept = HttpTransport(connect_timeout_seconds=settings.connect_timeout_seconds)
        self._single = HttpTransport(connect_timeout_seconds=settings.connect_timeout_seconds, keeps_connections=False)
        self._headers = _build_headers(settings)
        self._codes: set[int | None] = set()
        self._caller = RetryingServiceCaller(
            "gse",
            retry=RetryPolicy.exponential(settings.retries, settings.retry_pause_seconds),
            limiter=CallConcurrencyAndRateLimiter(settings.concurrency, settings.calls_per_second),
            breaker=CircuitBreaker(settings.breaker_failures, settings.breaker_seconds),
            build_open_failure=self._build_circuit_open_failure,
        )

    async def __aenter__(self) -> Self:
        await self._kept.__aenter__()
        await self._single.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._kept.__aexit__(kind, error, traceback)
        await self._single.__aexit__(kind, error, traceback)

    async def call_once(
        self,
        path: str,
        body: dict[str, Any],
        parse: Callable[[GseResponse], T],
        before_sending: Callable[[], Awaitable[None]],
    ) -> T:
        """Make a call that must not happen twice; raises GseFailure, and what `before_sending` raises.

        `parse` is called before the connection is released, which takes turns of the event loop.
        """

        return await self._caller.call_with_retries(
            _get_call_name(path),
            lambda: self._attempt(self._single, path, body, parse),
            before_sending=before_sending,
            repeats=False,
        )

    async def call_with_retries(self, path: str, body: dict[str, Any], parse: Callable[[GseResponse], T]) -> T:
        """Make a call that may be repeated; raises GseRefused, or GseUnavailable after the last transient failure."""
        try:
            return await self._caller.call_with_retries(
                _get_call_name(path), lambda: self._attempt(self._kept, path, body, parse)
            )
        except (GseUnavailable, GseOutcomeUnknown) as failure:
            raise GseUnavailable(
                str(failure), code=failure.code, retry_after_seconds=failure.retry_after_seconds
            ) from failure

    async def _attempt(
        self, transport: HttpTransport, path: str, body: dict[str, Any], parse: Callable[[GseResponse], T]
    ) -> T:
        settings, request_id, name = self._settings, uuid4().hex, _get_call_name(path)
        if not settings.base_url:
            raise GseRefused(
                "It is not set where GSE is. Set HAULAGE_GSE__BASE_URL to the root of the gateway's stage."
            )
        url, headers = settings.base_url.rstrip("/") + path, {**self._headers, "X-Request-Id": request_id}
        content, timeout = msgspec.json.encode(body), settings.answer_timeout_seconds
        try:
            async with transport.exchange("POST", url, headers, content, timeout) as exchange:
                response = await exchange.read(ANSWER_MAX_BYTES)
                answer = remove_long_secrets(response.body, [settings.app_secret.get_secret_value()])
                with self._count_answer_by_code(name):
                    return parse(GseResponse(name, response.status, response.headers, answer, request_id))
        except TransportError as error:
            raise self._build_failure(error, f"GSE's {name} (request {request_id}) at {settings.base_url}") from error

    @contextmanager
    def _count_answer_by_code(self, call: str) -> Iterator[None]:
        code: int | None = 0
        try:
            yield
        except GseFailure as failure:
            code = failure.code
            raise
        finally:
            if code in self._codes or len(self._codes) < CODES_MAX:
                self._codes.add(code)
                name = "none" if code is None else str(code)
            else:
                name = "other"
            metrics.GSE_ANSWERS.labels(call, name).inc()

    def _build_failure(self, error: TransportError, call: str) -> GseFailure:
        if error.fault is TransportFailureKind.TOO_LARGE:
            return GseOutcomeUnknown(f"{call} answered with more than {error.detail}. Ask for fewer agents at a time.")
        if error.is_surely_unsent:
            return GseUnavailable(f"{call} could not be reached ({error}). {_ADVICE}")
        return GseOutcomeUnknown(f"{call} gave no whole answer ({error}). {_ADVICE}")

    def _build_circuit_open_failure(self, breaker: CircuitBreaker) -> GseFailure:
        return GseUnavailable(
            f"GSE at {self._settings.base_url} {breaker.describe_open_state()}",
            retry_after_seconds=breaker.open_seconds,
        )


def _get_call_name(path: str) -> str:
    return path.rpartition("/")[2]


def _build_headers(settings: GseSettings) -> Mapping[str, str]:
    authorization = {
        "bk_app_code": settings.app_code,
        "bk_app_secret": settings.app_secret.get_secret_value(),
        "bk_username": settings.username,
    }
    headers = {
        "Content-Type": "application/json",
        "X-Bkapi-Authorization": json.dumps({name: value for name, value in authorization.items() if value}),
    }
    if settings.tenant_id:
        headers["X-Bk-Tenant-Id"] = settings.tenant_id
    return headers

"""The client of GSE's HTTP interface: begin a transfer, get its results, terminate it, and get agent states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clients.gse.connection import GseConnection
from clients.gse.responses import GseResponse
from domain.transfers.gse import FileLocation, GseAgent, GseRecord, GseResults, GseTransferRequest
from infra import log
from infra.settings import GseSettings

TRANSFER = "/api/v2/task/extensions/async_transfer_file"
RESULTS = "/api/v2/task/extensions/get_transfer_file_result"
TERMINATE = "/api/v2/task/extensions/async_terminate_transfer_file"
STATES = "/api/v2/cluster/list_agent_state"

AGENTS_PER_STATE_CALL = 1_000
PENDING_CODES = frozenset({1000115})
"""Codes of responses that mean that there are no results yet."""


def _ignore(_: str) -> None:
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
    def source(self) -> GseAgent:
        """The agent of this worker's host."""
        return GseAgent(self._settings.source_agent_id, self._settings.source_container_id, self._settings.source_user)

    def get_source_location(self, cached: Path) -> FileLocation:
        """Return where the agent finds a cached file; the cache's folder may be mounted there under another name."""
        folder, agent_folder = cached.parent.absolute(), self._settings.source_folder
        if agent_folder:
            folder = Path(agent_folder) / folder.relative_to(self._settings.cache_folder.absolute())
        return FileLocation(str(folder), cached.name)

    async def transfer(self, request: GseTransferRequest, on_task_id: Callable[[str], None] = _ignore) -> str:
        """Begin a transfer and return GSE's task id. The call is not retried: a retry may send everything twice.

        Args:
            request: The file and its targets.
            on_task_id: Called with the id in the same turn of the event loop in which the response is read.

        Raises:
            GseRefused: Nothing began, and the same call will be refused again.
            GseUnavailable: Nothing began; the call may succeed later.
            GseUnknown: The transfer may have begun, under an unknown id.
        """

        def read(response: GseResponse) -> str:
            task_id = _parse_task_id(response)
            on_task_id(task_id)
            return task_id

        return await self._connection.call_once(TRANSFER, request.to_body(), read)

    async def get_results(
        self, task_id: str, agents: Collection[GseAgent] = (), file: FileLocation | None = None
    ) -> GseResults:
        """Return the results of a transfer for these agents, including the source for the upload, or for all.

        With a location, records of other files are left out.

        Raises:
            GseRefused: GSE does not know the task, or denies access.
            GseUnavailable: No attempt had a response; the call may succeed later.
        """
        body: dict[str, Any] = {"task_id": task_id}
        if agents:
            body["agents"] = [each.to_id_fields() for each in agents]
        return await self._connection.call(RESULTS, body, partial(_parse_results, file=file))

    async def terminate(self, task_id: str, agents: Sequence[GseAgent]) -> None:
        """Have GSE terminate a transfer to these agents; later results show that it did. Raises like `get_results`."""
        if not agents:
            raise ValueError("no agent was named: GSE would accept that and terminate nothing. Name the unfinished.")
        body = {"task_id": task_id, "agents": [each.to_user_fields() for each in agents]}
        await self._connection.call(TERMINATE, body, _parse_task_id)

    async def get_agent_states(self, agent_ids: Sequence[str]) -> dict[str, int]:
        """Return the state of each agent that GSE reports (see `domain.transfers.gse`). Raises like `get_results`."""
        states: dict[str, int] = {}
        for start in range(0, len(agent_ids), AGENTS_PER_STATE_CALL):
            chunk = list(agent_ids[start : start + AGENTS_PER_STATE_CALL])
            states |= await self._connection.call(STATES, {"agent_id_list": chunk}, _parse_states)
        return states


def _parse_task_id(response: GseResponse) -> str:
    match response.get_data():
        case {"result": {"task_id": str(task_id)}} if task_id and task_id.isprintable():
            return task_id
        case _:
            # PostgreSQL stores no NUL: a shard that could not save such an id would retry until the deadline.
            raise response.build_malformed("a readable task id")


def _parse_results(response: GseResponse, file: FileLocation | None) -> GseResults:
    match response.get_data(pending_codes=PENDING_CODES):
        case {"result": list(entries)}:
            records = [GseRecord.parse(entry) for entry in entries]
        case None | {"result": None}:
            records = []
        case _:
            raise response.build_malformed("a list of results")
    if unread := records.count(None):
        log.get(__name__).warning("gse_records_unreadable", unreadable=unread, records=len(records))
    return GseResults.from_records(filter(None, records), file)


def _parse_states(response: GseResponse) -> dict[str, int]:
    states = {}
    match response.get_data():
        case list(entries):
            for entry in entries:
                match entry:
                    case {"bk_agent_id": str(agent_id), "status_code": int(state)}:
                        states[agent_id] = state
            return states
        case _:
            raise response.build_malformed("a list of agents")

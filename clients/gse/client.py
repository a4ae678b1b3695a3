"""The client of GSE's HTTP interface: begin a transfer, ask for results, terminate, and ask after agents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from clients.gse.answers import Answer
from clients.gse.connection import GseConnection
from domain.transfers.gse import FileLocation, GseAgent, GseRecord, GseResults, GseTransferRequest
from infra import log
from infra.settings import GseSettings

TRANSFER = "/api/v2/task/extensions/async_transfer_file"
RESULTS = "/api/v2/task/extensions/get_transfer_file_result"
TERMINATE = "/api/v2/task/extensions/async_terminate_transfer_file"
STATES = "/api/v2/cluster/list_agent_state"

AGENTS_PER_STATE_CALL = 1_000
NOTHING_YET_CODES = frozenset({1000115})
"""With such a code and no results GSE says that it has none yet."""


def _forget(_: str) -> None:
    """Note nothing."""


class GseClient:
    """Success is a 2xx answer whose code is there and 0; for a transfer also a task id. All else is a GseFailure."""

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
        """This worker's host, as GSE knows it."""
        return GseAgent(self._settings.source_agent_id, self._settings.source_container_id, self._settings.source_user)

    def source_place(self, cached: Path) -> FileLocation:
        """A cached file as GSE finds it: where the folder is mounted, it may have another name than here."""
        folder, seen_as = cached.parent.absolute(), self._settings.source_folder
        if seen_as:
            folder = Path(seen_as) / folder.relative_to(self._settings.cache_folder.absolute())
        return FileLocation(str(folder), cached.name)

    async def transfer(self, order: GseTransferRequest, note: Callable[[str], None] = _forget) -> str:
        """Begin a transfer; returns GSE's task id. It is asked for once: another try may send everything twice.

        Args:
            order: What to send.
            note: Is given the id in the same turn of the loop in which it is read.

        Raises:
            GseRefused: Nothing began, and asking again would not help.
            GseUnavailable: Nothing began; asking again may help.
            GseUnknown: It may have begun, under an id that nobody was told.
        """

        def read(answer: Answer) -> str:
            task_id = _task_id(answer)
            note(task_id)
            return task_id

        return await self._connection.call_once(TRANSFER, order.to_body(), read)

    async def results(
        self, task_id: str, agents: Collection[GseAgent] = (), file: FileLocation | None = None
    ) -> GseResults:
        """How far a transfer is, for these agents only (name the source, too, to learn of the upload), or for all.

        With what is brought where, records of other files are left out.

        Raises:
            GseRefused: GSE does not know the task, or us.
            GseUnavailable: No try had an answer; asking again may help.
        """
        body: dict[str, Any] = {"task_id": task_id}
        if agents:
            body["agents"] = [each.to_id_fields() for each in agents]
        return await self._connection.call(RESULTS, body, partial(_results, file=file))

    async def terminate(self, task_id: str, agents: Sequence[GseAgent]) -> None:
        """Ask GSE to give these agents up; their records tell later that it did. Raises as `results` does."""
        if not agents:
            raise ValueError("no agent was named: GSE would answer well and terminate nothing. Name the unfinished.")
        body = {"task_id": task_id, "agents": [each.to_user_fields() for each in agents]}
        await self._connection.call(TERMINATE, body, _task_id)

    async def agent_states(self, agent_ids: Sequence[str]) -> dict[str, int]:
        """The state of each agent that GSE tells of (see `domain.transfers.gse`). Raises as `results` does."""
        states: dict[str, int] = {}
        for start in range(0, len(agent_ids), AGENTS_PER_STATE_CALL):
            chunk = list(agent_ids[start : start + AGENTS_PER_STATE_CALL])
            states |= await self._connection.call(STATES, {"agent_id_list": chunk}, _states)
        return states


def _task_id(answer: Answer) -> str:
    match answer.data():
        case {"result": {"task_id": str(task_id)}} if task_id and task_id.isprintable():
            return task_id
        case _:
            # No table keeps NUL: a shard that could not write such an id down would try until the deadline.
            raise answer.malformed("a readable task id")


def _results(answer: Answer, file: FileLocation | None) -> GseResults:
    match answer.data(nothing_yet=NOTHING_YET_CODES):
        case {"result": list(entries)}:
            records = [GseRecord.parse(entry) for entry in entries]
        case None | {"result": None}:
            records = []
        case _:
            raise answer.malformed("a list of results")
    if unread := records.count(None):
        log.get(__name__).warning("gse_records_unread", unread=unread, records=len(records))
    return GseResults.from_records(filter(None, records), file)


def _states(answer: Answer) -> dict[str, int]:
    states = {}
    match answer.data():
        case list(entries):
            for entry in entries:
                match entry:
                    case {"bk_agent_id": str(agent_id), "status_code": int(state)}:
                        states[agent_id] = state
            return states
        case _:
            raise answer.malformed("a list of agents")

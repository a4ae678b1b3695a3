"""The board: where downloads stand. What is over stands in the catalogue; what runs, the engine is asked about."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from aiohttp import web
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api.downloads import responses
from api.downloads.responses import DownloadMemo, DownloadResponse
from domain.downloads import names
from domain.downloads.models import FetchProgress, Phase, State, Status, with_progress
from domain.faults import FaultRecord, Missing
from infra import metrics, temporal
from services.services import Services
from stores.downloads import catalogue
from stores.tables.downloads import Download

STATUS_CACHE_SECONDS = 0.5
"""For how long what the engine said is good enough: it is asked twice a second about a run, whoever wants to know."""

ENGINE_READS_MAX = 16
"""However many runs are watched, the engine has no more questions of ours to answer at once."""

RUNS_REMEMBERED_MAX = 10_000
"""Of how many runs it is kept how far they were seen; the one that was asked about least recently goes first."""


_TERMINATED_FAULT = FaultRecord(
    code="run_ended",
    message="The run was ended from outside, before the download was done.",
    hint="Start the download again; if nobody on your side knows why, ask the operator.",
)

DownloadKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """What the engine said of a run."""

    asked: DownloadMemo
    status: Status
    began: datetime


class RowsHighWaterMarks:
    """How many rows were told of each run's processing, so that a worker that died takes none of them back.

    What its fetchers said in heartbeats is lost with them, or until they are started again.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[DownloadKey, tuple[str, int, int]] = OrderedDict()

    def lift(self, key: DownloadKey, run_id: str, status: Status) -> Status:
        """The status with no fewer rows than were told before."""
        if status.state.final:
            self._seen.pop(key, None)
            return status
        before_run, before_processing, rows = self._seen.get(key, ("", 0, 0))
        is_same = (before_run, before_processing) == (run_id, status.processings)
        rows = max(rows, status.rows) if is_same else status.rows
        self._seen[key] = (run_id, status.processings, rows)
        self._seen.move_to_end(key)
        if len(self._seen) > RUNS_REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return status.model_copy(update={"rows": rows})


class StatusReader:
    """Answers where a download stands, to however many ask."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._looks: dict[DownloadKey, asyncio.Task[RunSnapshot]] = {}
        self._turns = asyncio.Semaphore(ENGINE_READS_MAX)
        self._heights = RowsHighWaterMarks()

    async def read(self, project_id: str, task_id: str) -> DownloadResponse:
        """Where it stands.

        Raises:
            Missing: The project has no such download.
        """
        row = await self.row(project_id, task_id)
        if row is not None and State(row.state).final:
            return responses.build_response_from_row(row)
        try:
            sight = await self._look(project_id, task_id)
        except Missing:
            if row is None:
                raise
            return responses.build_response_from_row(row)
        if sight.status.state.final:
            # It ended while we looked: only its row tells everything.
            row = await self.row(project_id, task_id)
            if row is not None and State(row.state).final:
                return responses.build_response_from_row(row)
        return responses.build_response_from_run(
            project_id, task_id, sight.asked, sight.status, row.created_at if row else sight.began
        )

    async def progress(self, project_id: str, before: DownloadResponse) -> DownloadResponse:
        """Where a download stands that ran a moment ago: the database is not asked unless it has ended."""
        sight = await self._look(project_id, before.task_id)
        if sight.status.state.final:
            return await self.read(project_id, before.task_id)
        return responses.build_response_from_run(
            project_id, before.task_id, sight.asked, sight.status, before.created_at
        )

    async def row(self, project_id: str, task_id: str) -> Download | None:
        """The download's row; there is none before it was first processed."""
        return await catalogue.find_download(self._database, project_id, task_id)

    def forget(self, project_id: str, task_id: str) -> None:
        """Look anew next time: we have just changed something."""
        self._looks.pop((project_id, task_id), None)

    async def _look(self, project_id: str, task_id: str) -> RunSnapshot:
        key = (project_id, task_id)
        look = self._looks.get(key)
        if look is None:
            look = self._looks[key] = asyncio.create_task(self._describe(project_id, task_id))
            look.add_done_callback(lambda done: self._keep_for_a_while(key, done))
        # Whoever stops waiting does not stop the look of the others.
        return await asyncio.shield(look)

    def _keep_for_a_while(self, key: DownloadKey, look: asyncio.Task[RunSnapshot]) -> None:
        def drop() -> None:
            if self._looks.get(key) is look:
                del self._looks[key]

        if look.cancelled() or look.exception():
            drop()
        else:
            asyncio.get_running_loop().call_later(STATUS_CACHE_SECONDS, drop)

    async def _describe(self, project_id: str, task_id: str) -> RunSnapshot:
        """The workflow's own word, and on top the rows that running fetchers reported."""
        handle = self._engine.get_workflow_handle(names.workflow_id(project_id, task_id))
        try:
            async with self._turns:
                metrics.LOOKS.inc()
                description = await handle.describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise build_not_found(task_id) from None
        status = await description.memo_value(names.STATUS_MEMO, type_hint=Status)
        beats = await temporal.read_heartbeats(self._engine, description, FetchProgress)
        # Also of a run that goes on in another one, the first stays the same.
        first_run_id = description.raw_description.workflow_execution_info.first_run_id
        told = _mark_terminated(with_progress(status, beats), description)
        return RunSnapshot(
            asked=await description.memo_value(names.ASKED_MEMO, type_hint=DownloadMemo),
            status=self._heights.lift((project_id, task_id), first_run_id, told),
            began=description.start_time,
        )


STATUS_READER = web.AppKey("downloads_status_reader", StatusReader)


def build_not_found(task_id: str) -> Missing:
    """What is told of an id that names nothing of this project."""
    return Missing("not_found", f"There is no download {task_id}.", "Check the id that POST /v1/downloads answered.")


def _mark_terminated(status: Status, description: WorkflowExecutionDescription) -> Status:
    """A run that was terminated could not say so itself."""
    over = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.FAILED)
    if status.state.final or description.status not in over:
        return status
    return status.model_copy(update={"state": State.FAILED, "phase": Phase.DONE, "fault": _TERMINATED_FAULT})

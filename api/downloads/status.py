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
from domain.downloads.models import DownloadPhase, DownloadState, DownloadStatus, FetchProgress, add_fetch_progress
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

    memo: DownloadMemo
    status: DownloadStatus
    started_at: datetime


class RowsHighWaterMarks:
    """How many rows were told of each run's processing, so that a worker that died takes none of them back.

    What its fetchers said in heartbeats is lost with them, or until they are started again.
    """

    def __init__(self) -> None:
        self._rows_by_run: OrderedDict[DownloadKey, tuple[str, int, int]] = OrderedDict()

    def apply(self, key: DownloadKey, run_id: str, status: DownloadStatus) -> DownloadStatus:
        """The status with no fewer rows than were told before."""
        if status.state.final:
            self._rows_by_run.pop(key, None)
            return status
        before_run, before_processing, rows = self._rows_by_run.get(key, ("", 0, 0))
        is_same = (before_run, before_processing) == (run_id, status.processings)
        rows = max(rows, status.rows) if is_same else status.rows
        self._rows_by_run[key] = (run_id, status.processings, rows)
        self._rows_by_run.move_to_end(key)
        if len(self._rows_by_run) > RUNS_REMEMBERED_MAX:
            self._rows_by_run.popitem(last=False)
        return status.model_copy(update={"rows": rows})


class StatusReader:
    """Answers where a download stands, to however many ask."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._reads: dict[DownloadKey, asyncio.Task[RunSnapshot]] = {}
        self._engine_slots = asyncio.Semaphore(ENGINE_READS_MAX)
        self._high_water_marks = RowsHighWaterMarks()

    async def read(self, project_id: str, task_id: str) -> DownloadResponse:
        """Where it stands.

        Raises:
            Missing: The project has no such download.
        """
        row = await self.read_row(project_id, task_id)
        if row is not None and DownloadState(row.state).final:
            return responses.build_response_from_row(row)
        try:
            snapshot = await self._read_run(project_id, task_id)
        except Missing:
            if row is None:
                raise
            return responses.build_response_from_row(row)
        if snapshot.status.state.final:
            # It ended while we looked: only its row tells everything.
            row = await self.read_row(project_id, task_id)
            if row is not None and DownloadState(row.state).final:
                return responses.build_response_from_row(row)
        return responses.build_response_from_run(
            project_id, task_id, snapshot.memo, snapshot.status, row.created_at if row else snapshot.started_at
        )

    async def read_progress(self, project_id: str, before: DownloadResponse) -> DownloadResponse:
        """Where a download stands that ran a moment ago: the database is not asked unless it has ended."""
        snapshot = await self._read_run(project_id, before.task_id)
        if snapshot.status.state.final:
            return await self.read(project_id, before.task_id)
        return responses.build_response_from_run(
            project_id, before.task_id, snapshot.memo, snapshot.status, before.created_at
        )

    async def read_row(self, project_id: str, task_id: str) -> Download | None:
        """The download's row; there is none before it was first processed."""
        return await catalogue.find_download(self._database, project_id, task_id)

    def invalidate(self, project_id: str, task_id: str) -> None:
        """Look anew next time: we have just changed something."""
        self._reads.pop((project_id, task_id), None)

    async def _read_run(self, project_id: str, task_id: str) -> RunSnapshot:
        key = (project_id, task_id)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.create_task(self._query_engine(project_id, task_id))
            read.add_done_callback(lambda done: self._expire_later(key, done))
        # Whoever stops waiting does not stop the look of the others.
        return await asyncio.shield(read)

    def _expire_later(self, key: DownloadKey, read: asyncio.Task[RunSnapshot]) -> None:
        def drop() -> None:
            if self._reads.get(key) is read:
                del self._reads[key]

        if read.cancelled() or read.exception():
            drop()
        else:
            asyncio.get_running_loop().call_later(STATUS_CACHE_SECONDS, drop)

    async def _query_engine(self, project_id: str, task_id: str) -> RunSnapshot:
        """The workflow's own word, and on top the rows that running fetchers reported."""
        handle = self._engine.get_workflow_handle(names.build_workflow_id(project_id, task_id))
        try:
            async with self._engine_slots:
                metrics.LOOKS.inc()
                description = await handle.describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise build_not_found(task_id) from None
        status = await description.memo_value(names.STATUS_MEMO, type_hint=DownloadStatus)
        heartbeats = await temporal.read_heartbeats(self._engine, description, FetchProgress)
        # Also of a run that goes on in another one, the first stays the same.
        first_run_id = description.raw_description.workflow_execution_info.first_run_id
        told = _mark_terminated(add_fetch_progress(status, heartbeats), description)
        return RunSnapshot(
            memo=await description.memo_value(names.REQUEST_MEMO, type_hint=DownloadMemo),
            status=self._high_water_marks.apply((project_id, task_id), first_run_id, told),
            started_at=description.start_time,
        )


STATUS_READER = web.AppKey("downloads_status_reader", StatusReader)


def build_not_found(task_id: str) -> Missing:
    """What is told of an id that names nothing of this project."""
    return Missing("not_found", f"There is no download {task_id}.", "Check the id that POST /v1/downloads answered.")


def _mark_terminated(status: DownloadStatus, description: WorkflowExecutionDescription) -> DownloadStatus:
    """A run that was terminated could not say so itself."""
    over = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.FAILED)
    if status.state.final or description.status not in over:
        return status
    return status.model_copy(
        update={"state": DownloadState.FAILED, "phase": DownloadPhase.DONE, "fault": _TERMINATED_FAULT}
    )

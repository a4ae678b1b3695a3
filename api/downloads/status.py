"""Reading the status of downloads: from the catalogue if they have ended, from the engine while they run."""

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
"""How long a status is cached, so that the engine is queried at most twice a second about a run."""

ENGINE_READS_MAX = 16
"""Concurrent queries to the engine, however many runs are watched."""

RUNS_REMEMBERED_MAX = 10_000
"""Runs whose rows are remembered; the least recently read run is evicted first."""


_TERMINATED_FAULT = FaultRecord(
    code="run_ended",
    message="The run was ended from outside, before the download was done.",
    hint="Start the download again; if you do not know why it was ended, ask the operator.",
)

DownloadKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """The answer of the engine about a run."""

    memo: DownloadMemo
    status: DownloadStatus
    started_at: datetime


class RowsHighWaterMarks:
    """Keeps the reported rows of a processing from decreasing when a worker dies.

    The heartbeats of its fetchers are lost with a worker until the fetchers run again.
    """

    def __init__(self) -> None:
        self._rows_by_run: OrderedDict[DownloadKey, tuple[str, int, int]] = OrderedDict()

    def apply(self, key: DownloadKey, run_id: str, status: DownloadStatus) -> DownloadStatus:
        """Return the status with at least as many rows as were reported before."""
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
    """Reads the status of downloads, and shares each query to the engine among concurrent callers."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._reads: dict[DownloadKey, asyncio.Task[RunSnapshot]] = {}
        self._engine_slots = asyncio.Semaphore(ENGINE_READS_MAX)
        self._high_water_marks = RowsHighWaterMarks()

    async def read(self, project_id: str, task_id: str) -> DownloadResponse:
        """Return the current status.

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
            # It ended during the query; only its row is complete.
            row = await self.read_row(project_id, task_id)
            if row is not None and DownloadState(row.state).final:
                return responses.build_response_from_row(row)
        return responses.build_response_from_run(
            project_id, task_id, snapshot.memo, snapshot.status, row.created_at if row else snapshot.started_at
        )

    async def read_progress(self, project_id: str, before: DownloadResponse) -> DownloadResponse:
        """Return the status of a download that was running a moment ago, without querying the database unless it has
        ended."""
        snapshot = await self._read_run(project_id, before.task_id)
        if snapshot.status.state.final:
            return await self.read(project_id, before.task_id)
        return responses.build_response_from_run(
            project_id, before.task_id, snapshot.memo, snapshot.status, before.created_at
        )

    async def read_row(self, project_id: str, task_id: str) -> Download | None:
        """Return the row of a download; None before it was first processed."""
        return await catalogue.find_download(self._database, project_id, task_id)

    def invalidate(self, project_id: str, task_id: str) -> None:
        """Drop the cached status, after a change by this process."""
        self._reads.pop((project_id, task_id), None)

    async def _read_run(self, project_id: str, task_id: str) -> RunSnapshot:
        key = (project_id, task_id)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.create_task(self._query_engine(project_id, task_id))
            read.add_done_callback(lambda done: self._expire_later(key, done))
        # The query is shared, so a cancelled caller must not cancel it.
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
        """Query the workflow's memo, and add the rows that running fetchers reported."""
        handle = self._engine.get_workflow_handle(names.build_workflow_id(project_id, task_id))
        try:
            async with self._engine_slots:
                metrics.STATUS_QUERIES.inc()
                description = await handle.describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise build_missing(task_id) from None
        status = await description.memo_value(names.STATUS_MEMO, type_hint=DownloadStatus)
        heartbeats = await temporal.read_heartbeats(self._engine, description, FetchProgress)
        # A run that continues as new keeps the id of its first run.
        first_run_id = description.raw_description.workflow_execution_info.first_run_id
        told = _mark_terminated(add_fetch_progress(status, heartbeats), description)
        return RunSnapshot(
            memo=await description.memo_value(names.REQUEST_MEMO, type_hint=DownloadMemo),
            status=self._high_water_marks.apply((project_id, task_id), first_run_id, told),
            started_at=description.start_time,
        )


STATUS_READER = web.AppKey("downloads_status_reader", StatusReader)


def build_missing(task_id: str) -> Missing:
    """Build the fault for an id that names no download of this project."""
    return Missing("not_found", f"There is no download {task_id}.", "Check the id that POST /v1/downloads answered.")


def _mark_terminated(status: DownloadStatus, description: WorkflowExecutionDescription) -> DownloadStatus:
    """Mark a run as failed that was terminated and could not report it."""
    over = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.FAILED)
    if status.state.final or description.status not in over:
        return status
    return status.model_copy(
        update={"state": DownloadState.FAILED, "phase": DownloadPhase.DONE, "fault": _TERMINATED_FAULT}
    )

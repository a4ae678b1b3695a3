"""Responses about downloads, and the reader of their status: from the row if one has ended, else from the engine."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime

from aiohttp import web
from pydantic import AwareDatetime, Field, computed_field
from temporalio.client import WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError

from api.http.models import Response
from domain.downloads import names
from domain.downloads.models import (
    DownloadPhase,
    DownloadSpec,
    DownloadState,
    DownloadStatus,
    DownloadTrouble,
    FileType,
    RangeFetcherProgress,
    StoredFile,
    add_rows_of_running_fetchers,
)
from domain.downloads.retries import RUN_ENDED_FAULT
from domain.faults import FaultRecord, Missing
from infra import metrics, outages, temporal
from services.services import Services
from stores.downloads import catalogue
from stores.tables.downloads import Download


class DownloadSummary(Response):
    """A download in a list; query it by its id for its progress."""

    task_id: str
    project_id: str
    state: DownloadState
    state_label: str = Field(description="the state in Chinese")
    type: FileType
    file_name: str
    operator_id: str | None
    source_hosts: list[str] = Field(description="hosts of its source URLs, without ports; none if the rows were sent")
    rows: int = Field(description="rows that the file has; 0 in lists while there is none")
    total: int | None = Field(description="rows that the source said there are; null until it did")
    bytes: int | None = Field(default=None, description="size of the file; null while there is none")
    files: int | None = Field(default=None, description="books in the zip, 1 of a file that is none; null before that")
    left_out: list[str] = Field(default=[], description="keys of the data that the template does not show")
    warnings: list[str] = Field(default=[], description="what a reader of the file should know of it")
    times_processed: int = Field(description="how often it was processed, the first time included")
    fault: FaultRecord | None = Field(default=None, description="why it failed, and what to do")
    created_at: AwareDatetime
    started_at: AwareDatetime | None = Field(default=None, description="when it was first processed")
    finished_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = Field(default=None, description="when the file goes")

    @computed_field(description="where Temporal shows it")  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def workflow_id(self) -> str:
        """The workflow that carries it out."""
        return names.build_download_workflow_id(self.project_id, self.task_id)


class DownloadResponse(DownloadSummary):
    """A download with its progress."""

    rows: int = Field(description="rows fetched so far, or that the file has")
    phase: DownloadPhase
    trouble: DownloadTrouble | None = Field(default=None, description="what is being tried again, while it is")
    fetchers: int | None = Field(default=None, description="how many fetch in parallel; null while nothing is fetched")
    rows_per_second: int | None = Field(default=None, description="on average since it began; null before that")


class DownloadMemo(Response):
    """What the engine keeps of a request beside its run, for responses before there is a row."""

    type: FileType
    file_name: str
    operator_id: str | None
    source_hosts: list[str] = Field(default=[])


def build_memo(spec: DownloadSpec) -> DownloadMemo:
    """Build the memo of a spec."""
    return DownloadMemo(
        type=spec.type, file_name=spec.file_name, operator_id=spec.operator_id, source_hosts=spec.source_hosts
    )


def build_response_from_row(row: Download) -> DownloadResponse:
    """Build the response about a download that has ended, or whose run the engine has forgotten."""
    state = _compute_state_with_expiry(row)
    return DownloadResponse(
        **_build_summary_fields(row, state),
        phase=DownloadPhase.DONE if state.is_final else DownloadPhase.WAITING,
        rows_per_second=_compute_rows_per_second(row.rows, row.started_at, row.finished_at),
    )


def build_summary_from_row(row: Download) -> DownloadSummary:
    """Build an entry of a list."""
    return DownloadSummary(**_build_summary_fields(row, _compute_state_with_expiry(row)))


def build_response_from_run(
    project_id: str, task_id: str, memo: DownloadMemo, status: DownloadStatus, created_at: datetime
) -> DownloadResponse:
    """Build the response about a download that runs or is about to run."""
    return DownloadResponse(
        task_id=task_id,
        project_id=project_id,
        state=status.state,
        state_label=status.state.chinese_label,
        type=memo.type,
        file_name=memo.file_name,
        operator_id=memo.operator_id,
        source_hosts=memo.source_hosts,
        phase=status.phase,
        rows=status.rows,
        total=status.total,
        fetchers=status.fetchers or None,
        times_processed=status.times_processed,
        fault=status.fault,
        trouble=status.trouble,
        created_at=created_at,
        started_at=status.started_at,
        rows_per_second=_compute_rows_per_second(status.rows, status.started_at, datetime.now(UTC)),
    )


def _build_summary_fields(row: Download, state: DownloadState) -> dict[str, object]:
    file = StoredFile.model_validate(row.file) if row.file else None
    return {
        "task_id": row.task_id,
        "project_id": row.project_id,
        "state": state,
        "state_label": state.chinese_label,
        "type": FileType(row.type),
        "file_name": row.file_name,
        "operator_id": row.operator_id,
        "source_hosts": row.source_hosts,
        "rows": row.rows or 0,
        "total": row.total_rows,
        "bytes": row.bytes,
        "files": file.files if file else None,
        "left_out": file.left_out if file else [],
        "warnings": file.warnings if file else [],
        "times_processed": row.processings,
        "fault": FaultRecord.model_validate(row.fault) if row.fault else None,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "expires_at": row.expires_at,
    }


def _compute_state_with_expiry(row: Download) -> DownloadState:
    """Return the state of a row; a file past its time counts as expired before housekeeping removes it."""
    state = DownloadState(row.state)
    is_over = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
    return DownloadState.EXPIRED if state is DownloadState.SUCCEEDED and is_over else state


def _compute_rows_per_second(rows: int | None, started_at: datetime | None, until: datetime | None) -> int | None:
    if rows is None or started_at is None or until is None or until <= started_at:
        return None
    return round(rows / (until - started_at).total_seconds())


STATUS_CACHE_SECONDS = 0.5
"""How long a status is cached, so that the engine is queried at most twice a second about a run."""

ENGINE_READS_MAX = 16
"""Concurrent queries to the engine, however many runs are watched."""

RUNS_REMEMBERED_MAX = 10_000
"""Runs whose rows are remembered; the least recently read run is evicted first."""


DownloadKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DownloadRunFromEngine:
    """The answer of the engine about a run."""

    memo: DownloadMemo
    status: DownloadStatus
    started_at: datetime


class HighestReportedRows:
    """Keeps the reported rows of a processing from decreasing when a worker dies.

    The heartbeats of its fetchers are lost with a worker until the fetchers run again.
    """

    def __init__(self) -> None:
        self._rows_by_run: OrderedDict[DownloadKey, tuple[str, int, int]] = OrderedDict()

    def raise_rows_to_highest_reported(self, key: DownloadKey, run_id: str, status: DownloadStatus) -> DownloadStatus:
        """Return the status with at least as many rows as were reported before."""
        if status.state.is_final:
            self._rows_by_run.pop(key, None)
            return status
        before_run, before_processing, rows = self._rows_by_run.get(key, ("", 0, 0))
        is_same = (before_run, before_processing) == (run_id, status.times_processed)
        rows = max(rows, status.rows) if is_same else status.rows
        self._rows_by_run[key] = (run_id, status.times_processed, rows)
        self._rows_by_run.move_to_end(key)
        if len(self._rows_by_run) > RUNS_REMEMBERED_MAX:
            self._rows_by_run.popitem(last=False)
        return status.model_copy(update={"rows": rows})


class DownloadStatusReader:
    """Reads the status of downloads, and shares each query to the engine among concurrent callers."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine
        self._reads: dict[DownloadKey, asyncio.Task[DownloadRunFromEngine]] = {}
        self._engine_slots = asyncio.Semaphore(ENGINE_READS_MAX)
        self._high_water_marks = HighestReportedRows()

    async def read_status(self, project_id: str, task_id: str) -> DownloadResponse:
        """Return the current status.

        Raises:
            Missing: The project has no such download.
        """
        row = await self.read_catalogue_row(project_id, task_id)
        if row is not None and DownloadState(row.state).is_final:
            return build_response_from_row(row)
        try:
            snapshot = await self._read_cached_or_query_run(project_id, task_id)
        except Missing:
            if row is None:
                raise
            return build_response_from_row(row)
        if snapshot.status.state.is_final:
            # It ended during the query; only its row is complete.
            row = await self.read_catalogue_row(project_id, task_id)
            if row is not None and DownloadState(row.state).is_final:
                return build_response_from_row(row)
        return build_response_from_run(
            project_id, task_id, snapshot.memo, snapshot.status, row.created_at if row else snapshot.started_at
        )

    async def read_status_while_running(self, project_id: str, previous: DownloadResponse) -> DownloadResponse:
        """Return the status of a download that was running a moment ago, without querying the database unless it has
        ended."""
        snapshot = await self._read_cached_or_query_run(project_id, previous.task_id)
        if snapshot.status.state.is_final:
            return await self.read_status(project_id, previous.task_id)
        return build_response_from_run(
            project_id, previous.task_id, snapshot.memo, snapshot.status, previous.created_at
        )

    async def read_catalogue_row(self, project_id: str, task_id: str) -> Download | None:
        """Return the row of a download; None if there is none yet."""
        return await catalogue.find_download(self._database, project_id, task_id)

    def forget_cached_status(self, project_id: str, task_id: str) -> None:
        """Drop the cached status, after a change by this process."""
        self._reads.pop((project_id, task_id), None)

    async def _read_cached_or_query_run(self, project_id: str, task_id: str) -> DownloadRunFromEngine:
        key = (project_id, task_id)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = asyncio.create_task(self._query_run_and_add_running_rows(project_id, task_id))
            read.add_done_callback(lambda done: self._schedule_cache_expiry(key, done))
        # The query is shared, so a cancelled caller must not cancel it.
        return await asyncio.shield(read)

    def _schedule_cache_expiry(self, key: DownloadKey, read: asyncio.Task[DownloadRunFromEngine]) -> None:
        def drop_cached_read() -> None:
            if self._reads.get(key) is read:
                del self._reads[key]

        if read.cancelled() or read.exception():
            drop_cached_read()
        else:
            asyncio.get_running_loop().call_later(STATUS_CACHE_SECONDS, drop_cached_read)

    async def _query_run_and_add_running_rows(self, project_id: str, task_id: str) -> DownloadRunFromEngine:
        """Query the workflow's memo, and add the rows that running fetchers reported."""
        handle = self._engine.get_workflow_handle(names.build_download_workflow_id(project_id, task_id))
        try:
            async with self._engine_slots:
                metrics.STATUS_QUERIES.inc()
                description = await handle.describe()
        except RPCError as error:
            if not outages.is_workflow_or_schedule_missing(error):
                raise
            raise build_missing_download_fault(task_id) from None
        status = await description.memo_value(names.STATUS_MEMO, type_hint=DownloadStatus)
        heartbeats = await temporal.list_heartbeat_details(self._engine, description, RangeFetcherProgress)
        # A run that continues as new keeps the id of its first run.
        first_run_id = description.raw_description.workflow_execution_info.first_run_id
        reported = _mark_failed_if_terminated(add_rows_of_running_fetchers(status, heartbeats), description)
        return DownloadRunFromEngine(
            memo=await description.memo_value(names.REQUEST_MEMO, type_hint=DownloadMemo),
            status=self._high_water_marks.raise_rows_to_highest_reported((project_id, task_id), first_run_id, reported),
            started_at=description.start_time,
        )


STATUS_READER = web.AppKey("downloads_status_reader", DownloadStatusReader)


def build_missing_download_fault(task_id: str) -> Missing:
    """Build the fault for an id that names no download of this project."""
    return Missing("not_found", f"There is no download {task_id}.", "Check the id that POST /v1/downloads answered.")


def _mark_failed_if_terminated(status: DownloadStatus, description: WorkflowExecutionDescription) -> DownloadStatus:
    """Mark a run as failed that was terminated and could not report it."""
    over = (WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT, WorkflowExecutionStatus.FAILED)
    if status.state.is_final or description.status not in over:
        return status
    return status.model_copy(
        update={"state": DownloadState.FAILED, "phase": DownloadPhase.DONE, "fault": RUN_ENDED_FAULT}
    )

"""Responses about a download: built from its row if it has ended, from the engine while it runs."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import AwareDatetime, Field, computed_field

from api.http.models import Response
from domain.downloads import names
from domain.downloads.models import (
    DownloadPhase,
    DownloadSpec,
    DownloadState,
    DownloadStatus,
    DownloadTrouble,
    FileType,
    StoredFile,
)
from domain.faults import FaultRecord
from stores.tables.downloads import Download


class DownloadSummary(Response):
    """A download in a list; query it by its id for its progress."""

    task_id: str
    project_id: str
    state: DownloadState
    label: str = Field(description="the state in Chinese")
    type: FileType
    file_name: str
    operator_id: str | None
    rows: int = Field(description="rows that the file has; 0 in lists while there is none")
    total: int | None = Field(description="rows that the source said there are; null until it did")
    bytes: int | None = Field(default=None, description="size of the file; null while there is none")
    files: int | None = Field(default=None, description="books in the zip, 1 of a file that is none; null before that")
    left_out: list[str] = Field(default=[], description="keys of the data that the template does not show")
    warnings: list[str] = Field(default=[], description="what a reader of the file should know of it")
    processings: int = Field(description="how often it was processed, the first time included")
    fault: FaultRecord | None = Field(default=None, description="why it failed, and what to do")
    created_at: AwareDatetime
    started_at: AwareDatetime | None = Field(default=None, description="when it was first processed")
    finished_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = Field(default=None, description="when the file goes")

    @computed_field(description="where Temporal shows it")  # type: ignore[prop-decorator] # mypy knows no decorated properties
    @property
    def workflow_id(self) -> str:
        """The workflow that carries it out."""
        return names.build_workflow_id(self.project_id, self.task_id)


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


def build_memo(spec: DownloadSpec) -> DownloadMemo:
    """Build the memo of a spec."""
    return DownloadMemo(type=spec.type, file_name=spec.file_name, operator_id=spec.operator_id)


def build_response_from_row(row: Download) -> DownloadResponse:
    """Build the response about a download that has ended, or whose run the engine has forgotten."""
    state = _state_of_row(row)
    return DownloadResponse(
        **_summary_fields(row, state),
        phase=DownloadPhase.DONE if state.final else DownloadPhase.WAITING,
        rows_per_second=_rows_per_second(row.rows, row.started_at, row.finished_at),
    )


def build_summary_from_row(row: Download) -> DownloadSummary:
    """Build an entry of a list."""
    return DownloadSummary(**_summary_fields(row, _state_of_row(row)))


def build_response_from_run(
    project_id: str, task_id: str, kept: DownloadMemo, status: DownloadStatus, created_at: datetime
) -> DownloadResponse:
    """Build the response about a download that runs or is about to run."""
    return DownloadResponse(
        task_id=task_id,
        project_id=project_id,
        state=status.state,
        label=status.state.label,
        type=kept.type,
        file_name=kept.file_name,
        operator_id=kept.operator_id,
        phase=status.phase,
        rows=status.rows,
        total=status.total,
        fetchers=status.fetchers or None,
        processings=status.processings,
        fault=status.fault,
        trouble=status.trouble,
        created_at=created_at,
        started_at=status.started_at,
        rows_per_second=_rows_per_second(status.rows, status.started_at, datetime.now(UTC)),
    )


def _summary_fields(row: Download, state: DownloadState) -> dict[str, object]:
    file = StoredFile.model_validate(row.file) if row.file else None
    return {
        "task_id": row.task_id,
        "project_id": row.project_id,
        "state": state,
        "label": state.label,
        "type": FileType(row.type),
        "file_name": row.file_name,
        "operator_id": row.operator_id,
        "rows": row.rows or 0,
        "total": row.total_rows,
        "bytes": row.bytes,
        "files": file.files if file else None,
        "left_out": file.left_out if file else [],
        "warnings": file.warnings if file else [],
        "processings": row.processings,
        "fault": FaultRecord.model_validate(row.fault) if row.fault else None,
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "expires_at": row.expires_at,
    }


def _state_of_row(row: Download) -> DownloadState:
    """Return the state of a row; a file past its time counts as expired before housekeeping removes it."""
    state = DownloadState(row.state)
    is_over = row.expires_at is not None and row.expires_at <= datetime.now(UTC)
    return DownloadState.EXPIRED if state is DownloadState.SUCCEEDED and is_over else state


def _rows_per_second(rows: int | None, started_at: datetime | None, until: datetime | None) -> int | None:
    if rows is None or started_at is None or until is None or until <= started_at:
        return None
    return round(rows / (until - started_at).total_seconds())

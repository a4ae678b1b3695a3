"""Models of a download: the checked request, states and progress, the file, and the payload of its webhook."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import BaseModel, JsonValue

from domain.faults import FaultRecord, StorableText
from domain.secrets import SealedText
from excel.template.models import WorkbookLayout

PAGE_SIZE_MIN: Final = 100
PAGE_SIZE_MAX: Final = 1_000
PAGE_SIZE_DEFAULT: Final = 500
EXPIRES_IN_SECONDS_DEFAULT: Final = 7 * 24 * 3600
MAX_EXEC_SECONDS_DEFAULT: Final = 3600
TASK_RETRIES_DEFAULT: Final = 3
SLICE_SECONDS_DEFAULT: Final = 10.0
RERUN_PAUSE_SECONDS_DEFAULT: Final = 5.0
RESUME_WINDOW_SECONDS_DEFAULT: Final = 300
FILE_MAX_BYTES_DEFAULT: Final = 10_000_000
FILE_MAX_ROWS_DEFAULT: Final = 800_000
FILE_NAME_MAX_BYTES: Final = 200

_UNSAFE_CHARACTERS = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')
WEBHOOK_LIST_MAX = 30
WEBHOOK_ENTRY_MAX_CHARACTERS = 200


class FileType(StrEnum):
    """The type of the file."""

    CSV = "csv"
    PARQUET = "parquet"
    EXCEL = "excel"


class TextEncoding(StrEnum):
    """The encoding of a CSV file."""

    UTF_8_BOM = "utf-8-bom"
    UTF_8 = "utf-8"
    GB18030 = "gb18030"


class NewColumnPolicy(StrEnum):
    """How to handle a key that no row of the first page has."""

    CLOSED = "closed"  # the download fails and names it
    OPEN = "open"  # it becomes one more column


class TableSource(BaseModel):
    """The source of one of several tables: an address, or rows that were sent along."""

    source_url: SealedText | None = None
    source_headers: SealedText | None = None
    inline_key: str | None = None


class SealedRequestValues(BaseModel):
    """The fields of a download's request with sealed values, which `haulage reseal` seals anew."""

    source_url: SealedText | None = None
    source_headers: SealedText | None = None
    callback: SealedText | None = None
    tables: list[TableSource] = []


class DownloadSpec(BaseModel):
    """What to export and how: a checked request, with its secrets sealed."""

    task_id: str
    project_id: str
    file_name: str
    created_at: datetime | None = None
    """When it was requested; None for a workflow that no request started."""
    source_url: SealedText | None = None
    source_headers: SealedText | None = None
    """A JSON object of header names and values."""
    inline_key: str | None = None
    """Object key of the rows that were sent with the request, instead of a source URL."""
    type: FileType = FileType.CSV
    operator_id: str | None = None
    source_hosts: list[str] = []
    """Names or addresses of the hosts of the source URLs, which are sealed."""
    page_size: int = PAGE_SIZE_DEFAULT
    callback: SealedText | None = None
    public_base: str = ""
    """Scheme and host of the API for links in webhooks."""
    encoding: TextEncoding = TextEncoding.UTF_8_BOM
    columns: NewColumnPolicy = NewColumnPolicy.CLOSED
    force_continue: bool = False
    first_page: int = 0
    """The number that the source gives to its first page: 0 or 1."""
    allow_repeats: bool = False
    """Whether two pages may have the same rows."""
    guard_formulas: bool = True
    time_zone: str = "UTC"
    drawing: WorkbookLayout | None = None
    """Layout of the workbook; only for Excel."""
    tables: list[TableSource] = []
    """The sources of a workbook of several tables, in the order of the drawing; then `source_url` and the like are
    empty."""
    table: int = 0
    """Number of the table that this spec is reduced to, by `build_table_spec`."""
    file_max_bytes: int = FILE_MAX_BYTES_DEFAULT
    """A larger workbook is split into several."""
    file_max_rows: int = FILE_MAX_ROWS_DEFAULT
    expires_in_seconds: int = EXPIRES_IN_SECONDS_DEFAULT
    max_exec_seconds: int = MAX_EXEC_SECONDS_DEFAULT
    max_task_retries: int = TASK_RETRIES_DEFAULT
    slice_seconds: float = SLICE_SECONDS_DEFAULT
    """Fairness among projects orders only waiting activities, so no activity fetches for longer than this."""
    rerun_pause_seconds: float = RERUN_PAUSE_SECONDS_DEFAULT
    resume_window_seconds: int = RESUME_WINDOW_SECONDS_DEFAULT

    @property
    def table_count(self) -> int:
        """Number of tables in the file."""
        return len(self.tables) or 1

    @property
    def timestamp_of_files_in_archive(self) -> datetime:
        """The timestamp of the files in an archive; it is the same at each attempt."""
        asked_at = self.created_at or datetime(1980, 1, 2, tzinfo=UTC)
        return asked_at.astimezone(ZoneInfo(self.time_zone))

    @property
    def inline_keys(self) -> list[str]:
        """Object keys of all rows that were sent with the request."""
        keys = [self.inline_key, *(table.inline_key for table in self.tables)]
        return [key for key in keys if key is not None]

    def build_table_spec(self, table: int) -> DownloadSpec:
        """Return a spec for fetching one table, without drawings, which may be long."""
        source: DownloadSpec | TableSource = self.tables[table] if self.tables else self
        return self.model_copy(
            update={
                "table": table,
                "tables": [],
                "drawing": None,
                "source_url": source.source_url,
                "source_headers": source.source_headers,
                "inline_key": source.inline_key,
            }
        )


def clean_file_name(name: str, extension: str) -> str:
    """Make a name safe for every file system and header, and keep it readable.

    Replaces control characters and separators, removes bidirectional marks and leading dots, cuts the name to the
    length that file systems allow, and sets the extension.
    """
    name = unicodedata.normalize("NFC", name).encode(errors="replace").decode()
    name = "".join("" if unicodedata.category(letter) in ("Cf", "Cs", "Co") else letter for letter in name)
    name = _UNSAFE_CHARACTERS.sub("_", name).strip(" ")
    stem = re.sub(rf"\.{re.escape(extension)}$", "", name, flags=re.IGNORECASE).strip(" .") or "download"
    room = FILE_NAME_MAX_BYTES - len(extension) - 1
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + f".{extension}"


# fmt: off
DownloadCause: TypeAlias = Literal[
    "address_denied", "archive_too_large", "excel_sheet_full", "excel_too_large", "excel_too_many_rows",
    "excel_uncovered_rows", "inline_rows_gone", "internal_error", "invalid_url", "max_exec_time", "run_ended",
    "source_bad_data", "source_bad_drawing", "source_bad_row", "source_bad_total", "source_columns_changing",
    "source_cut_off", "source_empty_page", "source_encoding", "source_endless", "source_first_page",
    "source_grouped", "source_new_column", "source_no_data", "source_no_keys", "source_no_row_head",
    "source_not_json", "source_not_object", "source_page_size", "source_pages_repeat", "source_refused",
    "source_status", "source_timeout", "source_too_large", "source_too_long", "source_too_many_columns",
    "source_total_changed", "source_unreachable",
]
# fmt: on
"""The code of the fault of a download that has failed."""


class DownloadState(StrEnum):
    """The state of a download."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """Whether the download has ended; a failed one may still be retried."""
        return self not in (DownloadState.PENDING, DownloadState.RUNNING)

    @property
    def chinese_label(self) -> str:
        """The state in Chinese, for operators."""
        return _STATE_LABELS[self]


_STATE_LABELS = {
    DownloadState.PENDING: "待处理",
    DownloadState.RUNNING: "处理中",
    DownloadState.SUCCEEDED: "处理成功",
    DownloadState.FAILED: "处理失败",
    DownloadState.CANCELLED: "已取消",
    DownloadState.EXPIRED: "已过期",
}


class DownloadPhase(StrEnum):
    """The phase of a running download."""

    WAITING = "waiting"
    PAUSING = "pausing"
    PROBING = "probing"
    FETCHING = "fetching"
    ASSEMBLING = "assembling"
    RENDERING = "rendering"
    CLEANING = "cleaning"
    DONE = "done"


class DownloadTrouble(BaseModel):
    """What a running download retries at present."""

    code: str
    message: str
    attempts: int
    """Attempts that failed so far."""
    next_attempt_at: datetime


class DownloadStatus(BaseModel):
    """The status of a workflow; the API adds the rows that running fetchers report."""

    state: DownloadState = DownloadState.PENDING
    phase: DownloadPhase = DownloadPhase.WAITING
    rows: int = 0
    under_way: dict[int, int] = {}
    """Rows of each unfinished range, which are part of `rows`; heartbeats of its fetcher may report more."""
    total: int | None = None
    fetchers: int = 0
    times_processed: int = 0
    started_at: datetime | None = None
    fault: FaultRecord | None = None
    trouble: DownloadTrouble | None = None
    """What is being retried, if anything is."""


class RangeFetcherProgress(BaseModel):
    """The progress of a fetcher, in its heartbeats and the details of its errors; a resume does not rely on it."""

    range: int
    rows: int
    smaller_page_size: int | None = None
    """The page size to continue with, if a page timed out and a single row did not."""


def add_rows_of_running_fetchers(status: DownloadStatus, reports: Sequence[RangeFetcherProgress]) -> DownloadStatus:
    """Add the rows that running fetchers report beyond those the workflow knows of their ranges."""
    more = sum(
        max(0, beat.rows - status.under_way.get(beat.range, 0)) for beat in reports if beat.range in status.under_way
    )
    return status.model_copy(update={"rows": status.rows + more})


class StoredFile(BaseModel):
    """A finished file: object key, contents, and how to verify it."""

    key: str
    name: str
    rows: int
    bytes: int
    etag: str
    content_type: str = ""
    """Empty in rows that were written before this field existed."""
    files: int = 1
    """Number of workbooks in the archive; 1 for a single file."""
    left_out: list[StorableText] = []
    """Keys of the data that the template does not use."""
    warnings: list[StorableText] = []


class DownloadResult(BaseModel):
    """The result of a download: a file, or the fault that prevented it."""

    state: DownloadState
    total: int | None = None
    file: StoredFile | None = None
    fault: FaultRecord | None = None


def build_webhook_payload(spec: DownloadSpec, outcome: DownloadResult, times_processed: int) -> dict[str, JsonValue]:
    """Build the payload of a webhook: enough to fetch the file, or to know why there is none."""
    file = outcome.file
    return {
        "task_id": spec.task_id,
        "project_id": spec.project_id,
        "operator_id": spec.operator_id,
        "state": outcome.state,
        "state_label": outcome.state.chinese_label,
        "file_name": file.name if file else spec.file_name,
        "download_url": f"{spec.public_base.rstrip('/')}/v1/downloads/{spec.task_id}/file" if file else None,
        "rows": file.rows if file else None,
        "bytes": file.bytes if file else None,
        "files": file.files if file else None,
        "left_out": _truncate_list_and_entries(file.left_out if file else []),
        "left_out_count": len(file.left_out) if file else 0,
        "warnings": _truncate_list_and_entries(file.warnings if file else []),
        "times_processed": times_processed,
        "fault": outcome.fault.model_dump(mode="json") if outcome.fault else None,
    }


def _truncate_list_and_entries(entries: Sequence[str]) -> list[JsonValue]:
    """Shorten a list to what a payload holds; `GET /v1/downloads/{task_id}` returns all of it."""
    return [entry[:WEBHOOK_ENTRY_MAX_CHARACTERS] for entry in entries[:WEBHOOK_LIST_MAX]]

"""Requests and responses of downloads. Fields that a newer API adds are ignored, so older clients keep working."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Final

from pydantic import BaseModel, ConfigDict


class State(StrEnum):
    """State of a download."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether the download has ended."""
        return self not in (State.PENDING, State.RUNNING)


class FileType(StrEnum):
    """Format of the file."""

    CSV = "csv"
    PARQUET = "parquet"
    EXCEL = "excel"

    @classmethod
    def from_file_name(cls, name: str) -> FileType | None:
        """Return the type that a name's extension stands for; None for an extension of no type."""
        return TYPES_BY_EXTENSION.get(PurePath(name).suffix.lower())


TYPES_BY_EXTENSION: Final[Mapping[str, FileType]] = {
    ".csv": FileType.CSV,
    ".parquet": FileType.PARQUET,
    ".xlsx": FileType.EXCEL,
}


class Encoding(StrEnum):
    """Encoding of a CSV file."""

    UTF_8_BOM = "utf-8-bom"
    UTF_8 = "utf-8"
    GB18030 = "gb18030"


class LateColumnPolicy(StrEnum):
    """Handling of a key that appears only after the first page: fail and name it, or add a column."""

    CLOSED = "closed"
    OPEN = "open"


class TableArrangement(StrEnum):
    """Layout of several tables of a workbook: below each other on one sheet, or each on a sheet of its own."""

    PAGE = "page"
    TAB = "tab"


class Align(StrEnum):
    """Horizontal alignment of cells."""

    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


Row = Mapping[str, Any]
Rows = Sequence[Row] | Mapping[str, Sequence[Row]]
"""Rows sent with the request instead of a source URL; a mapping holds the rows of each row head."""


class Sheet(BaseModel):
    """One table of a workbook, on a sheet of its own."""

    model_config = ConfigDict(extra="forbid")

    name: str | None = None
    source_url: str | None = None
    data: Rows | None = None
    headers: Mapping[str, str] | None = None
    """Headers of every request to this sheet's source."""
    title: str | None = None
    summary: str | None = None
    header: Any = None
    footer: Any = None
    template: Any = None


class DownloadRequest(BaseModel):
    """Request for a download. The API decides fields that are None; its reference explains every field."""

    model_config = ConfigDict(extra="forbid")

    source_url: str | Sequence[str | None] | None = None
    data: Rows | Sequence[Rows | None] | None = None
    headers: Mapping[str, str] | Sequence[Mapping[str, str] | None] | None = None
    """Headers of every request to the source. For sources on several hosts, a list with an entry for each table."""
    type: FileType | None = None
    """By default what the extension of `file_name` stands for, else CSV."""
    file_name: str | None = None
    operator_id: str | None = None
    page_size: int | None = None
    encoding: Encoding | None = None
    columns: LateColumnPolicy | None = None
    first_page: int | None = None
    force_continue: bool | None = None
    allow_repeats: bool | None = None
    formula_guard: bool | None = None
    time_zone: str | None = None
    expires_in: int | None = None
    max_exec_time: int | None = None
    callback: str | None = None
    title: str | Sequence[str | None] | None = None
    """This field and the following ones apply to Excel. With `multi`, a list has one entry for each table."""
    summary: str | Sequence[str | None] | None = None
    header: Any = None
    footer: Any = None
    template: Any = None
    multi: TableArrangement | None = None
    sheets: Sequence[Sheet] | None = None
    default_width: float | None = None
    default_height: float | None = None
    col_align: Align | None = None
    freeze: bool | None = None
    filter: bool | None = None

    def body(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON; the type of a file may come from its name."""
        kind = self.type or FileType.from_file_name(self.file_name or "")
        return self.model_copy(update={"type": kind}).model_dump(mode="json", exclude_none=True)


class Fault(BaseModel):
    """Why work failed, and what to do about it."""

    code: str
    message: str
    hint: str = ""

    @property
    def sentence(self) -> str:
        """Message and hint in one text."""
        return f"{self.message} {self.hint}".strip()


class Trouble(BaseModel):
    """What a running download tries again."""

    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    attempts: int
    """Attempts that failed so far."""
    next_attempt_at: datetime

    def __str__(self) -> str:
        return (
            f"{self.message} After {self.attempts} {'attempt' if self.attempts == 1 else 'attempts'}; "
            f"the next is at {self.next_attempt_at.astimezone(UTC):%H:%M:%S} UTC."
        )


class Download(BaseModel):
    """A download, as of one response."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    state: State
    phase: str = ""
    rows: int = 0
    total: int | None = None
    file_name: str
    source_hosts: tuple[str, ...] = ()
    bytes: int | None = None
    files: int | None = None
    """Number of workbooks in the file, which is a zip if there are several."""
    left_out: tuple[str, ...] = ()
    """Keys of the data that the template does not contain."""
    warnings: tuple[str, ...] = ()
    fault: Fault | None = None
    trouble: Trouble | None = None
    """What is tried again, while it is; lists do not have it."""
    created_at: datetime
    finished_at: datetime | None = None
    expires_at: datetime | None = None

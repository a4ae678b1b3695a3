"""What a business system asks for, as the workflow carries it."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from domain.sealed import Sealed
from excel.template.drawing import Drawing

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

_UNSAFE_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]')


class FileType(StrEnum):
    """The kinds of file a download can become."""

    CSV = "csv"
    PARQUET = "parquet"
    EXCEL = "excel"


class Encoding(StrEnum):
    """How the text of a CSV file is written."""

    UTF_8_BOM = "utf-8-bom"
    UTF_8 = "utf-8"
    GB18030 = "gb18030"


class Columns(StrEnum):
    """What becomes of a key that no row of the first page has."""

    CLOSED = "closed"  # the download fails and names it
    OPEN = "open"  # it becomes one more column


class TableSource(BaseModel):
    """Where the rows of one of several tables come from: one of the two."""

    source_url: Sealed | None = None
    source_headers: Sealed | None = None
    inline_key: str | None = None


class DownloadOrder(BaseModel):
    """The workflow's argument: a checked request, its secrets sealed."""

    task_id: str
    project_id: str
    file_name: str
    created_at: datetime | None = None
    """When it was asked for; a workflow that was started by hand does not say."""
    source_url: Sealed | None = None
    source_headers: Sealed | None = None
    """A JSON object of header names and values."""
    inline_key: str | None = None
    """Where the API put the rows that came with the request, instead of a source URL."""
    type: FileType = FileType.CSV
    operator_id: str | None = None
    page_size: int = PAGE_SIZE_DEFAULT
    callback: Sealed | None = None
    public_base: str = ""
    """Scheme and host under which callers know us, for links in what they are told."""
    encoding: Encoding = Encoding.UTF_8_BOM
    columns: Columns = Columns.CLOSED
    force_continue: bool = False
    first_page: int = 0
    """What the source calls its first page."""
    allow_repeats: bool = False
    """Whether two pages may have the same rows."""
    guard_formulas: bool = True
    time_zone: str = "UTC"
    drawing: Drawing | None = None
    """How the book looks; only for Excel."""
    tables: list[TableSource] = []
    """The sources of a book of several tables, in the order of the drawing; then the order has none of its own."""
    table: int = 0
    """Which of its tables an order is about that was made for one of them."""
    file_max_bytes: int = FILE_MAX_BYTES_DEFAULT
    """A spreadsheet that would be larger becomes several."""
    file_max_rows: int = FILE_MAX_ROWS_DEFAULT
    expires_in_seconds: int = EXPIRES_IN_SECONDS_DEFAULT
    max_exec_seconds: int = MAX_EXEC_SECONDS_DEFAULT
    max_task_retries: int = TASK_RETRIES_DEFAULT
    slice_seconds: float = SLICE_SECONDS_DEFAULT
    """Fairness among projects orders only what waits, so no fetcher keeps its place for longer than this."""
    rerun_pause_seconds: float = RERUN_PAUSE_SECONDS_DEFAULT
    resume_window_seconds: int = RESUME_WINDOW_SECONDS_DEFAULT

    @property
    def table_count(self) -> int:
        """How many tables the file has."""
        return len(self.tables) or 1

    @property
    def archived_at(self) -> datetime:
        """The time that the files of an archive have: the same however often it is made."""
        asked_at = self.created_at or datetime(1980, 1, 2, tzinfo=UTC)
        return asked_at.astimezone(ZoneInfo(self.time_zone))

    @property
    def inline_keys(self) -> list[str]:
        """Where rows lie that came with the request."""
        keys = [self.inline_key, *(table.inline_key for table in self.tables)]
        return [key for key in keys if key is not None]

    def for_table(self, table: int) -> DownloadOrder:
        """What fetching one table needs of the order; drawings stay behind, for they may be long."""
        source: DownloadOrder | TableSource = self.tables[table] if self.tables else self
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
    """Make a name safe for every file system and header without changing what people read in it.

    Directions, control characters and separators are replaced, leading dots dropped, the length cut to what file
    systems take, and the extension is ours.
    """
    name = unicodedata.normalize("NFC", name).encode(errors="replace").decode()
    name = "".join("" if unicodedata.category(letter) in ("Cf", "Cs", "Co") else letter for letter in name)
    name = _UNSAFE_IN_NAMES.sub("_", name).strip(" ")
    stem = re.sub(rf"\.{re.escape(extension)}$", "", name, flags=re.IGNORECASE).strip(" .") or "download"
    room = FILE_NAME_MAX_BYTES - len(extension) - 1
    return stem.encode()[:room].decode(errors="ignore").rstrip(" .") + f".{extension}"

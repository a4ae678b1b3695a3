"""What a business system may ask for: every field, its bounds, and the sentence where they are crossed."""

from __future__ import annotations

from pydantic import Field

from api.downloads.excel import ExcelRequest
from api.downloads.fields import Callback, Data, HeadersOfSources, OperatorId, TimeZone, Urls
from api.http.models import Request
from domain.downloads.models import (
    EXPIRES_IN_SECONDS_DEFAULT,
    MAX_EXEC_SECONDS_DEFAULT,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    Columns,
    Encoding,
    FileType,
)

EXPIRES_IN_MIN_SECONDS = 60
EXPIRES_IN_MAX_SECONDS = 30 * 24 * 3600
MAX_EXEC_MAX_SECONDS = 24 * 3600


class Export(Request):
    """What to export, from where, and into what."""

    source_url: Urls | None = Field(
        default=None, description="asked as it is, with `page` and `page_size` added; or send `data`"
    )
    data: Data | None = Field(
        default=None,
        description="the rows themselves, instead of a `source_url`; an object holds the rows of each row head",
    )
    headers: HeadersOfSources | None = Field(
        default=None,
        description="sent with every request to the source; kept encrypted. Sources at several hosts have an array "
        "with an entry for each table",
    )
    page_size: int = Field(
        default=PAGE_SIZE_DEFAULT,
        ge=PAGE_SIZE_MIN,
        le=PAGE_SIZE_MAX,
        description="rows asked for at a time; of no matter beside `data`",
    )
    first_page: int = Field(default=0, ge=0, le=1, description="what the source calls its first page")
    force_continue: bool = Field(
        default=False,
        description="pages may hold fewer rows than asked for, and all of them fewer than the total: the source "
        "filters after it has paged; of no matter beside `data`",
    )
    allow_repeats: bool = Field(default=False, description="two pages may have the same rows")
    columns: Columns = Field(
        default=Columns.CLOSED, description="whether a key that comes up late is an error or one more column"
    )
    type: FileType = FileType.CSV
    file_name: str | None = Field(default=None, max_length=200, description="by default date, time and random letters")
    encoding: Encoding = Field(default=Encoding.UTF_8_BOM, description="of the text of a CSV file")
    formula_guard: bool = Field(
        default=True, description="put ' before text in CSV that a spreadsheet would take for a formula"
    )
    time_zone: TimeZone = Field(default="UTC", description="IANA name, for dates in spreadsheets")
    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    operator_id: OperatorId | None = Field(default=None, description="who asked for it, on your side")
    callback: Callback | None = Field(default=None, description="told when the download ends, by a signed webhook")
    expires_in: int = Field(
        default=EXPIRES_IN_SECONDS_DEFAULT,
        ge=EXPIRES_IN_MIN_SECONDS,
        le=EXPIRES_IN_MAX_SECONDS,
        description="how many seconds the file is kept",
    )
    max_exec_time: int = Field(
        default=MAX_EXEC_SECONDS_DEFAULT,
        ge=1,
        le=MAX_EXEC_MAX_SECONDS,
        description="a download that is not done after so many seconds fails",
    )


class NewDownload(ExcelRequest, Export):
    """What to export, from where, and into what; what only Excel files have comes last."""

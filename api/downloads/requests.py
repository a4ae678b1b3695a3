"""Bodies of requests: their fields, the bounds of each, and the message if a bound is exceeded."""

from __future__ import annotations

import re
import zoneinfo
from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from api.http import validation
from api.http.models import Request
from domain.downloads.models import (
    EXPIRES_IN_SECONDS_DEFAULT,
    MAX_EXEC_SECONDS_DEFAULT,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
    PAGE_SIZE_MIN,
    FileType,
    NewColumnPolicy,
    TextEncoding,
)
from excel.template.models import HorizontalAlign, TablesOnOneSheetOrTabs
from excel.template.reading import SHEET_NAME_MAX_UNITS

URL_MAX_CHARACTERS = 4_000
ROWS_MAX = 100_000
TABLES_MAX = 20
WIDTH_MAX_CHARACTERS = 255
HEIGHT_MAX_POINTS = 409
_HEADER = "names and values above the table: an object, or an array of objects as its rows"
_FOOTER = "below the table: a text, which may hold HTML, or names and values like the header"
_TEMPLATE = "tree of column heads and row heads; a template that the source answers wins"
EXPIRES_IN_MIN_SECONDS = 60
EXPIRES_IN_MAX_SECONDS = 30 * 24 * 3600
MAX_EXEC_MAX_SECONDS = 24 * 3600
HEADERS_MAX_CHARACTERS = 16_000

_HEADER_NAME = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]{0,4000}")
# Headers that HTTP uses between two hops, or that we set: a caller who sets them could smuggle or break requests.
_OUR_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)


def _require_known_zone(name: str) -> str:
    if name not in _list_zone_names():
        raise ValueError(f"“{name[:60]}” is no IANA time zone; send one like Asia/Shanghai.")
    return name


@cache
def _list_zone_names() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _choose_table_union_branch(value: Any) -> str:
    return validation.build_union_branch_name(1 if isinstance(value, dict) else 0)


def _choose_data_union_branch(value: Any) -> str:
    is_tables = isinstance(value, list) and not all(isinstance(item, dict) for item in value)
    return (
        validation.build_union_branch_name(2)
        if is_tables and all(map(_is_table_data, value))
        else _choose_table_union_branch(value)
    )


def _is_table_data(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(rows, list) for rows in value.values())
    return value is None or isinstance(value, list)


def _validate_source_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"“{name[:60]}” is no name of a header; use 1–100 letters, digits and hyphens.")
        if name.lower() in _OUR_HEADERS:
            raise ValueError(f"{name} cannot be set: HTTP or we ourselves decide it. Remove it.")
        if not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            raise ValueError(
                f"the value of {name} is not 0–4000 printable ASCII characters without spaces around; correct it."
            )
    if len({name.lower() for name in headers}) < len(headers):
        raise ValueError("a name comes twice, in different cases; send it once.")
    length = sum(len(name) + len(value) for name, value in headers.items())
    if length > HEADERS_MAX_CHARACTERS:
        raise ValueError(f"they have {length:,} characters in all; send {HEADERS_MAX_CHARACTERS:,} or less.")
    return headers


def _convert_number_to_text(value: Any) -> Any:
    """Convert a number to text, since many systems number their users."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _convert_empty_text_to_none(value: Any) -> Any:
    """Convert an empty text to None, since many systems send one for a missing value."""
    return None if value == "" else value


Title = Annotated[str, Field(max_length=200)]
Summary = Annotated[str, Field(max_length=8_000)]
Url = Annotated[str, Field(min_length=1, max_length=URL_MAX_CHARACTERS)]
_Key = Annotated[str, Field(max_length=1_000)]
Row = Annotated[dict[_Key, JsonValue], Field(max_length=2_000)]
Rows = Annotated[list[Row], Field(max_length=ROWS_MAX)]
Groups = Annotated[dict[_Key, Rows], Field(max_length=ROWS_MAX)]
_ForEach = Field(min_length=1, max_length=TABLES_MAX)
# The number of tables is checked together with all other fields of tables.
_DescribedForEach = Field(json_schema_extra={"minItems": 1, "maxItems": TABLES_MAX})
Titles = Annotated[
    Annotated[Title, validation.build_union_branch_tag(0)]
    | Annotated[list[Title | None], _ForEach, validation.build_union_branch_tag(1)],
    validation.AnyOfDiscriminator(validation.choose_single_or_list_branch),
]
Summaries = Annotated[
    Annotated[Summary, validation.build_union_branch_tag(0)]
    | Annotated[list[Summary | None], _ForEach, validation.build_union_branch_tag(1)],
    validation.AnyOfDiscriminator(validation.choose_single_or_list_branch),
]
Urls = Annotated[
    Annotated[Url, validation.build_union_branch_tag(0)]
    | Annotated[list[Url | None], _ForEach, validation.build_union_branch_tag(1)],
    validation.AnyOfDiscriminator(validation.choose_single_or_list_branch),
]
Headers = Annotated[
    dict[str, Annotated[str, Field(max_length=4_000)]], Field(max_length=50), AfterValidator(_validate_source_headers)
]
HeadersOfSources = Annotated[
    Annotated[Headers, validation.build_union_branch_tag(0)]
    | Annotated[list[Headers | None], _ForEach, validation.build_union_branch_tag(1)],
    validation.AnyOfDiscriminator(validation.choose_single_or_list_branch),
]
TimeZone = Annotated[str, Field(max_length=100), AfterValidator(_require_known_zone)]
OperatorId = Annotated[str, Field(max_length=64), BeforeValidator(_convert_number_to_text)]
Callback = Annotated[Url | None, BeforeValidator(_convert_empty_text_to_none)]
TableData = Annotated[
    Annotated[Rows, validation.build_union_branch_tag(0)] | Annotated[Groups, validation.build_union_branch_tag(1)],
    validation.AnyOfDiscriminator(_choose_table_union_branch),
]
"""The rows of a table, or the rows of each of its row heads."""
Data = Annotated[
    Annotated[Rows, validation.build_union_branch_tag(0)]
    | Annotated[Groups, validation.build_union_branch_tag(1)]
    | Annotated[list[TableData | None], _DescribedForEach, validation.build_union_branch_tag(2)],
    validation.AnyOfDiscriminator(_choose_data_union_branch),
]
"""One value for all tables, or an array with one for each."""


class BookOptions(Request):
    """Options that apply to all tables of a book."""

    default_width: Annotated[float, Field(ge=1, le=WIDTH_MAX_CHARACTERS)] | None = Field(
        default=None, description="for columns whose template has none, in characters; by default as the data requires"
    )
    default_height: Annotated[float, Field(ge=1, le=HEIGHT_MAX_POINTS)] | None = Field(
        default=None, description="for rows of data whose template has none, in points"
    )
    col_align: HorizontalAlign | None = Field(
        default=None, description="for columns whose template has none; by default `center`"
    )
    freeze: bool = Field(default=True, description="keep the heads in sight, where a sheet has a single table")
    filter: bool = Field(default=True, description="put a filter on the heads, where a sheet has a single table")


class TableTextsAndTemplateFields(Request):
    """The texts and the template around one table."""

    title: Title | None = Field(default=None, description="above the table, large")
    summary: Summary | None = Field(default=None, description="below the title; may hold HTML")
    header: JsonValue = Field(default=None, description=_HEADER)
    footer: JsonValue = Field(default=None, description=_FOOTER)
    template: JsonValue = Field(default=None, description=_TEMPLATE)


class TableOnOwnSheetRequest(TableTextsAndTemplateFields, title="SheetRequest"):
    """One table on a sheet of its own, with its own source or rows."""

    __qualname__ = "SheetRequest"  # its name in the OpenAPI document

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=SHEET_NAME_MAX_UNITS,
        description="without `[]:*?/\\` and unlike the others; by default Sheet1, Sheet2, …",
    )
    source_url: Url | None = None
    headers: Headers | None = Field(default=None, description="sent with every request to this source; kept encrypted")
    data: TableData | None = None


class ExcelRequest(BookOptions):
    """Fields for Excel; other file types accept and ignore them."""

    title: Titles | None = Field(default=None, description="above the table, large")
    summary: Summaries | None = Field(default=None, description="below the title; may hold HTML")
    header: JsonValue = Field(default=None, description=_HEADER)
    footer: JsonValue = Field(default=None, description=_FOOTER)
    template: JsonValue = Field(default=None, description=_TEMPLATE)
    multi: TablesOnOneSheetOrTabs | None = Field(
        default=None,
        description="several tables, one under another on a `page` or each on a `tab`: title, summary, header, footer, "
        "template, source_url and data are then arrays with one entry for each, or one value for all",
    )
    sheets: Annotated[list[TableOnOwnSheetRequest], Field(min_length=1, max_length=TABLES_MAX)] | None = Field(
        default=None, description="several tables, each on a sheet of its own; instead of `multi`"
    )


class ExportRequest(Request):
    """What to export, from which source, and to which type of file."""

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
    columns: NewColumnPolicy = Field(
        default=NewColumnPolicy.CLOSED, description="whether a key that comes up late is an error or one more column"
    )
    type: FileType = FileType.CSV
    file_name: str | None = Field(default=None, max_length=200, description="by default date, time and random letters")
    encoding: TextEncoding = Field(default=TextEncoding.UTF_8_BOM, description="of the text of a CSV file")
    formula_guard: bool = Field(
        default=True, description="put ' before text in CSV that a spreadsheet would take for a formula"
    )
    time_zone: TimeZone = Field(default="UTC", description="IANA name, for dates in spreadsheets")
    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    operator_id: OperatorId | None = Field(default=None, description="who asked for it, on your side")
    callback: Callback | None = Field(default=None, description="receives a signed webhook when the download ends")
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
        description="seconds after which an unfinished download fails",
    )


class DownloadRequest(ExcelRequest, ExportRequest):
    """The body of a new download; the fields for Excel come last."""

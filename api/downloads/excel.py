"""The Excel part of a request: what stands around a table, and how several of them share a book."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from api.downloads.fields import TABLES_MAX, Summaries, Summary, TableData, Title, Titles, Url
from api.downloads.headers import Headers
from api.http.models import Request
from excel.template.checking import SHEET_NAME_MAX_UNITS
from excel.template.models import Align, TableArrangement

WIDTH_MAX_CHARACTERS = 255
HEIGHT_MAX_POINTS = 409

_HEADER = "names and values above the table: an object, or an array of objects as its rows"
_FOOTER = "below the table: a text, which may hold HTML, or names and values like the header"
_TEMPLATE = "tree of column heads and row heads; a template that the source answers wins"


class Looks(Request):
    """What holds for all tables of a book."""

    default_width: Annotated[float, Field(ge=1, le=WIDTH_MAX_CHARACTERS)] | None = Field(
        default=None, description="of columns whose template says none, in characters; by default what the data needs"
    )
    default_height: Annotated[float, Field(ge=1, le=HEIGHT_MAX_POINTS)] | None = Field(
        default=None, description="of rows of data whose template says none, in points"
    )
    col_align: Align | None = Field(
        default=None, description="of columns whose template says none; by default `center`"
    )
    freeze: bool = Field(default=True, description="keep the heads in sight, where a sheet has a single table")
    filter: bool = Field(default=True, description="put a filter on the heads, where a sheet has a single table")


class TableRegions(Request):
    """What stands around one table."""

    title: Title | None = Field(default=None, description="above the table, large")
    summary: Summary | None = Field(default=None, description="below the title; may hold HTML")
    header: JsonValue = Field(default=None, description=_HEADER)
    footer: JsonValue = Field(default=None, description=_FOOTER)
    template: JsonValue = Field(default=None, description=_TEMPLATE)


class SheetRequest(TableRegions):
    """One table on a sheet of its own, with its own source or rows."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=SHEET_NAME_MAX_UNITS,
        description="without `[]:*?/\\` and unlike the others; by default Sheet1, Sheet2, …",
    )
    source_url: Url | None = None
    headers: Headers | None = Field(default=None, description="sent with every request to this source; kept encrypted")
    data: TableData | None = None


class ExcelRequest(Looks):
    """What only Excel files have; other types take it and do without."""

    title: Titles | None = Field(default=None, description="above the table, large")
    summary: Summaries | None = Field(default=None, description="below the title; may hold HTML")
    header: JsonValue = Field(default=None, description=_HEADER)
    footer: JsonValue = Field(default=None, description=_FOOTER)
    template: JsonValue = Field(default=None, description=_TEMPLATE)
    multi: TableArrangement | None = Field(
        default=None,
        description="several tables, one under another on a `page` or each on a `tab`: title, summary, header, footer, "
        "template, source_url and data are then arrays with one entry for each, or one value for all",
    )
    sheets: Annotated[list[SheetRequest], Field(min_length=1, max_length=TABLES_MAX)] | None = Field(
        default=None, description="several tables, each on a sheet of its own; instead of `multi`"
    )

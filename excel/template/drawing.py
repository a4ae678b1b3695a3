"""Drawing: what a request, and the source's first answer, say about how the book looks; not yet interpreted."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, JsonValue

from excel.template.style import Align


class Multi(StrEnum):
    """Where several tables of one book stand."""

    PAGE = "page"  # one under another on one sheet
    TAB = "tab"  # each on a sheet of its own


class TableDrawing(BaseModel):
    """The regions of one table. Texts may hold HTML; header and footer are pairs, the footer may be a text, too."""

    sheet: str | None = None
    """The name of its sheet, if it has one of its own."""
    title: str | None = None
    summary: str | None = None
    header: JsonValue = None
    footer: JsonValue = None
    template: JsonValue = None


class Drawing(BaseModel):
    """How a book looks."""

    tables: list[TableDrawing] = [TableDrawing()]
    multi: Multi = Multi.TAB
    width: float | None = None
    """Of all columns that do not say their own, in characters; fitted to the data by default."""
    height: float | None = None
    """Of all rows of data whose columns do not say one, in points."""
    align: Align | None = None
    """Of all columns that do not say their own; centred by default."""
    freeze: bool = True
    """Whether the heads stay in sight when one scrolls (single tables only)."""
    filter: bool = True
    """Whether the heads have a filter (single tables only)."""

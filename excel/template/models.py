"""Models: how a workbook looks: cell styles, the regions of tables, and the trees of column and row heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from pydantic import BaseModel, JsonValue

from excel.template.conditions import Condition

HEAD_COLOR: Final = "DFDFDF"
NAMED_COLORS: Final = {
    "black": "000000",
    "white": "FFFFFF",
    "red": "FF0000",
    "green": "008000",
    "blue": "0000FF",
    "yellow": "FFFF00",
    "cyan": "00FFFF",
}


class HorizontalAlign(StrEnum):
    """Horizontal alignment of a cell."""

    LEFT = "left"
    CENTER = "center"
    RIGHT = "right"


class VerticalAlign(StrEnum):
    """Vertical alignment of a cell."""

    TOP = "top"
    MIDDLE = "middle"
    BOTTOM = "bottom"


@dataclass(frozen=True)
class CellStyle:
    """The style of cells. Equal styles are one style of the workbook; colours are six hexadecimal digits."""

    bold: bool = False
    color: str | None = None
    bg_color: str | None = None
    size: float | None = None
    align: HorizontalAlign = HorizontalAlign.CENTER
    v_align: VerticalAlign = VerticalAlign.MIDDLE
    number_format: str | None = None
    """As Excel writes it, e.g. `#,##0.00` or `yyyy-mm-dd`; `@` is text."""
    border: bool = False
    wrap: bool = False
    link: bool = False


class TablesOnOneSheetOrTabs(StrEnum):
    """How several tables of one workbook are arranged."""

    PAGE = "page"  # one under another on one sheet
    TAB = "tab"  # each on a sheet of its own


class TableTextsAndTemplate(BaseModel):
    """The regions of one table. Texts may hold HTML; header and footer are pairs, the footer may also be a text."""

    sheet: str | None = None
    """The name of its sheet, if it has one of its own."""
    title: str | None = None
    summary: str | None = None
    header: JsonValue = None
    footer: JsonValue = None
    template: JsonValue = None


class WorkbookLayout(BaseModel):
    """How a workbook looks."""

    tables: list[TableTextsAndTemplate] = [TableTextsAndTemplate()]
    multi: TablesOnOneSheetOrTabs = TablesOnOneSheetOrTabs.TAB
    width: float | None = None
    """Of columns without a width of their own, in characters; fitted to the data by default."""
    height: float | None = None
    """Of rows of data whose columns have no height, in points."""
    align: HorizontalAlign | None = None
    """Of columns without an alignment of their own; centred by default."""
    freeze: bool = True
    """Whether heads stay visible when the sheet is scrolled (single tables only)."""
    filter: bool = True
    """Whether the heads have a filter (single tables only)."""


AUTOMATIC_WIDTH: Final = -1.0
"""The width that means fitted to the data, whatever the group or the request say."""
ROW_HEAD_NAMES: Final = ("__row__", "_row_header", "_row_header_", "_row_head_")


class CellKind(StrEnum):
    """What the cells of a column are read as."""

    AUTO = "auto"  # by each cell: numbers, dates with a zone, booleans, text
    TEXT = "text"
    NUMBER = "number"
    DATE = "date"
    DATETIME = "datetime"
    BOOLEAN = "boolean"
    RICH = "rich"  # HTML in cells
    LINK = "link"
    FORMULA = "formula"


class ChartKind(StrEnum):
    """The kinds of charts."""

    LINE = "line"
    COLUMN = "column"
    BAR = "bar"
    PIE = "pie"


@dataclass(frozen=True)
class ConditionalColorsAndBold:
    """What a condition changes in the cells that meet it."""

    color: str | None = None
    bold: bool | None = None
    bg_color: str | None = None


@dataclass(frozen=True)
class ConditionalStyleRule:
    """One conditional style; of several, the first that is met wins."""

    condition: Condition
    look: ConditionalColorsAndBold


@dataclass(frozen=True)
class ColumnHeadNode:
    """A column head, or a group of them. None is inherited from its ancestors or the workbook."""

    path: str
    """Its place in the template, e.g. `template.col[2].children[0]`."""
    name: str | None
    """The key of the data; None for a group, or a column without data."""
    title: str
    kind: CellKind = CellKind.AUTO
    number_format: str | None = None
    width: float | None = None
    height: float | None = None
    wrap: bool | None = None
    align: HorizontalAlign | None = None
    v_align: VerticalAlign | None = None
    color: str | None = None
    bold: bool | None = None
    bg_color: str | None = None
    rules: tuple[ConditionalStyleRule, ...] = ()
    children: tuple[ColumnHeadNode, ...] = ()

    @property
    def leaves(self) -> Iterator[ColumnHeadNode]:
        """The columns under this head, from left to right; itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves

    @property
    def depth(self) -> int:
        """The number of levels."""
        return 1 + max((child.depth for child in self.children), default=0)


@dataclass(frozen=True)
class RowHeadNode:
    """A row head, or a group of them; a leaf has the data rows whose key is its name."""

    path: str
    name: str | None
    title: str
    bg_color: str | None = None
    row_count: int = 1
    """The least number of rows of a leaf."""
    children: tuple[RowHeadNode, ...] = ()

    @property
    def leaves(self) -> Iterator[RowHeadNode]:
        """The leaves under this head, from top to bottom; itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves

    @property
    def depth(self) -> int:
        """The number of columns."""
        return 1 + max((child.depth for child in self.children), default=0)


@dataclass(frozen=True)
class ChartOfTemplate:
    """A chart over columns of the table, named by their keys."""

    kind: ChartKind
    values: tuple[str, ...]
    categories: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class TableTemplate:
    """A whole template: at least one column."""

    columns: tuple[ColumnHeadNode, ...]
    rows: tuple[RowHeadNode, ...] = ()
    row_head: ColumnHeadNode | None = None
    """The node that represents the column of row heads: the corner has its title and style."""
    charts: tuple[ChartOfTemplate, ...] = ()

    @cached_property
    def leaves(self) -> tuple[ColumnHeadNode, ...]:
        """The columns from left to right, without those of the row heads."""
        return tuple(leaf for node in self.columns for leaf in node.leaves)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the data, each once, in the order of the columns."""
        return tuple(dict.fromkeys(leaf.name for leaf in self.leaves if leaf.name is not None))

    @cached_property
    def depth(self) -> int:
        """The number of rows of the column heads."""
        return max(node.depth for node in self.columns)

    @cached_property
    def row_depth(self) -> int:
        """The number of columns of the row heads."""
        return max((node.depth for node in self.rows), default=0)

"""Template: the trees of column heads and row heads, checked and complete, as everything that draws takes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final

from excel.template.conditions import Condition
from excel.template.style import Align, VAlign

AUTOMATIC_WIDTH: Final = -1.0
"""The width of a column that is fitted, whatever its group or the request say."""
ROW_HEAD_NAMES: Final = ("__row__", "_row_header", "_row_header_", "_row_head_")


class Kind(StrEnum):
    """What the cells of a column are taken for."""

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
class Look:
    """What a condition changes where it holds."""

    color: str | None = None
    bold: bool | None = None
    bg_color: str | None = None


@dataclass(frozen=True)
class Rule:
    """One conditional style; of several, the first that holds wins."""

    condition: Condition
    look: Look


@dataclass(frozen=True)
class Node:
    """A column head, or a group of them. What it does not say is None: its ancestors' or the book's default holds."""

    path: str
    """Where it stands in the template, e.g. `template.col[2].children[0]`."""
    name: str | None
    """The key of the data; None for a group, or a column without data."""
    title: str
    kind: Kind = Kind.AUTO
    number_format: str | None = None
    width: float | None = None
    height: float | None = None
    wrap: bool | None = None
    align: Align | None = None
    v_align: VAlign | None = None
    color: str | None = None
    bold: bool | None = None
    bg_color: str | None = None
    rules: tuple[Rule, ...] = ()
    children: tuple[Node, ...] = ()

    @property
    def leaves(self) -> Iterator[Node]:
        """The columns under this head, from left to right; itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves

    @property
    def depth(self) -> int:
        """How many levels it takes."""
        return 1 + max((child.depth for child in self.children), default=0)


@dataclass(frozen=True)
class RowNode:
    """A row head, or a group of them; a leaf has the data rows whose key is its name."""

    path: str
    name: str | None
    title: str
    bg_color: str | None = None
    row_count: int = 1
    """How many rows a leaf has at least."""
    children: tuple[RowNode, ...] = ()

    @property
    def leaves(self) -> Iterator[RowNode]:
        """The leaves under this head, from top to bottom; itself if it is one."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves

    @property
    def depth(self) -> int:
        """How many columns it takes."""
        return 1 + max((child.depth for child in self.children), default=0)


@dataclass(frozen=True)
class Chart:
    """A chart over columns of the table, named by their keys."""

    kind: ChartKind
    values: tuple[str, ...]
    categories: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class Template:
    """A whole template: at least one column."""

    columns: tuple[Node, ...]
    rows: tuple[RowNode, ...] = ()
    row_head: Node | None = None
    """The node that stands for the column of row heads: its title and look are those of the corner."""
    charts: tuple[Chart, ...] = ()

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """The columns from left to right, without those of the row heads."""
        return tuple(leaf for node in self.columns for leaf in node.leaves)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of the data that it shows, each once, in the order of its columns."""
        return tuple(dict.fromkeys(leaf.name for leaf in self.leaves if leaf.name is not None))

    @cached_property
    def depth(self) -> int:
        """How many rows the column heads take."""
        return max(node.depth for node in self.columns)

    @cached_property
    def row_depth(self) -> int:
        """How many columns the row heads take."""
        return max((node.depth for node in self.rows), default=0)

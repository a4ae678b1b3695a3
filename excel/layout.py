"""Layout: where each region of a table stands on its sheet, before anything is drawn.

From top to bottom: title, summary, header, column heads, the body of data, footer. Title, summary, header and footer
span the columns of the table, 20 at most. Row heads stand left of the body. How high rows are depends on how wide the
columns turn out, so it is asked for at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np
from pydantic import JsonValue

from excel import html, pairs, safe, widths, wrapping
from excel.columns import Column
from excel.html import Run
from excel.template.drawing import TableDrawing
from excel.template.models import Chart, Node, RowNode, Template
from excel.template.style import HEAD_COLOR, Align, Style, VAlign
from excel.wrapping import LINE_POINTS, ROW_HEIGHT_MAX, GrownRows, Points

MERGED_COLUMNS_MAX: Final = 20
GAP_ROWS: Final = 3
"""Between two tables of one sheet."""

TITLE_STYLE: Final = Style(bold=True, size=22, wrap=True)
TEXT_STYLE: Final = Style(align=Align.LEFT, border=True, wrap=True)
PAIR_STYLE: Final = Style(border=True, wrap=True)
NAME_STYLE: Final = replace(PAIR_STYLE, bold=True)
HEAD_STYLE: Final = Style(bold=True, bg_color=HEAD_COLOR, border=True, wrap=True)


@dataclass(frozen=True)
class Measure:
    """How much room the text of a region wants."""

    line: float
    padding: float
    scale: float = 1.0
    """How much wider than the usual font its characters are."""
    margin: float = widths.PADDING
    """What it wants beside its text, in characters."""
    wish_max: float = widths.CHARACTERS_MAX
    """To how many characters columns are widened for its sake."""

    def height(self, lines: int) -> float:
        """The points that so many lines take."""
        # Of many lines, the usual font takes more than a region's own measure.
        return min(ROW_HEIGHT_MAX, max(self.line * lines + self.padding, LINE_POINTS * lines))


TITLE: Final = Measure(line=28, padding=8, scale=2.1)
TEXT: Final = Measure(line=14, padding=14, wish_max=40)
PAIR: Final = Measure(line=14, padding=8, wish_max=20)
HEAD: Final = Measure(line=15, padding=7, scale=1.1, margin=4, wish_max=30)


@dataclass(frozen=True)
class Area:
    """Cells drawn as one, merged if they are several."""

    row: int
    column: int
    rows: int
    columns: int
    runs: tuple[Run, ...]
    style: Style
    measure: Measure

    @property
    def last_row(self) -> int:
        """Its lowest row."""
        return self.row + self.rows - 1

    @property
    def last_column(self) -> int:
        """Its rightmost column."""
        return self.column + self.columns - 1

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(run.text for run in self.runs)

    def below(self, rows: int) -> Area:
        """The same so many rows further down."""
        return replace(self, row=self.row + rows)


@dataclass(frozen=True)
class Frame:
    """The regions around the body of one table."""

    columns: tuple[Column, ...]
    row_depth: int
    """How many columns the row heads take, left of those of data."""
    above: tuple[Area, ...]
    first_head_row: int
    first_body_row: int
    footer: tuple[Area, ...]
    """Its rows are counted from the end of the body."""
    charts: tuple[Chart, ...] = ()

    @property
    def first_body_column(self) -> int:
        """The first column of data."""
        return self.row_depth

    @cached_property
    def last_column(self) -> int:
        """The rightmost column that has anything."""
        return max((area.last_column for area in (*self.above, *self.footer)), default=0)

    @property
    def body_height(self) -> float | None:
        """Of each row of data, in points, if its texts want no more; None is left to Excel."""
        heights = [column.height for column in self.columns if column.height is not None]
        return min(ROW_HEIGHT_MAX, max(heights)) if heights else None

    def end(self, body_rows: int, *, footer: bool = True) -> int:
        """The first row below the table."""
        body_end = self.first_body_row + body_rows
        return body_end + max((area.last_row + 1 for area in self.footer), default=0) if footer else body_end

    def areas(self, body_rows: int, *, footer: bool = True) -> Iterator[Area]:
        """All that stands around so many rows of data."""
        yield from self.above
        if footer:
            yield from (area.below(self.first_body_row + body_rows) for area in self.footer)


@dataclass(frozen=True)
class Placed:
    """A table of a sheet, when its data are known."""

    frame: Frame
    body_rows: int
    samples: Sequence[Sequence[str]] = ()
    """The texts of the first rows of each column of data, as they are shown."""
    row_heads: tuple[Area, ...] = ()
    """Their rows are counted from the beginning of the body."""
    footer: bool = True
    grown: GrownRows = field(default_factory=GrownRows)

    @cached_property
    def column_widths(self) -> list[float]:
        """The width of each column, for this table alone."""
        frame = self.frame
        count = frame.last_column + 1
        fixed: list[float | None] = [None] * frame.row_depth
        fixed += [column.width for column in frame.columns]
        texts: list[list[str]] = [[] for _ in range(count)]
        for column, sample in enumerate(self.samples, start=frame.row_depth):
            texts[column] += sample
        fixed += [None] * (count - len(fixed))
        areas = [*frame.areas(0, footer=self.footer), *self.row_heads]
        return widths.settle(fixed, [widths.fit(column) for column in texts], wishes(areas))

    @property
    def areas(self) -> list[Area]:
        """All but the body."""
        return list(self.frame.areas(self.body_rows, footer=self.footer))

    @property
    def end(self) -> int:
        """The first row below the table."""
        return self.frame.end(self.body_rows, footer=self.footer)


def place(table: TableDrawing, columns: Sequence[Column], template: Template | None, first_row: int = 0) -> Frame:
    """Lay out a table that begins at this row of its sheet."""
    row_depth = template.row_depth if template else 0
    width = min(MERGED_COLUMNS_MAX, max(1, row_depth + len(columns)))
    above = [*_title(table.title, first_row, width)]
    above += _texts(table.summary, _below(above, first_row), width)
    above += _region(table.header, _below(above, first_row), width)
    first_head_row = _below(above, first_row)
    above += _heads(columns, template, first_head_row)
    return Frame(
        columns=tuple(columns),
        row_depth=row_depth,
        above=tuple(above),
        first_head_row=first_head_row,
        first_body_row=_below(above, first_row),
        footer=tuple(_region(table.footer, 0, width)),
        charts=template.charts if template else (),
    )


def row_heads(template: Template, counts: Sequence[int]) -> tuple[Area, ...]:
    """The heads left of the body, their rows counted from its beginning.

    Args:
        template: Its rows.
        counts: How many rows each of its leaves takes, from top to bottom.
    """
    return tuple(_row_heads(template.rows, 0, template.row_depth, iter(counts), 0))


def heights(areas: Iterable[Area], column_widths: Sequence[float]) -> dict[int, float]:
    """The height of each row that the areas stand in, so that their texts can be read."""
    found: dict[int, float] = {}
    for area in sorted(areas, key=lambda area: area.rows):
        width = sum(column_widths[area.column : area.last_column + 1])
        needed = area.measure.height(widths.lines(area.text, width, area.measure.scale))
        rows = range(area.row, area.last_row + 1)
        for row in rows:
            found.setdefault(row, area.measure.height(1))
        missing = needed - sum(found[row] for row in rows)
        if missing > 0:
            found[area.last_row] = min(ROW_HEIGHT_MAX, found[area.last_row] + missing)
    return found


def row_head_points(areas: Sequence[Area], column_widths: Sequence[float], rows: int) -> Points | None:
    """How high each row of the body is at least for the sake of the row heads beside it; None if any height will do.

    A row head of several rows spreads what it wants evenly over them.
    """
    points = np.full(rows, LINE_POINTS)
    for area in areas:
        width = sum(column_widths[area.column : area.last_column + 1])
        wanted = min(ROW_HEIGHT_MAX, LINE_POINTS * widths.lines(area.text, width, area.measure.scale))
        part = points[area.row : area.last_row + 1]
        np.maximum(part, wrapping.to_whole_pixels(wanted / area.rows), out=part)
    return points if (points > LINE_POINTS).any() else None


def wishes(areas: Iterable[Area]) -> list[tuple[int, int, float]]:
    """Which columns should be how wide together, the narrowest areas first."""
    found = [
        (
            area.column,
            area.last_column,
            min(area.measure.wish_max, widths.shown(area.text) * area.measure.scale + area.measure.margin),
        )
        for area in areas
    ]
    return sorted(found, key=lambda wish: wish[1] - wish[0])


def plain(text: str) -> tuple[Run, ...]:
    """A text that is no HTML, safe and within the limits of a cell."""
    kept, _ = safe.bounded(safe.text(text.replace("\r\n", "\n").replace("\r", "\n")))
    return (Run(kept),) if kept else ()


def _below(areas: Sequence[Area], first_row: int) -> int:
    return max((area.last_row + 1 for area in areas), default=first_row)


def _title(title: str | None, row: int, width: int) -> Iterator[Area]:
    if title:
        yield Area(row, 0, 1, width, plain(title), TITLE_STYLE, TITLE)


def _region(content: JsonValue, row: int, width: int) -> list[Area]:
    """A header or footer: a text, or pairs."""
    if isinstance(content, str):
        return list(_texts(content, row, width))
    laid_out = pairs.rows_of(content, width)
    # An object shares one grid over all its rows; given rows spread each on its own.
    grid = max(map(len, laid_out), default=0) if isinstance(content, dict) else 0
    return [area for index, row_of in enumerate(laid_out) for area in _pairs(row_of, row + index, width, grid)]


def _texts(text: str | None, row: int, width: int) -> Iterator[Area]:
    found, _ = html.bounded(html.runs(text or ""))
    if found:
        yield Area(row, 0, 1, width, tuple(found), TEXT_STYLE, TEXT)


def _pairs(row_of: Sequence[pairs.Pair], row: int, width: int, grid: int) -> Iterator[Area]:
    """One row of pairs, each in two areas side by side, or in one where there is no room for two."""
    column = 0
    for (name, value), size in zip(row_of, pairs.shared(width, grid or len(row_of)), strict=False):
        if size == 1:
            both = (*(replace(run, bold=True) for run in plain(f"{name}：")), *plain(value))
            yield Area(row, column, 1, 1, both, PAIR_STYLE, PAIR)
        else:
            half = size // 2
            yield Area(row, column, 1, half, plain(name), NAME_STYLE, PAIR)
            yield Area(row, column + half, 1, size - half, plain(value), PAIR_STYLE, PAIR)
        column += size
    if column < width:
        yield Area(row, column, 1, width - column, (), PAIR_STYLE, PAIR)


def _heads(columns: Sequence[Column], template: Template | None, row: int) -> Iterator[Area]:
    if template is None:
        for index, column in enumerate(columns):
            yield Area(row, index, 1, 1, plain(column.title), HEAD_STYLE, HEAD)
        return
    if template.row_depth:
        yield _corner(template, row)
    yield from _column_heads(template.columns, row, template.row_depth, template.depth)


def _corner(template: Template, row: int) -> Area:
    """Where column heads and row heads meet, in the look of the node that stands for the column of row heads."""
    node = template.row_head
    style = HEAD_STYLE
    if node is not None:
        style = replace(
            HEAD_STYLE,
            bold=HEAD_STYLE.bold if node.bold is None else node.bold,
            color=node.color,
            bg_color=node.bg_color or HEAD_COLOR,
            align=node.align or Align.CENTER,
            v_align=node.v_align or VAlign.MIDDLE,
        )
    return Area(row, 0, template.depth, template.row_depth, plain(node.title if node else ""), style, HEAD)


def _column_heads(nodes: Sequence[Node], row: int, column: int, depth: int) -> Iterator[Area]:
    """A group takes one row over all its columns, a leaf one column down to the body."""
    for node in nodes:
        size = sum(1 for _ in node.leaves)
        yield Area(row, column, 1 if node.children else depth, size, plain(node.title), HEAD_STYLE, HEAD)
        yield from _column_heads(node.children, row + 1, column, depth - 1)
        column += size


def _row_heads(nodes: Sequence[RowNode], column: int, depth: int, counts: Iterator[int], row: int) -> Iterator[Area]:
    """A group takes one column over all its rows, a leaf one row or more up to the body."""
    for node in nodes:
        style = replace(HEAD_STYLE, bg_color=node.bg_color or HEAD_COLOR)
        inner = list(_row_heads(node.children, column + 1, depth - 1, counts, row))
        rows = max(area.last_row for area in inner) + 1 - row if inner else next(counts)
        yield Area(row, column, rows, 1 if inner else depth, plain(node.title), style, HEAD)
        yield from inner
        row += rows

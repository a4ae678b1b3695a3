"""Areas: merged cells of a sheet, the frame of a table made of them, and the widths and heights that they need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from excel.columns import TableColumn
from excel.html import TextRun
from excel.sizes import (
    LINE_POINTS,
    ROW_HEIGHT_MAX,
    WIDTH_MAX,
    WIDTH_PADDING,
    GrownRows,
    Points,
    display_width,
    estimate_lines,
    fit_width,
    settle_widths,
    to_whole_pixels,
)
from excel.template.models import (
    CellStyle,
    Chart,
)


@dataclass(frozen=True)
class TextMeasure:
    """How much room the text of a region wants."""

    line: float
    padding: float
    scale: float = 1.0
    """How much wider than the usual font its characters are."""
    margin: float = WIDTH_PADDING
    """What it wants beside its text, in characters."""
    wish_max: float = WIDTH_MAX
    """To how many characters columns are widened for its sake."""

    def height(self, lines: int) -> float:
        """The points that so many lines take."""
        # Of many lines, the usual font takes more than a region's own measure.
        return min(ROW_HEIGHT_MAX, max(self.line * lines + self.padding, LINE_POINTS * lines))


TITLE: Final = TextMeasure(line=28, padding=8, scale=2.1)
TEXT: Final = TextMeasure(line=14, padding=14, wish_max=40)
PAIR: Final = TextMeasure(line=14, padding=8, wish_max=20)
HEAD: Final = TextMeasure(line=15, padding=7, scale=1.1, margin=4, wish_max=30)


@dataclass(frozen=True)
class Area:
    """Cells drawn as one, merged if they are several."""

    row: int
    column: int
    rows: int
    columns: int
    runs: tuple[TextRun, ...]
    style: CellStyle
    measure: TextMeasure

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
class TableFrame:
    """The regions around the body of one table."""

    columns: tuple[TableColumn, ...]
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
class PlacedTable:
    """A table of a sheet, when its data are known."""

    frame: TableFrame
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
        return settle_widths(fixed, [fit_width(column) for column in texts], list_width_demands(areas))

    @property
    def areas(self) -> list[Area]:
        """All but the body."""
        return list(self.frame.areas(self.body_rows, footer=self.footer))

    @property
    def end(self) -> int:
        """The first row below the table."""
        return self.frame.end(self.body_rows, footer=self.footer)


def fit_row_heights(areas: Iterable[Area], column_widths: Sequence[float]) -> dict[int, float]:
    """The height of each row that the areas stand in, so that their texts can be read."""
    found: dict[int, float] = {}
    for area in sorted(areas, key=lambda area: area.rows):
        width = sum(column_widths[area.column : area.last_column + 1])
        needed = area.measure.height(estimate_lines(area.text, width, area.measure.scale))
        rows = range(area.row, area.last_row + 1)
        for row in rows:
            found.setdefault(row, area.measure.height(1))
        missing = needed - sum(found[row] for row in rows)
        if missing > 0:
            found[area.last_row] = min(ROW_HEIGHT_MAX, found[area.last_row] + missing)
    return found


def fit_row_head_heights(areas: Sequence[Area], column_widths: Sequence[float], rows: int) -> Points | None:
    """How high each row of the body is at least for the sake of the row heads beside it; None if any height will do.

    A row head of several rows spreads what it wants evenly over them.
    """
    points = np.full(rows, LINE_POINTS)
    for area in areas:
        width = sum(column_widths[area.column : area.last_column + 1])
        wanted = min(ROW_HEIGHT_MAX, LINE_POINTS * estimate_lines(area.text, width, area.measure.scale))
        part = points[area.row : area.last_row + 1]
        np.maximum(part, to_whole_pixels(wanted / area.rows), out=part)
    return points if (points > LINE_POINTS).any() else None


def list_width_demands(areas: Iterable[Area]) -> list[tuple[int, int, float]]:
    """Which columns should be how wide together, the narrowest areas first."""
    found = [
        (
            area.column,
            area.last_column,
            min(area.measure.wish_max, display_width(area.text) * area.measure.scale + area.measure.margin),
        )
        for area in areas
    ]
    return sorted(found, key=lambda wish: wish[1] - wish[0])

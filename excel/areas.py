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
    CountOfRowsHigherThanRequested,
    Points,
    compute_column_widths,
    compute_fitting_width,
    estimate_lines,
    measure_display_width,
    round_up_to_whole_pixels,
)
from excel.template.models import CellStyle, ChartOfTemplate


@dataclass(frozen=True)
class RegionTextSizeRules:
    """The height and width that the text of a region needs."""

    line: float
    padding: float
    scale: float = 1.0
    """The width of its characters relative to the usual font."""
    margin: float = WIDTH_PADDING
    """Added to the width of its text, in characters."""
    width_max: float = WIDTH_MAX
    """The most characters that columns are widened to for its text."""

    def compute_height(self, lines: int) -> float:
        """Return the height of a number of lines, in points."""
        # Of many lines, the usual font takes more than a region's own measure.
        return min(ROW_HEIGHT_MAX, max(self.line * lines + self.padding, LINE_POINTS * lines))


TITLE: Final = RegionTextSizeRules(line=28, padding=8, scale=2.1)
TEXT: Final = RegionTextSizeRules(line=14, padding=14, width_max=40)
PAIR: Final = RegionTextSizeRules(line=14, padding=8, width_max=20)
HEAD: Final = RegionTextSizeRules(line=15, padding=7, scale=1.1, margin=4, width_max=30)


@dataclass(frozen=True)
class MergedCellArea:
    """Cells drawn as one, merged if they are several."""

    row: int
    column: int
    rows: int
    columns: int
    runs: tuple[TextRun, ...]
    style: CellStyle
    measure: RegionTextSizeRules

    @property
    def last_row(self) -> int:
        """Its last row."""
        return self.row + self.rows - 1

    @property
    def last_column(self) -> int:
        """Its last column."""
        return self.column + self.columns - 1

    @property
    def text(self) -> str:
        """The text of all its runs."""
        return "".join(run.text for run in self.runs)

    def move_down(self, rows: int) -> MergedCellArea:
        """Return the area moved down by a number of rows."""
        return replace(self, row=self.row + rows)


@dataclass(frozen=True)
class AreasAroundTableBody:
    """The regions around the data of one table."""

    columns: tuple[TableColumn, ...]
    row_depth: int
    """Columns of row heads, left of those of data."""
    above: tuple[MergedCellArea, ...]
    first_head_row: int
    first_body_row: int
    footer: tuple[MergedCellArea, ...]
    """Rows are counted from the end of the body."""
    charts: tuple[ChartOfTemplate, ...] = ()

    @property
    def first_body_column(self) -> int:
        """The first column of data."""
        return self.row_depth

    @cached_property
    def last_column(self) -> int:
        """The last column of any region."""
        return max((area.last_column for area in (*self.above, *self.footer)), default=0)

    @property
    def requested_body_row_height(self) -> float | None:
        """The least height of each row of data, in points; None leaves it to Excel."""
        heights = [column.height for column in self.columns if column.height is not None]
        return min(ROW_HEIGHT_MAX, max(heights)) if heights else None

    def compute_end_row(self, body_rows: int, *, footer: bool = True) -> int:
        """Return the first row below the table."""
        body_end = self.first_body_row + body_rows
        return body_end + max((area.last_row + 1 for area in self.footer), default=0) if footer else body_end

    def iterate_areas(self, body_rows: int, *, footer: bool = True) -> Iterator[MergedCellArea]:
        """Yield the areas above and below a number of rows of data."""
        yield from self.above
        if footer:
            yield from (area.move_down(self.first_body_row + body_rows) for area in self.footer)


@dataclass(frozen=True)
class TableFrameAndBodySize:
    """A table of a sheet with its number of rows and their row heads."""

    frame: AreasAroundTableBody
    body_rows: int
    samples: Sequence[Sequence[str]] = ()
    """The texts of the first rows of each column of data, as Excel shows them."""
    row_heads: tuple[MergedCellArea, ...] = ()
    """Rows are counted from the beginning of the body."""
    footer: bool = True
    grown: CountOfRowsHigherThanRequested = field(default_factory=CountOfRowsHigherThanRequested)

    @cached_property
    def column_widths(self) -> list[float]:
        """The width of each column that this table needs."""
        frame = self.frame
        count = frame.last_column + 1
        fixed: list[float | None] = [None] * frame.row_depth
        fixed += [column.width for column in frame.columns]
        texts: list[list[str]] = [[] for _ in range(count)]
        for column, sample in enumerate(self.samples, start=frame.row_depth):
            texts[column] += sample
        fixed += [None] * (count - len(fixed))
        areas = [*frame.iterate_areas(0, footer=self.footer), *self.row_heads]
        return compute_column_widths(
            fixed, [compute_fitting_width(column) for column in texts], list_column_ranges_with_needed_width(areas)
        )

    @property
    def areas(self) -> list[MergedCellArea]:
        """All areas but those of the body."""
        return list(self.frame.iterate_areas(self.body_rows, footer=self.footer))

    @property
    def end_row(self) -> int:
        """Return the first row below the table."""
        return self.frame.compute_end_row(self.body_rows, footer=self.footer)


def compute_row_heights(areas: Iterable[MergedCellArea], column_widths: Sequence[float]) -> dict[int, float]:
    """Return the height of each row of these areas, so that their texts can be read."""
    found: dict[int, float] = {}
    for area in sorted(areas, key=lambda area: area.rows):
        width = sum(column_widths[area.column : area.last_column + 1])
        needed = area.measure.compute_height(estimate_lines(area.text, width, area.measure.scale))
        rows = range(area.row, area.last_row + 1)
        for row in rows:
            found.setdefault(row, area.measure.compute_height(1))
        missing = needed - sum(found[row] for row in rows)
        if missing > 0:
            found[area.last_row] = min(ROW_HEIGHT_MAX, found[area.last_row] + missing)
    return found


def compute_heights_beside_row_heads(
    areas: Sequence[MergedCellArea], column_widths: Sequence[float], rows: int
) -> Points | None:
    """Return the least height of each row of the body beside these row heads; None if a usual row is high enough.

    A row head of several rows spreads what it wants evenly over them.
    """
    points = np.full(rows, LINE_POINTS)
    for area in areas:
        width = sum(column_widths[area.column : area.last_column + 1])
        needed = min(ROW_HEIGHT_MAX, LINE_POINTS * estimate_lines(area.text, width, area.measure.scale))
        part = points[area.row : area.last_row + 1]
        np.maximum(part, round_up_to_whole_pixels(needed / area.rows), out=part)
    return points if (points > LINE_POINTS).any() else None


def list_column_ranges_with_needed_width(areas: Iterable[MergedCellArea]) -> list[tuple[int, int, float]]:
    """Return first column, last column and needed width of each area, the narrowest areas first."""
    found = [
        (
            area.column,
            area.last_column,
            min(area.measure.width_max, measure_display_width(area.text) * area.measure.scale + area.measure.margin),
        )
        for area in areas
    ]
    return sorted(found, key=lambda demand: demand[1] - demand[0])

"""Sizes: how wide texts and columns are, how many lines texts take in cells, and how high rows are.

Where a program breaks a line depends on its fonts, so lines that are longer than their column are estimated: by the
width of characters in Excel's own font, with some space lost at the end of each line, as words are not broken. The line
feeds of a text are counted exactly.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from excel.arrow import pa
from excel.cells import CellBytesWithOffsets, CellForm, ColumnCellPayloadsAndForms, view_bytes
from excel.columns import DATE_FORMAT, DATETIME_FORMAT, TableColumn
from excel.html import parse_html

WIDTH_MAX: Final = 60
WIDTH_MIN: Final = 6
WIDTH_PADDING: Final = 2

WIDE_TENTHS: Final = 21
CAPITAL_TENTHS: Final = 12
"""Widths of characters in Excel's own font, in tenths of a digit, whose width is the unit of columns."""

_WIDE = frozenset({"W", "F"})
_AMBIGUOUS_WIDE_FROM = "\u2000"
_WITHOUT_WIDTH = frozenset({"Mn", "Me", "Cf"})


def measure_display_width(text: str) -> int:
    """Return the width of a text's longest line in characters; Chinese, Japanese and Korean ones count double."""
    if text.isascii():
        return len(text) if "\n" not in text else max(map(len, text.split("\n")))
    return max(sum(map(_measure_character_width, line)) for line in text.split("\n"))


def compute_fitting_width(texts: Iterable[str]) -> float:
    """Return the width of a column that shows these texts, within limits."""
    widest = max(map(_compute_needed_width, texts), default=0)
    return float(min(WIDTH_MAX, max(WIDTH_MIN, widest) + WIDTH_PADDING))


def measure_character_tenths(character: str) -> int:
    """Return the width of a character on the screen, in tenths of a digit."""
    width = _measure_character_width(character)
    if width == 2:
        return WIDE_TENTHS
    return CAPITAL_TENTHS if character.isupper() else 10 * width


def estimate_lines(text: str, width: float, scale: float = 1.0) -> int:
    """Return how many lines a text takes in a cell of a width, in a font that is `scale` times the usual one."""
    line_width = max(1.0, (width - 1) / scale)
    return sum(max(1, -(-int(measure_display_width(line) * 100) // int(line_width * 100))) for line in text.split("\n"))


def compute_column_widths(
    fixed: Sequence[float | None], fitted: Sequence[float], demands: Iterable[tuple[int, int, float]]
) -> list[float]:
    """Return the widths of a sheet's columns: fixed ones unchanged, others wide enough for all demands.

    Args:
        fixed: The widths that were requested.
        fitted: What suits the data, for columns without.
        demands: First and last column of a merged area, and the width that they need together.
    """
    widths = [suits if given is None else given for given, suits in zip(fixed, fitted, strict=True)]
    for first, last, demand in demands:
        free = [place for place in range(first, last + 1) if fixed[place] is None]
        missing = demand - sum(widths[first : last + 1])
        if missing > 0 and free:
            for place in free:
                widths[place] = min(WIDTH_MAX, widths[place] + missing / len(free))
    return widths


def _compute_needed_width(text: str) -> int:
    """Return the width of a column for a text; one of several lines must not be wrapped again."""
    if "\n" not in text:
        return measure_display_width(text)
    return max(-(-sum(map(measure_character_tenths, line)) // 10) for line in text.split("\n"))


def _measure_character_width(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.category(character) in _WITHOUT_WIDTH:
        return 0
    kind = unicodedata.east_asian_width(character)
    # Dashes, quotes and signs are wide in Chinese fonts; letters with accents, Greek and Cyrillic ones are not.
    return 2 if kind in _WIDE or (kind == "A" and character >= _AMBIGUOUS_WIDE_FROM) else 1


SAMPLE_ROWS: Final = 200
SAMPLE_CHARACTERS: Final = 200
"""Columns are narrower than this, so the rest of a long text is not needed."""

_LITERAL = re.compile(r'"([^"]*)"|\\(.)|\[[^]]*\]|[_*].')
_DECIMALS = re.compile(r"\.([0#?]+)")


def render_sample_texts(values: ColumnCellPayloadsAndForms, column: TableColumn) -> list[str]:
    """Return the texts of cells as Excel shows them; empty ones are empty texts."""
    cells = values.payload.to_pylist()
    return [
        "" if cell is None else _render_sample_text(cell, CellForm(int(form)), column)[:SAMPLE_CHARACTERS]
        for cell, form in zip(cells, values.forms, strict=True)
    ]


def _render_sample_text(cell: str, form: CellForm, column: TableColumn) -> str:
    number_format = column.style.number_format
    match form:
        case CellForm.NUMBER:
            return _approximate_formatted_number(cell, number_format) if number_format else cell
        case CellForm.BOOLEAN:
            return "TRUE" if cell == "1" else "FALSE"
        case CellForm.DAY:
            return number_format or DATE_FORMAT
        case CellForm.MOMENT:
            return number_format or DATETIME_FORMAT
        case CellForm.RICH:
            return "".join(run.text for run in parse_html(cell))
        case _:
            return cell


def _approximate_formatted_number(digits: str, number_format: str) -> str:
    """Return about what a number looks like in a format: with its decimals and all signs around them."""
    section = number_format.split(";", maxsplit=1)[0]
    codes = _LITERAL.sub("", section)
    if not re.search("[0#?]", codes):
        return digits
    found = _DECIMALS.search(codes)
    decimals = len(found[1]) if found else 0
    number = float(digits) * (100 if "%" in codes else 1)
    grouped = f"{number:,.{decimals}f}" if "," in codes else f"{number:.{decimals}f}"
    around = "".join(first or second for first, second in _LITERAL.findall(section))
    return grouped + around + re.sub("[0#?.,]", "", codes)


Lines: TypeAlias = npt.NDArray[np.int64]
"""The lines of each cell or row."""
Points: TypeAlias = npt.NDArray[np.float64]
"""The heights of rows."""

LINE_POINTS: Final = 15.0
"""The height of a line of the usual font, and of a row whose height is not given."""
ROW_HEIGHT_MAX: Final = 409
BOLD_SCALE: Final = 1.08
"""The width of bold letters relative to others."""

GROWN_ROWS_KEPT: Final = 1_000

_LINE_FEED: Final = 0x0A
_PIXELS_PER_POINT: Final = 4 / 3
# A word that does not fit goes to the next line: half of one is lost on average, of a narrow column a part.
_UNUSED_DIGITS: Final = 3.0
_USED_MIN: Final = 0.7
_UNKNOWN: Final = 255
# By code point, filled in as characters are met: to ask the Unicode tables takes far longer than to look up.
_TENTHS: Final = np.full(0x110000, _UNKNOWN, np.uint8)


@dataclass
class CountOfRowsHigherThanRequested:
    """Rows of data that are higher than was requested."""

    count: int = 0
    points: float = 0.0
    """The height of all of them together."""
    first: dict[int, float] = field(default_factory=dict)
    """The heights of the first ones by row of the sheet, as many as may be beside a chart."""

    def add(self, other: CountOfRowsHigherThanRequested) -> None:
        """Add later rows."""
        self.count += other.count
        self.points += other.points
        if len(self.first) < GROWN_ROWS_KEPT:
            self.first |= other.first


def count_lines(texts: pa.Array, width: float, *, wraps: bool) -> Lines | None:
    """Count the lines of each text.

    Args:
        texts: Of a column; nulls take one line.
        width: Of a line, in digits.
        wraps: Whether texts without line feeds are wrapped, too.

    Returns:
        None if each takes one.
    """
    seen = view_bytes(texts)
    feeds = _count_line_feeds_or_none(seen)
    if feeds is None and not wraps:
        return None
    # No character takes more than this for each of its bytes.
    long = seen.lengths > width * 10 / CAPITAL_TENTHS
    if feeds is not None and not wraps:
        long &= feeds > 0
    if feeds is None and not long.any():
        return None
    lines = np.ones(len(texts), np.int64) if feeds is None else feeds + 1
    if long.any():
        broken = pc.split_pattern(texts.filter(pa.array(long)), "\n")
        more = _count_wrapped_lines(broken.flatten(), width) - 1
        np.add.at(lines, np.flatnonzero(long)[pc.list_parent_indices(broken).to_numpy()], more)
    return lines


def measure_text_widths(texts: pa.Array) -> npt.NDArray[np.float64]:
    """Return the width of each text, in digits."""
    codes = np.frombuffer(view_bytes(texts).join().decode().encode("utf-32-le"), np.uint32)
    tenths = _TENTHS.take(codes)
    unknown = np.flatnonzero(np.bincount(codes[tenths == _UNKNOWN]))
    if len(unknown):
        _TENTHS[unknown] = [measure_character_tenths(chr(code)) for code in unknown.tolist()]
        tenths = _TENTHS.take(codes)
    sums = np.concatenate([[0], np.cumsum(tenths, dtype=np.int64)])
    ends = np.cumsum(pc.utf8_length(texts).to_numpy())
    found: npt.NDArray[np.float64] = np.diff(sums[ends], prepend=0) / 10
    return found


def to_row_heights(lines: Lines) -> Points:
    """Return the heights of rows with these numbers of lines."""
    return np.asarray(lines * LINE_POINTS)


def round_up_to_whole_pixels(points: float) -> float:
    """Round a height up to whole pixels."""
    return float(-int(-points * _PIXELS_PER_POINT // 1)) / _PIXELS_PER_POINT


def encode_row_heights(
    requested: float | None, needed: Points | None, first_row: int
) -> tuple[str | pa.Array, CountOfRowsHigherThanRequested]:
    """Return the height attribute of rows, one for all or a column of them, and the rows that have grown.

    Args:
        requested: The least height of all rows; None leaves it to the spreadsheet program.
        needed: The height that each row needs to show its texts.
        first_row: The first of these rows in the sheet.
    """
    own = _build_height_attribute(requested)
    grows = None if needed is None else needed > (LINE_POINTS if requested is None else requested)
    if needed is None or grows is None or not grows.any():
        return own, CountOfRowsHigherThanRequested()
    points = np.where(grows, np.minimum(needed, ROW_HEIGHT_MAX), 0.0)
    distinct, picked = np.unique(points, return_inverse=True)
    attributes = pa.array([_build_height_attribute(height) if height else own for height in distinct.tolist()])
    places = np.flatnonzero(grows)
    first = places[:GROWN_ROWS_KEPT]
    heights = dict(zip((first + first_row).tolist(), points[first].tolist(), strict=True))
    return attributes.take(pa.array(picked)), CountOfRowsHigherThanRequested(len(places), float(points.sum()), heights)


def _build_height_attribute(height: float | None) -> str:
    return "" if height is None else f' ht="{height:g}" customHeight="1"'


def _count_line_feeds_or_none(seen: CellBytesWithOffsets) -> Lines | None:
    """Return the line feeds of each text; None if the column has none."""
    if not len(seen.starts):
        return None
    first, end = int(seen.starts[0]), int(seen.ends[-1])
    data = seen.data[first:end]
    # The least of bytes is found far faster than a given one.
    if not len(data) or data.min() > _LINE_FEED:
        return None
    places = np.flatnonzero(data == _LINE_FEED) + first
    if not len(places):
        return None
    counts: Lines = np.searchsorted(places, seen.ends) - np.searchsorted(places, seen.starts)
    return counts


def _count_wrapped_lines(lines: pa.Array, width: float) -> Lines:
    """Count the lines that texts without line feeds are wrapped into."""
    taken = measure_text_widths(lines)
    used = max(width * _USED_MIN, width - _UNUSED_DIGITS)
    return np.where(taken > width, np.ceil(taken / used), 1).astype(np.int64)

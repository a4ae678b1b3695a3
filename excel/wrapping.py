"""Wrapping: how many lines texts take in the cells of a column, and how high rows are that show them all.

Where a program breaks a line depends on its fonts, so lines that are longer than their column are estimated: by what
characters take in Excel's own font, with some room lost at the end of each line, as words are not broken. The line
feeds of a text are counted exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from excel import widths
from excel.buffers import View, view

Lines: TypeAlias = npt.NDArray[np.int64]
"""How many lines each cell of a column takes, or each row."""
Points: TypeAlias = npt.NDArray[np.float64]
"""How high rows should be."""

LINE_POINTS: Final = 15.0
"""What a line of the usual font takes, and a row of which nothing is known."""
ROW_HEIGHT_MAX: Final = 409
BOLD_SCALE: Final = 1.08
"""How much wider bold letters are."""

GROWN_ROWS_KEPT: Final = 1_000

_LINE_FEED: Final = 0x0A
_PIXELS_PER_POINT: Final = 4 / 3
# A word that does not fit goes to the next line: half of one is lost on average, of a narrow column a part.
_LOST: Final = 3.0
_USED_MIN: Final = 0.7
_UNKNOWN: Final = 255
# By code point, filled in as characters are met: to ask the Unicode tables takes far longer than to look up.
_TENTHS: Final = np.full(0x110000, _UNKNOWN, np.uint8)


@dataclass
class GrownRows:
    """Rows of data that are higher than was asked for."""

    count: int = 0
    points: float = 0.0
    """Of all of them together."""
    first: dict[int, float] = field(default_factory=dict)
    """The height of the first ones by their row in the sheet, as many as may stand beside a chart."""

    def add(self, other: GrownRows) -> None:
        """Count the rows that come after."""
        self.count += other.count
        self.points += other.points
        if len(self.first) < GROWN_ROWS_KEPT:
            self.first |= other.first


def count_lines(texts: pa.Array, room: float, *, wraps: bool) -> Lines | None:
    """How many lines each text takes.

    Args:
        texts: Of a column; nulls take one line.
        room: What a line has, in the width of digits.
        wraps: Whether texts without line feeds are wrapped, too.

    Returns:
        None if each takes one.
    """
    seen = view(texts)
    feeds = _feeds(seen)
    if feeds is None and not wraps:
        return None
    # No character takes more than this for each of its bytes.
    long = seen.lengths > room * 10 / widths.CAPITAL_TENTHS
    if feeds is not None and not wraps:
        long &= feeds > 0
    if feeds is None and not long.any():
        return None
    lines = np.ones(len(texts), np.int64) if feeds is None else feeds + 1
    if long.any():
        broken = pc.split_pattern(texts.filter(pa.array(long)), "\n")
        more = _wrapped(broken.flatten(), room) - 1
        np.add.at(lines, np.flatnonzero(long)[pc.list_parent_indices(broken).to_numpy()], more)
    return lines


def measure(texts: pa.Array) -> npt.NDArray[np.float64]:
    """What each text takes of a line, in the width of digits."""
    codes = np.frombuffer(view(texts).joined().decode().encode("utf-32-le"), np.uint32)
    tenths = _TENTHS.take(codes)
    unknown = np.unique(codes[tenths == _UNKNOWN])
    if len(unknown):
        _TENTHS[unknown] = [widths.tenths(chr(code)) for code in unknown.tolist()]
        tenths = _TENTHS.take(codes)
    sums = np.concatenate([[0], np.cumsum(tenths, dtype=np.int64)])
    ends = np.cumsum(pc.utf8_length(texts).to_numpy())
    found: npt.NDArray[np.float64] = np.diff(sums[ends], prepend=0) / 10
    return found


def to_points(lines: Lines) -> Points:
    """How high rows are that show so many lines."""
    return np.asarray(lines * LINE_POINTS)


def to_whole_pixels(points: float) -> float:
    """The next height that a screen shows as it is."""
    return float(-int(-points * _PIXELS_PER_POINT // 1)) / _PIXELS_PER_POINT


def grow_rows(asked: float | None, wanted: Points | None, first_row: int) -> tuple[str | pa.Array, GrownRows]:
    """What the XML of rows says about their height, the same of all or a column; and which have grown.

    Args:
        asked: How high all rows are at least; None is left to the program that opens the book.
        wanted: How high each row has to be to show its texts.
        first_row: The first of these rows in the sheet.
    """
    own = _attribute(asked)
    grows = None if wanted is None else wanted > (LINE_POINTS if asked is None else asked)
    if wanted is None or grows is None or not grows.any():
        return own, GrownRows()
    points = np.where(grows, np.minimum(wanted, ROW_HEIGHT_MAX), 0.0)
    distinct, picked = np.unique(points, return_inverse=True)
    attributes = pa.array([_attribute(height) if height else own for height in distinct.tolist()])
    places = np.flatnonzero(grows)
    first = places[:GROWN_ROWS_KEPT]
    heights = dict(zip((first + first_row).tolist(), points[first].tolist(), strict=True))
    return attributes.take(pa.array(picked)), GrownRows(len(places), float(points.sum()), heights)


def _attribute(height: float | None) -> str:
    return "" if height is None else f' ht="{height:g}" customHeight="1"'


def _feeds(seen: View) -> Lines | None:
    """How many line feeds each text has; None if there is none in the column."""
    if not len(seen.starts):
        return None
    first, end = int(seen.starts[0]), int(seen.ends[-1])
    data = seen.data[first:end]
    # The least of bytes is found far faster than one that is asked for.
    if not len(data) or data.min() > _LINE_FEED:
        return None
    places = np.flatnonzero(data == _LINE_FEED) + first
    if not len(places):
        return None
    counts: Lines = np.searchsorted(places, seen.ends) - np.searchsorted(places, seen.starts)
    return counts


def _wrapped(lines: pa.Array, room: float) -> Lines:
    """How many lines each text takes that has no line feeds."""
    taken = measure(lines)
    used = max(room * _USED_MIN, room - _LOST)
    return np.where(taken > room, np.ceil(taken / used), 1).astype(np.int64)

"""CSV of flat pages: the bytes that `csv.lines` makes of the cells, cut out of the page without looking at each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from domain.downloads import csv
from domain.downloads.flat import QUOTE, Grid, Places, Text
from domain.downloads.request import Encoding

_SIGNS = np.isin(np.arange(256), list(b"".join(csv.FORMULA_SIGNS)))
_NULL = b"null"


def lines(grid: Grid, encoding: Encoding = Encoding.UTF_8_BOM, *, guard: bool = True) -> bytes:
    """All rows of the page, each ended by CR LF. The grid is used up."""
    if grid.columns == 1:
        cells = zip(grid.starts.tolist(), grid.stops.tolist(), strict=True)
        return csv.lines([[bytes(grid.text[start:stop])] for start, stop in cells], encoding, guard=guard)
    text, last = grid.text, slice(grid.columns - 1, None, grid.columns)
    row_ends = grid.stops[last]
    text[row_ends], text[row_ends + 1] = csv.LINE_END
    ends = grid.stops + 1
    ends[last] += 1
    odd = _odd_cells(grid, guard)
    spans = list(zip(*(each[odd].tolist() for each in (grid.starts, grid.stops, ends)), strict=True))
    view = text.data
    fields = csv.fields([view[start:stop] for start, stop, _ in spans], guard=guard)
    fields = [b"".join((field, view[stop:end])) for field, (_, stop, end) in zip(fields, spans, strict=True)]
    # A text begins with a quote: this can only be the literal.
    starts = grid.starts + len(_NULL) * (text[grid.starts] == _NULL[0])
    return csv.encoded(_joined(text, starts, ends, odd, fields), encoding)


def _odd_cells(grid: Grid, guard: bool) -> Places:
    """The cells that are no fields as they stand: those with escapes, and texts that begin like a formula."""
    is_odd = np.zeros(len(grid.starts), bool)
    is_odd[np.searchsorted(grid.starts, grid.escapes, "right") - 1] = True
    if guard:
        is_odd |= (grid.text[grid.starts] == QUOTE) & _SIGNS[grid.text[grid.starts + 1]]
    return np.flatnonzero(is_odd)


def _joined(text: Text, starts: Places, ends: Places, odd: Places, fields: Sequence[bytes]) -> bytes:
    """The cells one after another, some of them replaced by fields.

    To Arrow the text with the fields behind it is a column: cell, what is before the next cell, next cell, and so on.
    """
    field_ends = np.cumsum([len(text), *map(len, fields)])[1:]
    edges = np.concatenate([np.stack([starts, ends], axis=1).ravel(), field_ends])
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(b"".join([text.data, *fields]))]
    order = np.arange(0, 2 * len(starts), 2)
    order[odd] = 2 * len(starts) - 1 + np.arange(len(fields))
    column = pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)
    # Made by hand, because `pa.array` loads pandas.
    picked = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    cells = pc.take(column, picked)
    joined: bytes = cells.buffers()[2].to_pybytes()
    return joined

"""Arrow columns of flat pages: the cells of each column, cut out of the page without looking at each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from domain.downloads.flat import Grid

_NULL = pa.scalar(b"null", pa.binary())


def columns(grid: Grid, places: Sequence[int | None]) -> list[pa.Array]:
    """The JSON text of the cells, column by column.

    Args:
        places: For each column wanted, which of the page's keys it shows; None where it shows none of them.
    """
    shown = [place for place in places if place is not None]
    # To Arrow the page is a column: cell, what is before the next cell, next cell, and so on.
    edges = np.stack([grid.starts, grid.stops], axis=1).astype(np.int32).ravel()
    pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(grid.text)])
    order = np.arange(0, len(edges), 2).reshape(grid.rows, grid.columns)[:, shown].T.ravel()
    # Made by hand, because `pa.array` loads pandas.
    cells = pieces.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    found = (cells.slice(number * grid.rows, grid.rows) for number in range(len(shown)))
    return [pa.repeat(_NULL, grid.rows) if place is None else next(found) for place in places]

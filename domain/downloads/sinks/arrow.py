"""The staging format of rendered files: frames of Arrow that keep every cell as the source wrote it.

Types are decided when the file is rendered, so nothing is interpreted while pages arrive. Each frame is an Arrow IPC
message, compressed by LZ4: the head is a schema, each page one record batch. Every column is binary and holds the JSON
text of its cells, including `null`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa

from domain.downloads.flat import CellGrid
from domain.downloads.staging import StagedFrame

PARQUET_TYPE = "application/vnd.apache.parquet"
EXCEL_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

_NULL_CELL = pa.scalar(b"null", pa.binary())
_LZ4 = pa.Codec("lz4_raw")


class ArrowSink:
    """Pages as record batches, from which a file is rendered."""

    is_rendered = True

    def __init__(self, extension: str, content_type: str) -> None:
        self.extension = extension
        self.content_type = content_type

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """Encode the schema as a frame."""
        return _encode_frame(build_schema(columns), 0)

    def encode_page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """Encode rows as a record batch; columns have no names, only an order."""
        if not rows:
            return b""
        return _encode_page([_build_column(cells) for cells in zip(*rows, strict=True)])

    def encode_grid(self, grid: CellGrid, places: Sequence[int | None]) -> bytes:
        """Encode a flat page as a record batch."""
        return _encode_page(cut_columns(grid, places))


def build_schema(columns: Sequence[str]) -> pa.Schema:
    """Build a schema of binary columns, which hold JSON text."""
    return pa.schema([pa.field(name, pa.binary()) for name in columns])


def read_schema(head: StagedFrame) -> pa.Schema:
    """Read the schema from the first frame."""
    return pa.ipc.read_schema(_decompress(head))


def read_batch(page: StagedFrame, columns: pa.Schema) -> pa.RecordBatch:
    """Read the rows of a page."""
    return pa.ipc.read_record_batch(_decompress(page), columns)


def read_table(pages: Iterable[StagedFrame], columns: pa.Schema) -> pa.Table:
    """Read the rows of several pages."""
    return pa.Table.from_batches([read_batch(page, columns) for page in pages], columns)


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join several batches."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _encode_page(columns: Sequence[pa.Array]) -> bytes:
    batch = pa.record_batch(columns, names=[str(place) for place in range(len(columns))])
    return _encode_frame(batch, batch.num_rows)


def _encode_frame(message: pa.Schema | pa.RecordBatch, rows: int) -> bytes:
    plain = message.serialize()
    return StagedFrame(_LZ4.compress(plain, asbytes=True), plain.size, rows).to_bytes()


def _decompress(frame: StagedFrame) -> pa.Buffer:
    return _LZ4.decompress(frame.packed, decompressed_size=frame.plain_bytes)


def _build_column(cells: Sequence[bytes]) -> pa.Array:
    """Build an Arrow column from its two buffers: the joined cells, and the end of each."""
    ends: Iterable[int] = accumulate(map(len, cells), initial=0)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)


def cut_columns(grid: CellGrid, places: Sequence[int | None]) -> list[pa.Array]:
    """Cut the cells of a flat page into Arrow columns of JSON text, without looking at each cell.

    Args:
        grid: The cells of the page.
        places: For each column, the position of its key in the page; None if the page has no such key.
    """
    shown = [place for place in places if place is not None]
    # The page is read as an Arrow column of alternating cells and separators.
    edges = np.stack([grid.starts, grid.stops], axis=1).astype(np.int32).ravel()
    pieces = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(grid.text)])
    order = np.arange(0, len(edges), 2).reshape(grid.rows, grid.columns)[:, shown].T.ravel()
    # Built from buffers, because `pa.array` loads pandas.
    cells = pieces.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    found = (cells.slice(number * grid.rows, grid.rows) for number in range(len(shown)))
    return [pa.repeat(_NULL_CELL, grid.rows) if place is None else next(found) for place in places]

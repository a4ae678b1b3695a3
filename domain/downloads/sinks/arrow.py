"""The staging format of files that are rendered: an Arrow stream of raw cells.

`head` is the schema message of an Arrow IPC stream, each page one record batch message, so the joined bytes are a
stream that any Arrow reader opens. Every column is binary and holds the JSON text of its cells exactly as the source
wrote it, `null` included. A stream cut after a page is still valid: the end of the bytes is its end.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

CONTENT_TYPE = "application/vnd.apache.parquet"


class ArrowSink:
    """Pages as record batches, from which assembly renders a Parquet file."""

    extension = "parquet"
    content_type = CONTENT_TYPE
    rendered = True

    def head(self, columns: Sequence[str]) -> bytes:
        """The schema message."""
        return bytes(schema(columns).serialize())

    def page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """A record batch message; it names no columns, their order is what counts."""
        if not rows:
            return b""
        columns = [_binary(cells) for cells in zip(*rows, strict=True)]
        return bytes(pa.record_batch(columns, names=[str(place) for place in range(len(columns))]).serialize())


def schema(columns: Sequence[str]) -> pa.Schema:
    """All columns, each holding JSON text."""
    return pa.schema([pa.field(name, pa.binary()) for name in columns])


def _binary(cells: Sequence[bytes]) -> pa.Array:
    """An Arrow column by its two buffers: the cells joined, and where each ends."""
    ends: Iterable[int] = accumulate(map(len, cells), initial=0)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)

"""Buffers: Arrow columns of text seen as bytes and positions, for looks that take no pass over the cells.

A kernel of Arrow costs some nanoseconds for each cell; a look at the joined bytes of a column costs a fraction of one.
So what most columns do not hold (a sign to be escaped, a text too long) is asked of the bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int32]

_OFFSET_BYTES = 4


@dataclass(frozen=True)
class View:
    """The bytes of a column's cells, and where each cell begins and ends in them."""

    data: npt.NDArray[np.uint8]
    starts: Positions
    ends: Positions

    @property
    def lengths(self) -> Positions:
        """The bytes of each cell."""
        return self.ends - self.starts

    @property
    def longest(self) -> int:
        """The bytes of the longest cell."""
        return int(self.lengths.max(initial=0))

    def joined(self) -> bytes:
        """The bytes of all cells."""
        return self.data[self.starts[0] : self.ends[-1]].tobytes() if len(self.starts) else b""

    def at(self, positions: Positions) -> npt.NDArray[np.uint8]:
        """The bytes at some positions; whatever is there if a position lies outside."""
        if not len(self.data):
            return np.zeros(len(positions), np.uint8)
        return self.data.take(positions, mode="clip")


def view(texts: pa.Array) -> View:
    """Look at a column of type binary or string without copying it."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return View(np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))
    positions = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * _OFFSET_BYTES)
    return View(np.frombuffer(data or b"", np.uint8), positions[:-1], positions[1:])


def valid(cells: pa.Array) -> Mask:
    """Which cells are not null."""
    if not cells.null_count:
        return np.ones(len(cells), np.bool_)
    found: Mask = cells.is_valid().to_numpy(zero_copy_only=False)
    return found


def as_string(texts: pa.Array) -> pa.Array:
    """A column of UTF-8 as strings, taken at its word."""
    return texts if pa.types.is_string(texts.type) else texts.view(pa.string())


def only(texts: pa.Array, mask: Mask) -> pa.Array:
    """The same column, null wherever the mask is false."""
    if mask.all():
        return texts
    bits = np.packbits(np.concatenate([np.zeros(texts.offset, np.bool_), mask]), bitorder="little")
    buffers = [pa.py_buffer(bits), *texts.buffers()[1:]]
    return pa.Array.from_buffers(texts.type, len(texts), buffers, offset=texts.offset)


def repeated(text: str, where: Mask) -> pa.Array:
    """A column that holds the text where the mask is true and is empty elsewhere."""
    ends = np.zeros(len(where) + 1, np.int32)
    np.cumsum(where, out=ends[1:])
    ends *= len(text)
    data = text.encode() * int(np.count_nonzero(where))
    return pa.Array.from_buffers(pa.string(), len(where), [None, pa.py_buffer(ends), pa.py_buffer(data)])

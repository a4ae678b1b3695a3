"""Cells: columns of cells with the form of each, and Arrow columns of text seen as bytes and positions.

A kernel of Arrow costs some nanoseconds for each cell; a look at the joined bytes of a column costs a fraction of one.
So what most columns do not hold (a sign to be escaped, a text too long) is looked for in the bytes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from excel.arrow import pa


class CellForm(IntEnum):
    """What a cell is in a workbook."""

    EMPTY = 0
    NUMBER = 1
    BOOLEAN = 2
    DAY = 3
    MOMENT = 4
    TEXT = 5
    RICH = 6
    LINK = 7
    FORMULA = 8


Forms: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class ColumnCellPayloadsAndForms:
    """Cells of a column with their forms."""

    payload: pa.Array
    """Strings: a text, a number's digits, a date's serial number, 1 or 0; null where a cell is empty."""
    forms: Forms
    long_numbers: int = 0
    """Numbers that became texts, because Excel cannot hold their digits."""
    counts: tuple[int, ...] = field(init=False)
    """Cells of each form."""

    def __post_init__(self) -> None:
        counts = np.bincount(self.forms, minlength=len(CellForm)).tolist()
        object.__setattr__(self, "counts", tuple(counts))

    def has_form(self, *forms: CellForm) -> bool:
        """Return whether any cell has one of these forms."""
        return any(self.counts[form] for form in forms)

    def mask_of_forms(self, *forms: CellForm) -> Mask:
        """Return a mask of the cells that have one of these forms."""
        found: Mask = self.forms == forms[0]
        for form in forms[1:]:
            found |= self.forms == form
        return found

    def replace_form_where(
        self, where: Mask, form: CellForm, payload: pa.Array | None = None
    ) -> ColumnCellPayloadsAndForms:
        """Return the cells with another form where the mask is true."""
        forms = np.where(where, np.uint8(form), self.forms)
        return replace(self, payload=self.payload if payload is None else payload, forms=forms)


Mask: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.int32]

_OFFSET_BYTES = 4


@dataclass(frozen=True)
class CellBytesWithOffsets:
    """The bytes of a column's cells, and the start and end of each cell in them."""

    data: npt.NDArray[np.uint8]
    starts: Positions
    ends: Positions

    @property
    def lengths(self) -> Positions:
        """The number of bytes of each cell."""
        return self.ends - self.starts

    @property
    def longest(self) -> int:
        """The number of bytes of the longest cell."""
        return int(self.lengths.max(initial=0))

    def join(self) -> bytes:
        """Return the bytes of all cells."""
        return self.data[self.starts[0] : self.ends[-1]].tobytes() if len(self.starts) else b""

    def bytes_at(self, positions: Positions) -> npt.NDArray[np.uint8]:
        """Return the bytes at some positions; an arbitrary byte for a position outside the data."""
        if not len(self.data):
            return np.zeros(len(positions), np.uint8)
        return self.data.take(positions, mode="clip")


def view_bytes(texts: pa.Array) -> CellBytesWithOffsets:
    """Return the bytes of a column of type binary or string without copying them."""
    _, offsets, data = texts.buffers()
    if offsets is None or not len(texts):
        return CellBytesWithOffsets(np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int32))
    positions = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * _OFFSET_BYTES)
    return CellBytesWithOffsets(np.frombuffer(data or b"", np.uint8), positions[:-1], positions[1:])


def mask_not_null(cells: pa.Array) -> Mask:
    """Return a mask of the cells that are not null."""
    if not cells.null_count:
        return np.ones(len(cells), np.bool_)
    found: Mask = cells.is_valid().to_numpy(zero_copy_only=False)
    return found


def view_as_string(texts: pa.Array) -> pa.Array:
    """Return a column of UTF-8 as strings without validating it."""
    return texts if pa.types.is_string(texts.type) else texts.view(pa.string())


def replace_by_null_unless(texts: pa.Array, mask: Mask) -> pa.Array:
    """Return the column with nulls wherever the mask is false."""
    if mask.all():
        return texts
    bits = np.packbits(np.concatenate([np.zeros(texts.offset, np.bool_), mask]), bitorder="little")
    buffers = [pa.py_buffer(bits), *texts.buffers()[1:]]
    return pa.Array.from_buffers(texts.type, len(texts), buffers, offset=texts.offset)


def repeat_text_where_true(text: str, where: Mask) -> pa.Array:
    """Return a column that holds the text where the mask is true, and empty texts elsewhere."""
    ends = np.zeros(len(where) + 1, np.int32)
    np.cumsum(where, out=ends[1:])
    ends *= len(text)
    data = text.encode() * int(np.count_nonzero(where))
    return pa.Array.from_buffers(pa.string(), len(where), [None, pa.py_buffer(ends), pa.py_buffer(data)])

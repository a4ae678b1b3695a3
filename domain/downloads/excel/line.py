"""Line: rows of text joined from what is the same in each and what is not.

Arrow joins columns of text at some nanoseconds for each text, however short. So what stands between two columns of
values is made one column: the same text in every row, but for the row's number. Among rows whose numbers have as many
digits such a column is the text over and over, with the digits set in at even distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xlsxwriter.utility import xl_col_to_name

from domain.downloads.excel.buffers import repeated, valid

EMPTY_END: Final = "/>"
"""What stands for a null: the end of an empty cell."""

Around: TypeAlias = tuple[str, str]
"""What stands before and behind a value."""

_NUMBER: Final = "\0"


class Line:
    """A row of a sheet, from left to right, as many times as there are rows.

    Args:
        first_number: Of the first row, as the sheet counts.
        rows: How many there are.
    """

    def __init__(self, first_number: int, rows: int) -> None:
        self._first_number = first_number
        self._rows = rows
        self._parts: list[str | pa.Array] = []
        self._pending = ""

    def text(self, text: str) -> None:
        """The same in every row."""
        self._pending += text

    def number(self) -> None:
        """The row's number."""
        self._pending += _NUMBER

    def address(self, column: int, attributes: str = "") -> None:
        """The beginning of a cell.

        Args:
            column: From 0.
            attributes: What all cells of the column have. They stand before the address, because the cells of a row
                have what comes behind it in common, which packs well.
        """
        self._pending += f'<c{attributes} r="{xl_col_to_name(column)}{_NUMBER}"'

    def cells(self, column: pa.Array) -> None:
        """What each row has of its own; a null is the end of an empty cell."""
        self._parts += [self._pending, column]
        self._pending = ""

    def uniform(self, around: Around, payload: pa.Array) -> None:
        """Values of one form, or empty."""
        before, after = around
        if not payload.null_count:
            self.text(before)
            self.cells(payload)
            self.text(after)
            return
        filled = valid(payload)
        self.cells(repeated(before, filled))
        self.cells(payload)
        self.cells(repeated(after, filled))

    def mixed(self, kinds: npt.NDArray[np.intp], around: Sequence[Around], payload: pa.Array) -> None:
        """Values of several kinds: what stands around each is picked from a list."""
        picked = pa.array(kinds)
        before, after = (pa.array(list(sides), pa.string()) for sides in zip(*around, strict=True))
        self.cells(before.take(picked))
        self.cells(payload)
        self.cells(after.take(picked))

    def joined(self) -> pa.Buffer:
        """All rows."""
        parts = [*self._parts, self._pending]
        buffers = [self._span(parts, first, rows) for first, rows in _spans(self._first_number, self._rows)]
        return buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))

    def _span(self, parts: Sequence[str | pa.Array], first: int, rows: int) -> pa.Buffer:
        """Rows whose numbers have as many digits."""
        digits = _digits(first, rows)
        start = first - self._first_number
        columns = [
            _numbered(part, digits) if isinstance(part, str) else part.slice(start, rows) for part in parts if len(part)
        ]
        joined = pc.binary_join_element_wise(*columns, "", null_handling="replace", null_replacement=EMPTY_END)
        _, ends, data = joined.buffers()
        return data.slice(0, int(np.frombuffer(ends, np.int32)[rows]))


def _spans(first: int, rows: int) -> Iterator[tuple[int, int]]:
    """Where numbers of as many digits begin, and how many there are."""
    end = first + rows
    while first < end:
        stop = min(end, 10 ** len(str(first)))
        yield first, stop - first
        first = stop


def _digits(first: int, rows: int) -> npt.NDArray[np.void]:
    """The digits of numbers that have as many of them."""
    texts = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return np.frombuffer(texts.buffers()[2], f"V{len(str(first))}", rows)


def _numbered(text: str, digits: npt.NDArray[np.void]) -> pa.Array:
    """The text as a column, with the digits of each row set in."""
    rows, width = len(digits), digits.dtype.itemsize
    template = text.replace(_NUMBER, "0" * width)
    length = len(template)
    filled = bytearray(template.encode() * rows)
    begin = text.find(_NUMBER)
    for place in range(text.count(_NUMBER)):
        np.ndarray(rows, digits.dtype, filled, begin + place * (width - 1), (length,))[:] = digits
        begin = text.find(_NUMBER, begin + 1)
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(length)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(filled)])

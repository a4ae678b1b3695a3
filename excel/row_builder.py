"""Line: rows of text joined from what is the same in each and what is not.

Arrow joins columns of text at some nanoseconds for each text, however short. So whatever is as long in every row is
made one column, up to the next that is not: the markup between values, the row's number, values such as identifiers and
dates. It is one text over and over, into which what differs is set at even distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from xlsxwriter.utility import xl_col_to_name

from excel.cells import find_valid, repeat_where, view_bytes

EMPTY_END: Final = "/>"
"""What stands for a null: the end of an empty cell."""

Markup: TypeAlias = tuple[str, str]
"""What stands before and behind a value."""

_FIXED_LENGTH_MAX: Final = 64
_BLOCK_ROWS: Final = 64

_FixedTexts: TypeAlias = npt.NDArray[np.void]
"""Texts of one length."""


class Workspace:
    """Memory that is used again for each chunk: what the system gives anew it clears first, and takes back as often."""

    def __init__(self) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0
        self.thread: int | None = None
        """Who worked with it last."""

    def clear(self) -> None:
        """Begin anew; what was taken before may be written over. If there was too little room there is enough now."""
        if self._used > len(self._bytes):
            self._bytes = np.empty(self._used, np.uint8)
        self._used = 0

    def filled(self, text: bytes, times: int) -> npt.NDArray[np.uint8]:
        """A part of it, filled with the text so many times."""
        size = len(text) * times
        part = self._bytes[self._used : self._used + size]
        self._used += size
        if len(part) < size:
            part = np.empty(size, np.uint8)
        block = np.frombuffer(text * _BLOCK_ROWS, np.uint8)
        blocks = times // _BLOCK_ROWS * len(block)
        part[:blocks].reshape(-1, len(block))[:] = block
        part[blocks:] = block[: size - blocks]
        return part


class _RowNumber:
    """The place of the row's number."""


_ROW_NUMBER: Final = _RowNumber()
_Fixed: TypeAlias = list[str | _RowNumber | _FixedTexts]
"""What is as long in every row, from left to right."""
TextColumns: TypeAlias = list[pa.Array]
"""What some rows are joined from."""


class RowBuilder:
    """A row of a sheet, from left to right, as many times as there are rows.

    Args:
        first_number: Of the first row, as the sheet counts.
        rows: How many there are.
    """

    def __init__(self, first_number: int, rows: int) -> None:
        self._first_number = first_number
        self._rows = rows
        self._parts: list[_Fixed | pa.Array] = []
        self._fixed = self._first = list[str | _RowNumber | _FixedTexts]()

    def begin(self, attributes: str | pa.Array) -> None:
        """Put the beginning of the row before all that is there.

        Args:
            attributes: What each row has besides its number; the same in every row, or a column.
        """
        if isinstance(attributes, str):
            self._first[:0] = ['<row r="', _ROW_NUMBER, f'"{attributes}>']
            return
        self._first.insert(0, ">")
        self._parts[:0] = [['<row r="', _ROW_NUMBER, '"'], attributes]

    def text(self, text: str) -> None:
        """The same in every row."""
        self._fixed.append(text)

    def number(self) -> None:
        """The row's number."""
        self._fixed.append(_ROW_NUMBER)

    def address(self, column: int, attributes: str = "") -> None:
        """The beginning of a cell.

        Args:
            column: From 0.
            attributes: What all cells of the column have. They stand before the address, because the cells of a row
                have what comes behind it in common, which packs well.
        """
        self._fixed += [f'<c{attributes} r="{xl_col_to_name(column)}', _ROW_NUMBER, '"']

    def cells(self, column: pa.Array) -> None:
        """What each row has of its own; a null is the end of an empty cell."""
        texts = _view_fixed_length(column)
        if texts is not None:
            self._fixed.append(texts)
            return
        self._parts += [self._fixed, column]
        self._fixed = []

    def uniform(self, around: Markup, payload: pa.Array) -> None:
        """Values of one form, or empty."""
        before, after = around
        if not payload.null_count:
            self.text(before)
            self.cells(payload)
            self.text(after)
            return
        filled = find_valid(payload)
        self.cells(repeat_where(before, filled))
        self.cells(payload)
        self.cells(repeat_where(after, filled))

    def mixed(self, kinds: npt.NDArray[np.intp], around: Sequence[Markup], payload: pa.Array) -> None:
        """Values of several kinds: what stands around each is picked from a list."""
        picked = pa.array(kinds)
        before, after = (pa.array(list(sides), pa.string()) for sides in zip(*around, strict=True))
        self.cells(before.take(picked))
        self.cells(payload)
        self.cells(after.take(picked))

    def laid_out(self, workspace: Workspace) -> list[TextColumns]:
        """All rows, ready to be joined; until they are, the workspace is theirs."""
        workspace.clear()
        parts = [*self._parts, self._fixed]
        return [
            self._span(parts, first, rows, workspace)
            for first, rows in _split_by_digits(self._first_number, self._rows)
        ]

    def _span(self, parts: Sequence[_Fixed | pa.Array], first: int, rows: int, workspace: Workspace) -> TextColumns:
        """Rows whose numbers have as many digits."""
        start = first - self._first_number
        digits = _spell_numbers(first, rows)
        return [
            _fill_column(part, digits, start, workspace) if isinstance(part, list) else part.slice(start, rows)
            for part in parts
            if len(part)
        ]


def join_rows(columns: TextColumns) -> memoryview:
    """Rows as one text."""
    rows = pc.binary_join_element_wise(*columns, "", null_handling="replace", null_replacement=EMPTY_END)
    _, ends, data = rows.buffers()
    return memoryview(data)[: int(np.frombuffer(ends, np.int32)[len(rows)])]


def _split_by_digits(first: int, rows: int) -> Iterator[tuple[int, int]]:
    """Where numbers of as many digits begin, and how many there are."""
    end = first + rows
    while first < end:
        stop = min(end, 10 ** len(str(first)))
        yield first, stop - first
        first = stop


def _spell_numbers(first: int, rows: int) -> _FixedTexts:
    """The digits of numbers that have as many of them."""
    texts = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return np.frombuffer(texts.buffers()[2], f"V{len(str(first))}", rows)


def _view_fixed_length(column: pa.Array) -> _FixedTexts | None:
    """The texts of a column that are all as long; None if they are not, or there are none."""
    seen = view_bytes(column)
    if column.null_count or not len(column):
        return None
    lengths = seen.lengths
    length = int(lengths[0])
    if not 0 < length <= _FIXED_LENGTH_MAX or (lengths != length).any():
        return None
    return np.frombuffer(seen.data, f"V{length}", len(column), int(seen.starts[0]))


def _fill_column(fixed: _Fixed, digits: _FixedTexts, start: int, workspace: Workspace) -> pa.Array:
    """A column of all that is as long in every row.

    Args:
        digits: Of the numbers of the rows.
        start: The place of the first of these rows in the columns of texts.
        workspace: Where it is made.
    """
    template, insets, rows = "", [], len(digits)
    for part in fixed:
        if isinstance(part, str):
            template += part
        else:
            texts = digits if isinstance(part, _RowNumber) else part[start : start + rows]
            insets.append((len(template), texts))
            template += "0" * texts.dtype.itemsize
    filled = workspace.filled(template.encode(), rows)
    for place, texts in insets:
        np.ndarray(rows, texts.dtype, filled.data, place, (len(template),))[:] = texts
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(template))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(filled)])

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
import pyarrow.compute as pc
from xlsxwriter.utility import xl_col_to_name

from excel.arrow import pa
from excel.cells import mask_not_null, repeat_text_where_true, view_bytes

EMPTY_END: Final = "/>"
"""Written for a null: the end of an empty cell."""

Markup: TypeAlias = tuple[str, str]
"""The markup before and after a value."""

_FIXED_LENGTH_MAX: Final = 64
_BLOCK_ROWS: Final = 64

_FixedTexts: TypeAlias = npt.NDArray[np.void]
"""Texts of one length."""


class ReusableBuffer:
    """Memory that is reused for each chunk, as the system clears new memory first."""

    def __init__(self) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0
        self.thread: int | None = None
        """The thread that used it last."""

    def reset_and_grow_to_last_need(self) -> None:
        """Start again: parts handed out before may be overwritten. Grow to what was needed last time."""
        if self._used > len(self._bytes):
            self._bytes = np.empty(self._used, np.uint8)
        self._used = 0

    def allocate_filled(self, text: bytes, times: int) -> npt.NDArray[np.uint8]:
        """Return a part of the memory filled with repetitions of a text."""
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


class _RowNumberPlaceholder:
    """Placeholder for the number of the row."""


_ROW_NUMBER: Final = _RowNumberPlaceholder()
_Fixed: TypeAlias = list[str | _RowNumberPlaceholder | _FixedTexts]
"""Parts that have the same length in every row, from left to right."""
TextColumns: TypeAlias = list[pa.Array]
"""Columns that rows are joined from."""


class ChunkRowsXmlBuilder:
    """Builds all rows of a chunk at once, from left to right.

    Args:
        first_number: Of the first row, as the sheet counts.
        rows: The number of rows.
    """

    def __init__(self, first_number: int, rows: int) -> None:
        self._first_number = first_number
        self._rows = rows
        self._parts: list[_Fixed | pa.Array] = []
        self._fixed = self._first = list[str | _RowNumberPlaceholder | _FixedTexts]()

    def insert_row_starts(self, attributes: str | pa.Array) -> None:
        """Insert the beginning of the row before all that was added.

        Args:
            attributes: What each row has besides its number; the same in every row, or a column.
        """
        if isinstance(attributes, str):
            self._first[:0] = ['<row r="', _ROW_NUMBER, f'"{attributes}>']
            return
        self._first.insert(0, ">")
        self._parts[:0] = [['<row r="', _ROW_NUMBER, '"'], attributes]

    def add_text(self, text: str) -> None:
        """Add the same text to every row."""
        self._fixed.append(text)

    def add_row_number(self) -> None:
        """Add the number of each row."""
        self._fixed.append(_ROW_NUMBER)

    def begin_cell(self, column: int, attributes: str = "") -> None:
        """Add the beginning of a cell.

        Args:
            column: From 0.
            attributes: Attributes of all cells of the column, written before the address, because the cells of a row
                have what comes behind it in common, which packs well.
        """
        self._fixed += [f'<c{attributes} r="{xl_col_to_name(column)}', _ROW_NUMBER, '"']

    def add_varying_texts(self, column: pa.Array) -> None:
        """Add a text that differs from row to row; a null is the end of an empty cell."""
        texts = _view_fixed_length(column)
        if texts is not None:
            self._fixed.append(texts)
            return
        self._parts += [self._fixed, column]
        self._fixed = []

    def add_uniform_cells(self, around: Markup, payload: pa.Array) -> None:
        """Add values of one form, or empty ones."""
        before, after = around
        if not payload.null_count:
            self.add_text(before)
            self.add_varying_texts(payload)
            self.add_text(after)
            return
        filled = mask_not_null(payload)
        self.add_varying_texts(repeat_text_where_true(before, filled))
        self.add_varying_texts(payload)
        self.add_varying_texts(repeat_text_where_true(after, filled))

    def add_mixed_cells(
        self, markup_indexes: npt.NDArray[np.intp], markups: Sequence[Markup], payload: pa.Array
    ) -> None:
        """Add values of several kinds: the markup around each is taken from a list."""
        picked = pa.array(markup_indexes)
        before, after = (pa.array(list(sides), pa.string()) for sides in zip(*markups, strict=True))
        self.add_varying_texts(before.take(picked))
        self.add_varying_texts(payload)
        self.add_varying_texts(after.take(picked))

    def build_columns_by_digits_of_row_number(self, workspace: ReusableBuffer) -> list[TextColumns]:
        """Return all rows, ready to be joined; until then they use the workspace."""
        workspace.reset_and_grow_to_last_need()
        parts = [*self._parts, self._fixed]
        return [
            self._build_columns_of_rows_with_equal_digits(parts, first, rows, workspace)
            for first, rows in _split_by_digits(self._first_number, self._rows)
        ]

    def _build_columns_of_rows_with_equal_digits(
        self, parts: Sequence[_Fixed | pa.Array], first: int, rows: int, workspace: ReusableBuffer
    ) -> TextColumns:
        """Return the columns of rows whose numbers have the same number of digits."""
        start = first - self._first_number
        digits = _format_row_numbers(first, rows)
        return [
            _build_fixed_length_column(part, digits, start, workspace)
            if isinstance(part, list)
            else part.slice(start, rows)
            for part in parts
            if len(part)
        ]


def join_rows(columns: TextColumns) -> memoryview:
    """Join rows into one text."""
    rows = pc.binary_join_element_wise(*columns, "", null_handling="replace", null_replacement=EMPTY_END)
    _, ends, data = rows.buffers()
    return memoryview(data)[: int(np.frombuffer(ends, np.int32)[len(rows)])]


def _split_by_digits(first: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield the first number and the count of each run of numbers with the same number of digits."""
    end = first + rows
    while first < end:
        stop = min(end, 10 ** len(str(first)))
        yield first, stop - first
        first = stop


def _format_row_numbers(first: int, rows: int) -> _FixedTexts:
    """Return consecutive numbers that have the same number of digits, as texts."""
    texts = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return np.frombuffer(texts.buffers()[2], f"V{len(str(first))}", rows)


def _view_fixed_length(column: pa.Array) -> _FixedTexts | None:
    """Return the texts of a column that all have one length; None if they have not, or there are none."""
    seen = view_bytes(column)
    if column.null_count or not len(column):
        return None
    lengths = seen.lengths
    length = int(lengths[0])
    if not 0 < length <= _FIXED_LENGTH_MAX or (lengths != length).any():
        return None
    return np.frombuffer(seen.data, f"V{length}", len(column), int(seen.starts[0]))


def _build_fixed_length_column(fixed: _Fixed, digits: _FixedTexts, start: int, workspace: ReusableBuffer) -> pa.Array:
    """Return a column of the parts that have the same length in every row.

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
            texts = digits if isinstance(part, _RowNumberPlaceholder) else part[start : start + rows]
            insets.append((len(template), texts))
            template += "0" * texts.dtype.itemsize
    filled = workspace.allocate_filled(template.encode(), rows)
    for place, texts in insets:
        np.ndarray(rows, texts.dtype, filled.data, place, (len(template),))[:] = texts
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(template))
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(ends), pa.py_buffer(filled)])

"""Arrow: the staging format of rendered files, and the Parquet file that is rendered from it.

Types are decided when the file is rendered, so nothing is interpreted while pages arrive. Each frame is an Arrow IPC
message, compressed by LZ4: the head is a schema, each page one record batch. Every column is binary and holds the JSON
text of its cells, including `null`, as the source wrote it.

A column of the Parquet file gets the narrowest type that keeps every cell, and text if there is none:

- only `true` and `false`: boolean
- only whole numbers of 64 bits: int64
- only numbers, some with a fraction or an exponent: decimal128 of as many digits as needed, up to 38
- anything else, including longer whole numbers: string; a cell that is no JSON text keeps its JSON

`null` is null in every column; a column of nulls only is string. No number becomes a float.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import msgspec
import numpy as np
import pyarrow.compute as pc

from domain.downloads.flat import CellGrid
from domain.downloads.staging import CompressedPageFrame
from excel.arrow import pa

PARQUET_TYPE = "application/vnd.apache.parquet"
EXCEL_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

DECIMAL_DIGITS_MAX = 38
INT64_DIGITS_SAFE = 18
EXPONENT_DIGITS_MAX = 5

_EXPONENT = re.compile(rb"-?(\d+)(?:\.(\d+))?[eE]([+-]?\d+)")
_KINDS = {b'"': "text", b"{": "text", b"[": "text", b"t": "boolean", b"f": "boolean", b"n": "null"}
_NULL_CELL = pa.scalar(b"null", pa.binary())
_LZ4 = pa.Codec("lz4_raw")


class ArrowSink:
    """Pages as record batches, from which a file is rendered."""

    needs_rendering = True

    def __init__(self, extension: str, content_type: str) -> None:
        self.extension = extension
        self.content_type = content_type

    def encode_head(self, columns: Sequence[str]) -> bytes:
        """Encode the schema as a frame."""
        return _encode_frame(build_staged_schema(columns), 0)

    def encode_page(self, rows: Sequence[Sequence[bytes]]) -> bytes:
        """Encode rows as a record batch; columns have no names, only an order."""
        if not rows:
            return b""
        return _encode_columns([_build_binary_column(cells) for cells in zip(*rows, strict=True)])

    def encode_grid(self, grid: CellGrid, places: Sequence[int | None]) -> bytes:
        """Encode a flat page as a record batch."""
        return _encode_columns(slice_into_columns(grid, places))


def build_staged_schema(columns: Sequence[str]) -> pa.Schema:
    """Build a schema of binary columns, which hold JSON text."""
    return pa.schema([pa.field(name, pa.binary()) for name in columns])


def decode_schema(head: CompressedPageFrame) -> pa.Schema:
    """Read the schema from the first frame."""
    return pa.ipc.read_schema(_decompress(head))


def decode_record_batch(page: CompressedPageFrame, schema: pa.Schema) -> pa.RecordBatch:
    """Read the rows of a page."""
    return pa.ipc.read_record_batch(_decompress(page), schema)


def decode_table(pages: Iterable[CompressedPageFrame], columns: pa.Schema) -> pa.Table:
    """Read the rows of several pages."""
    return pa.Table.from_batches([decode_record_batch(page, columns) for page in pages], columns)


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join several batches."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def slice_into_columns(grid: CellGrid, places: Sequence[int | None]) -> list[pa.Array]:
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


@dataclass
class _ColumnCellKindsAndDigitCounts:
    """Statistics of the cells of one column so far."""

    kinds: set[str]
    whole_digits: int = 0
    fraction_digits: int = 0
    fractional: bool = False
    fits_int64: bool = True

    def add(self, cells: pa.Array) -> None:
        """Add some more cells."""
        starts = pc.unique(pc.binary_slice(cells, 0, 1)).to_pylist()
        kinds = {_KINDS.get(start, "number") for start in starts}
        self.kinds |= kinds
        # Numbers beside texts are texts, so there is no need to measure them.
        if "number" in kinds and self.kinds <= {"number", "null"}:
            self._measure_digits(cells if kinds == {"number"} else cells.filter(pc.not_equal(cells, _NULL_CELL)))

    def _measure_digits(self, numbers: pa.Array) -> None:
        """Update the number of digits before and after the point."""
        with_exponent = pc.match_substring_regex(numbers, "[eE]")
        if pc.any(with_exponent).as_py():
            for number in numbers.filter(with_exponent).to_pylist():
                self._increase_digit_maxima(*_count_digits_of_exponent(number))
            self.fractional = True
            numbers = numbers.filter(pc.invert(with_exponent))
        if not len(numbers):
            return
        lengths, points = pc.binary_length(numbers), pc.find_substring(numbers, b".")
        pointed = pc.greater_equal(points, 0)
        signs = pc.cast(pc.starts_with(numbers, b"-"), pa.int32())
        whole = pc.subtract(pc.if_else(pointed, points, lengths), signs)
        fraction = pc.if_else(pointed, pc.subtract(pc.subtract(lengths, points), 1), 0)
        self._increase_digit_maxima(pc.max(whole).as_py(), pc.max(fraction).as_py())
        self.fractional |= pc.any(pointed).as_py()
        if not self.fractional and self.whole_digits > INT64_DIGITS_SAFE:
            self.fits_int64 = self.fits_int64 and _are_all_int64(numbers)

    def _increase_digit_maxima(self, whole: int, fraction: int) -> None:
        self.whole_digits = max(self.whole_digits, whole)
        self.fraction_digits = max(self.fraction_digits, fraction)

    @property
    def narrowest_exact_arrow_type(self) -> pa.DataType:
        """The narrowest type that keeps all cells as they are."""
        kinds = self.kinds - {"null"}
        if kinds == {"boolean"}:
            return pa.bool_()
        if kinds != {"number"}:
            return pa.string()
        if not self.fractional:
            return pa.int64() if self.fits_int64 else pa.string()
        digits = self.whole_digits + self.fraction_digits
        return pa.decimal128(digits, self.fraction_digits) if digits <= DECIMAL_DIGITS_MAX else pa.string()


class ColumnTypeInference:
    """The first pass over all staged rows: infers the types of the columns, and counts rows."""

    def __init__(self, head: CompressedPageFrame) -> None:
        self.staged = decode_schema(head)
        self.rows = 0
        self._columns = [_ColumnCellKindsAndDigitCounts(set()) for _ in self.staged]

    def add(self, pages: Sequence[CompressedPageFrame]) -> None:
        """Add some pages."""
        table = decode_table(pages, self.staged)
        self.rows += table.num_rows
        for column, cells in zip(self._columns, table.columns, strict=True):
            column.add(cells.combine_chunks())

    @property
    def schema(self) -> pa.Schema:
        """The schema of the file."""
        fields = zip(self.staged.names, self._columns, strict=True)
        return pa.schema([pa.field(name, column.narrowest_exact_arrow_type) for name, column in fields])


class ParquetRenderer:
    """The second pass: writes one row group for each call, and returns the bytes of the file as they arise."""

    def __init__(self, survey: ColumnTypeInference) -> None:
        self._staged = survey.staged
        self._schema = survey.schema
        self._outbox = _WriteBuffer()
        # Loaded by whoever renders Parquet only.
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._writer = pq.ParquetWriter(self._outbox, self._schema)

    def write_row_group(self, pages: Sequence[CompressedPageFrame]) -> bytes:
        """Write pages as one row group."""
        table = decode_table(pages, self._staged)
        columns = [
            _cast_cells(cells.combine_chunks(), field.type)
            for cells, field in zip(table.columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=max(1, table.num_rows))
        return self._outbox.take_written()

    def write_footer_and_take_bytes(self) -> bytes:
        """Write the footer, which completes the file."""
        self._writer.close()
        return self._outbox.take_written()


class _WriteBuffer(io.RawIOBase):
    """A write-only file that is emptied as it grows."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._pieces.append(bytes(data))
        self._position += len(data)
        return len(data)

    def take_written(self) -> bytes:
        """Return and remove what was written since the last call."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def _encode_columns(columns: Sequence[pa.Array]) -> bytes:
    batch = pa.record_batch(columns, names=[str(place) for place in range(len(columns))])
    return _encode_frame(batch, batch.num_rows)


def _encode_frame(message: pa.Schema | pa.RecordBatch, rows: int) -> bytes:
    plain = message.serialize()
    return CompressedPageFrame(_LZ4.compress(plain, asbytes=True), plain.size, rows).to_bytes()


def _decompress(frame: CompressedPageFrame) -> pa.Buffer:
    return _LZ4.decompress(frame.packed, decompressed_size=frame.plain_bytes)


def _build_binary_column(cells: Sequence[bytes]) -> pa.Array:
    """Build an Arrow column from its two buffers: the joined cells, and the end of each."""
    ends: Iterable[int] = accumulate(map(len, cells), initial=0)
    buffers = [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(cells))]
    return pa.Array.from_buffers(pa.binary(), len(cells), buffers)


def _count_digits_of_exponent(number: bytes) -> tuple[int, int]:
    """Return the digits before and after the point that a number with an exponent has when written without."""
    found = _EXPONENT.fullmatch(number)
    if found is None:
        raise ValueError(f"{number[:80]!r} is no JSON number.")
    digits = found[3].lstrip(b"+-0")
    if len(digits) > EXPONENT_DIGITS_MAX:
        # Python reads no integer of thousands of digits, and no decimal column holds such a number.
        return DECIMAL_DIGITS_MAX + 1, 0
    whole, fraction, exponent = len(found[1]), len(found[2] or b""), int(digits or b"0")
    if found[3].startswith(b"-"):
        exponent = -exponent
    return max(1, whole + exponent), max(0, fraction - exponent)


def _are_all_int64(numbers: pa.Array) -> bool:
    try:
        numbers.cast(pa.string()).cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _cast_cells(cells: pa.Array, data_type: pa.DataType) -> pa.Array:
    cells = pc.if_else(pc.equal(cells, _NULL_CELL), pa.scalar(None, pa.binary()), cells)
    if pa.types.is_boolean(data_type):
        return pc.equal(cells, b"true")
    if pa.types.is_string(data_type):
        return _decode_json_texts(cells).cast(pa.string())
    return cells.cast(pa.string()).cast(data_type)


def _decode_json_texts(cells: pa.Array) -> pa.Array:
    """Decode JSON texts; leave other cells as they were written."""
    quoted = pc.starts_with(cells, b'"')
    plain = pc.if_else(quoted, pc.binary_slice(cells, 1, -1), cells)
    escaped = pc.fill_null(pc.and_(quoted, pc.match_substring(cells, b"\\")), False)
    if not pc.any(escaped).as_py():
        return plain
    read = [msgspec.json.decode(cell, type=str).encode() for cell in cells.filter(escaped).to_pylist()]
    return pc.replace_with_mask(plain, escaped, pa.array(read, pa.binary()))

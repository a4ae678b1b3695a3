"""Archive: the zip file of a workbook, whose entries are deflated in pieces, and sheets that rows are spliced into.

A piece of raw deflate that is ended by a full flush can be joined with the next, and the check sums of pieces combine.
So a sheet of any size is packed chunk by chunk, by any number of threads. Sizes are known before an entry is written:
no entry needs a data descriptor, nor ever Zip64, which Excel takes for damage.
"""

from __future__ import annotations

import re
import struct
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Final

from isal import isal_zlib
from xlsxwriter.utility import xl_cell_to_rowcol, xl_range

Write = Callable[[bytes], object]

SIZE_MAX: Final = 2**32 - 1
LEVEL: Final = 1
_SPOOLED_BYTES: Final = 4 * 1024 * 1024
_READ_BYTES: Final = 1024 * 1024
_RAW: Final = -15
_LOCAL, _CENTRAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s4H2LH")
_VERSION, _DEFLATED = 20, 8
# 1980-01-01, as xlsxwriter has it: the same data make the same book.
_TIME, _DATE = 0, 33


@dataclass(frozen=True)
class CheckedDeflatedPiece:
    """A part of an entry: its deflated bytes, and the check sum and length of what they say."""

    data: bytes
    crc32: int
    length: int


def deflate(*contents: bytes | memoryview, last: bool = False) -> CheckedDeflatedPiece:
    """Deflate a piece, from one content or several; the last piece ends the entry."""
    compressor = isal_zlib.compressobj(LEVEL, isal_zlib.DEFLATED, _RAW)
    data, crc32 = [], 0
    for content in contents:
        data.append(compressor.compress(content))
        crc32 = isal_zlib.crc32(content, crc32)
    data.append(compressor.flush(isal_zlib.Z_FINISH if last else isal_zlib.Z_FULL_FLUSH))
    return CheckedDeflatedPiece(b"".join(data), crc32, sum(memoryview(content).nbytes for content in contents))


class SpooledPieces:
    """Store pieces in memory, and in a temporary file once they are large.

    Args:
        folder: Where that file lies; None is the system's own for such files.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_SPOOLED_BYTES, dir=folder)  # noqa: SIM115
        # A book that is given up is not read to its end.
        weakref.finalize(self, self._file.close)
        self.crc32 = 0
        self.length = 0
        self.size = 0

    def add(self, piece: CheckedDeflatedPiece) -> None:
        """Append a piece."""
        self._file.write(piece.data)
        self.crc32 = isal_zlib.crc32_combine(self.crc32, piece.crc32, piece.length)
        self.length += piece.length
        self.size += len(piece.data)

    def read_all_and_close(self) -> Iterator[bytes]:
        """Yield all bytes and close the file: a spool is read once."""
        self._file.seek(0)
        while data := self._file.read(_READ_BYTES):
            yield data
        self._file.close()


class ZipArchive:
    """Writes a zip file, entry after entry."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._position = 0
        self._directory: list[bytes] = []

    def write_entry(self, name: str, parts: Iterable[CheckedDeflatedPiece | SpooledPieces]) -> None:
        """Add an entry; the last part must end it."""
        parts = list(parts)
        crc32 = length = size = 0
        for part in parts:
            crc32 = isal_zlib.crc32_combine(crc32, part.crc32, part.length)
            length += part.length
            size += part.size if isinstance(part, SpooledPieces) else len(part.data)
        if max(length, self._position + size) > SIZE_MAX:
            raise OverflowError(f"{name} has {length:,} bytes, and a workbook without Zip64 can hold {SIZE_MAX:,}.")
        encoded = name.encode()
        head = (_VERSION, 0, _DEFLATED, _TIME, _DATE, crc32, size, length, len(encoded), 0)
        self._directory.append(_CENTRAL.pack(b"PK\1\2", _VERSION, *head, 0, 0, 0, 0, self._position) + encoded)
        self._write_and_advance(_LOCAL.pack(b"PK\3\4", *head) + encoded)
        for part in parts:
            for data in part.read_all_and_close() if isinstance(part, SpooledPieces) else (part.data,):
                self._write_and_advance(data)

    def write_directory_and_get_file_size(self) -> int:
        """Write the directory and return the size of the whole file."""
        start, directory = self._position, b"".join(self._directory)
        entries = len(self._directory)
        self._write_and_advance(directory + _END.pack(b"PK\5\6", 0, 0, entries, entries, len(directory), start, 0))
        return self._position

    def _write_and_advance(self, data: bytes) -> None:
        self._write(data)
        self._position += len(data)


_ROW = re.compile(rb'<row r="(\d+)"')
_DIMENSION = re.compile(rb'<dimension ref="([A-Z]+[0-9]+)(?::([A-Z]+[0-9]+))?"/>')
_NO_ROWS = b"<sheetData/>"
_ROWS_END = b"</sheetData>"


@dataclass(frozen=True)
class SplicedTableBody:
    """The rows of a table, which xlsxwriter left out, and the row at which they begin."""

    first_row: int
    rows: int
    last_column: int
    content: SpooledPieces


def insert_bodies_into_sheet(
    sheet: bytes, insets: Sequence[SplicedTableBody]
) -> list[CheckedDeflatedPiece | SpooledPieces]:
    """Return the parts of a sheet's entry: what xlsxwriter wrote, with the bodies set in from top to bottom."""
    sheet = _extend_dimension(sheet.replace(_NO_ROWS, b"<sheetData></sheetData>"), insets)
    starts = [(int(row[1]) - 1, row.start()) for row in _ROW.finditer(sheet)]
    starts.append((2**20, sheet.index(_ROWS_END)))
    parts: list[CheckedDeflatedPiece | SpooledPieces] = []
    done = 0
    for inset in insets:
        cut = next(start for row, start in starts if row >= inset.first_row)
        parts += [deflate(sheet[done:cut]), inset.content]
        done = cut
    return [*parts, deflate(sheet[done:], last=True)]


def _extend_dimension(sheet: bytes, insets: Sequence[SplicedTableBody]) -> bytes:
    """Extend the dimension that the sheet declares over the bodies, as readers trust it."""
    found = _DIMENSION.search(sheet)
    if found is None:
        raise ValueError("xlsxwriter wrote a sheet without dimension; its version is not the one that is pinned.")
    row, column = xl_cell_to_rowcol((found[2] or found[1]).decode())
    for inset in insets:
        if inset.rows:
            row, column = max(row, inset.first_row + inset.rows - 1), max(column, inset.last_column)
    reference = f'<dimension ref="{xl_range(0, 0, row, column)}"/>'
    return sheet[: found.start()] + reference.encode() + sheet[found.end() :]

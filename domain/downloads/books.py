"""Books of an Excel download: among how many its rows are divided, and the format of the zip archive of several."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import BaseModel

from excel.limits import WorkbookReport

# Share of the maximum size that is planned for, since rows vary; a book that grows beyond it is split.
FILL_RATIO: Final = 0.92
ZIP_MAX_BYTES: Final = 2**32 - 1
ZIP_MAX_MEMBERS: Final = 2**16 - 1
ZIP_CONTENT_TYPE: Final = "application/zip"
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION = 20
_UTF_8_NAMES = 0x0800
_STORED = 0


class TooManyRowsForBook(Exception):
    """A book that cannot be split has more rows than allowed."""


class Segment(BaseModel):
    """Consecutive rows that are planned for one book. They become several books if rows are larger than sampled."""

    number: int
    count: int
    """Number of segments."""
    first_row: int
    rows: int
    whole: bool = False
    """Whether it must stay one book of any size, because it has row heads or several tables."""

    @property
    def last(self) -> bool:
        """Whether it is the last segment."""
        return self.number == self.count - 1

    def book_name(self, place: int, stem: str) -> str:
        """Return the name of a book in the archive; names sort in the order of the books."""
        letters = "z" * (place // 25) + (chr(ord("a") + place % 25) if place % 25 else "")
        return f"{stem}-{self.number + 1:0{len(str(self.count))}}{letters}.xlsx"


class RenderedBook(BaseModel):
    """A rendered book."""

    member: ZipMember
    etag: str = ""
    """ETag of its object; empty if it is in a part of the archive."""
    report: WorkbookReport


def plan_single_book(rows: int, max_rows: int) -> list[Segment]:
    """Plan a single book for all rows.

    Raises:
        TooManyRowsForBook: A book may not have as many.
    """
    if rows > max_rows:
        raise TooManyRowsForBook(f"{rows:,} rows")
    return [Segment(number=0, count=1, first_row=0, rows=rows, whole=True)]


def plan_segments(rows: int, row_bytes: float, max_bytes: int, max_rows: int) -> list[Segment]:
    """Plan as few segments as possible, of even size.

    Args:
        rows: All rows.
        row_bytes: Bytes per row in a book.
        max_bytes: The maximum size of a book.
        max_rows: The maximum rows of a book.
    """
    count = max(1, -(-rows // max_rows), -(-int(rows * row_bytes) // max(1, int(max_bytes * FILL_RATIO))))
    count = min(count, max(1, rows))
    share, extra = divmod(rows, count)
    found, first = [], 0
    for number in range(count):
        size = share + (number < extra)
        found.append(Segment(number=number, count=count, first_row=first, rows=size))
        first += size
    return found


class ZipTooLarge(Exception):
    """The members exceed the limits of a zip archive."""


class ZipMember(BaseModel):
    """One file of the archive."""

    name: str
    bytes: int
    crc32: int


def require_zip_limits(members: Sequence[ZipMember]) -> None:
    """Check that the members fit into a zip archive.

    Raises:
        ZipTooLarge: They do not.
    """
    names = sum(len(member.name.encode()) for member in members)
    around = len(members) * (_LOCAL.size + _CENTRAL.size) + 2 * names + _END.size
    size = around + sum(member.bytes for member in members)
    if size > ZIP_MAX_BYTES or len(members) > ZIP_MAX_MEMBERS:
        raise ZipTooLarge(f"{len(members):,} files of {size:,} bytes in all")


def encode_local_header(member: ZipMember, written_at: datetime) -> bytes:
    """Return the header that precedes the content of a member."""
    name = member.name.encode()
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, *_common_fields(member, name, written_at)) + name


def encode_central_directory(members: Sequence[ZipMember], written_at: datetime) -> bytes:
    """Return the directory that follows the last member and has the position of each."""
    entries: list[bytes] = []
    position = 0
    for member in members:
        name = member.name.encode()
        common = _common_fields(member, name, written_at)
        entries.append(_CENTRAL.pack(b"PK\x01\x02", _VERSION, _VERSION, *common, 0, 0, 0, 0, position) + name)
        position += _LOCAL.size + len(name) + member.bytes
    central, count = b"".join(entries), len(entries)
    return central + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(central), position, 0)


def _common_fields(member: ZipMember, name: bytes, written_at: datetime) -> tuple[int, ...]:
    """Return the fields that both records of a member share."""
    time = written_at.hour << 11 | written_at.minute << 5 | written_at.second // 2
    date = (written_at.year - 1980) << 9 | written_at.month << 5 | written_at.day
    return (_UTF_8_NAMES, _STORED, time, date, member.crc32, member.bytes, member.bytes, len(name), 0)

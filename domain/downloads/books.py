"""Books of an Excel download: how many its rows are shared out among, and the zip archive that holds several."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pydantic import BaseModel

from excel.limits import WorkbookReport

# What a book is planned to fill of the size it may have: rows differ, and one that grows too large is cut in two.
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
    """A book that must be one has more rows than a book may have."""


class Segment(BaseModel):
    """Consecutive rows that one book is planned for. It may become several where rows are larger than was seen."""

    number: int
    count: int
    """How many segments there are."""
    first_row: int
    rows: int
    whole: bool = False
    """Whether it must stay one book, however large: rows under row heads, or several tables."""

    @property
    def last(self) -> bool:
        """Whether no other follows."""
        return self.number == self.count - 1

    def book_name(self, place: int, stem: str) -> str:
        """The name of one of its books in an archive; names sort as the books follow each other."""
        letters = "z" * (place // 25) + (chr(ord("a") + place % 25) if place % 25 else "")
        return f"{stem}-{self.number + 1:0{len(str(self.count))}}{letters}.xlsx"


class RenderedBook(BaseModel):
    """A rendered book."""

    member: ZipMember
    etag: str = ""
    """Of its object; none where it lies in a part of the archive."""
    report: WorkbookReport


def plan_single_book(rows: int, max_rows: int) -> list[Segment]:
    """All in one book.

    Raises:
        TooManyRows: It may not have as many.
    """
    if rows > max_rows:
        raise TooManyRowsForBook(f"{rows:,} rows")
    return [Segment(number=0, count=1, first_row=0, rows=rows, whole=True)]


def plan_segments(rows: int, row_bytes: float, max_bytes: int, max_rows: int) -> list[Segment]:
    """As few segments as will do, of even size.

    Args:
        row_bytes: What a row takes in a book.
        max_bytes: What a book may have.
        max_rows: The most rows a book may have.
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
    """The members are more than a zip archive holds."""


class ZipMember(BaseModel):
    """One file of the archive."""

    name: str
    bytes: int
    crc32: int


def require_zip_limits(members: Sequence[ZipMember]) -> None:
    """See that the members fit.

    Raises:
        ArchiveTooLarge: They do not.
    """
    names = sum(len(member.name.encode()) for member in members)
    around = len(members) * (_LOCAL.size + _CENTRAL.size) + 2 * names + _END.size
    size = around + sum(member.bytes for member in members)
    if size > ZIP_MAX_BYTES or len(members) > ZIP_MAX_MEMBERS:
        raise ZipTooLarge(f"{len(members):,} files of {size:,} bytes in all")


def encode_local_header(member: ZipMember, written_at: datetime) -> bytes:
    """What stands before the content of a member, wherever in the archive that is."""
    name = member.name.encode()
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, *_common_fields(member, name, written_at)) + name


def encode_central_directory(members: Sequence[ZipMember], written_at: datetime) -> bytes:
    """What stands behind the last member: it tells where each begins."""
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
    """What both records of a member tell."""
    time = written_at.hour << 11 | written_at.minute << 5 | written_at.second // 2
    date = (written_at.year - 1980) << 9 | written_at.month << 5 | written_at.day
    return (_UTF_8_NAMES, _STORED, time, date, member.crc32, member.bytes, member.bytes, len(name), 0)

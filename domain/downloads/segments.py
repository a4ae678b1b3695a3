"""Segments: how the rows of an export are shared out among books, none of which may be too large."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from domain.downloads.archive import Member
from excel.report import BookReport

# What a book is planned to fill of the size it may have: rows differ, and one that grows too large is cut in two.
FILLED: Final = 0.92


class TooManyRows(Exception):
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


class Book(BaseModel):
    """A rendered book."""

    member: Member
    etag: str = ""
    """Of its object; none where it lies in a part of the archive."""
    report: BookReport


def whole(rows: int, max_rows: int) -> list[Segment]:
    """All in one book.

    Raises:
        TooManyRows: It may not have as many.
    """
    if rows > max_rows:
        raise TooManyRows(f"{rows:,} rows")
    return [Segment(number=0, count=1, first_row=0, rows=rows, whole=True)]


def segments(rows: int, row_bytes: float, max_bytes: int, max_rows: int) -> list[Segment]:
    """As few segments as will do, of even size.

    Args:
        row_bytes: What a row takes in a book.
        max_bytes: What a book may have.
        max_rows: The most rows a book may have.
    """
    count = max(1, -(-rows // max_rows), -(-int(rows * row_bytes) // max(1, int(max_bytes * FILLED))))
    count = min(count, max(1, rows))
    share, extra = divmod(rows, count)
    found, first = [], 0
    for number in range(count):
        size = share + (number < extra)
        found.append(Segment(number=number, count=count, first_row=first, rows=size))
        first += size
    return found

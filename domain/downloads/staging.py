"""Staging: what a fetcher has secured, and how the pieces of all fetchers become one object.

Every range owns a block of part numbers of the final multipart upload. Full parts are final bytes and are uploaded at
once; what is not yet enough for a part lies in a *tail*, an object of its own, until it is. The ledger of a range says
how far both reach, and is what a retry goes on from.

Rows of a file that is rendered are staged as *frames*: each is one packed page behind three numbers of four bytes: the
packed bytes, the bytes when unpacked, and the rows.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from domain.downloads.books import RenderedBook

MIB: Final = 1024 * 1024
PART_BYTES: Final = 8 * MIB
# A part is cut only when enough is left that what follows can never be under the store's minimum.
PART_MIN_BYTES: Final = 5 * MIB
CUT_AT_BYTES: Final = PART_BYTES + PART_MIN_BYTES
MARK_BYTES: Final = MIB
"""So far apart are the marks of a tail, if its pages are not larger."""
MAX_PARTS: Final = 9_999

_FRAME_HEAD = struct.Struct(">III")


class PartRecord(BaseModel):
    """One uploaded part of the final object."""

    number: int
    bytes: int
    etag: str
    sha256: str
    rows: int


class TailMark(BaseModel):
    """A place between two pages, so many bytes after the mark before: there a part may end."""

    bytes: int
    next_page: int
    rows: int
    """Of the whole range until here."""


class TailRecord(BaseModel):
    """Bytes that wait for more: an object of its own in the staging area.

    Its marks let whoever goes on make a part of its first pages. A tail that could only be taken whole would grow for
    ever under a source so slow that an attempt reads less than a store's smallest part.
    """

    key: str
    bytes: int
    sha256: str
    rows: int
    marks: list[TailMark] = []


class RenderedSegment(BaseModel):
    """The books of a segment of rows, in order."""

    books: list[RenderedBook]
    part: PartRecord | None = None
    """The part of the archive that they are; without it, each is an object of its own."""


class RangeLedger(BaseModel):
    """What one range has secured: pages before `next_page` are in its parts and its tail, or in its books."""

    upload_id: str
    range: int
    next_page: int
    rows: int = 0
    parts: list[PartRecord] = []
    tail: TailRecord | None = None
    marks: list[str] = []
    """What is remembered of its pages, to notice those that come again."""
    row_marks: list[str] = []
    """What is remembered of the rows of its first pages."""
    has_gaps: bool = False
    """Whether a page had fewer rows than it should, and said that more follow."""
    repeated_keys: dict[str, int] = {}
    """Keys that a row has twice, and the first page with such a row, as the source counts."""
    lone_surrogate_page: int | None = None
    """The first page with half of a surrogate pair, as the source counts."""
    rendered: RenderedSegment | None = None
    """The books of all its rows, if it is one whose rows need not be staged."""


class AssemblyRecord(BaseModel):
    """All parts of the final object, in place and in order; what is left is to complete the upload."""

    upload_id: str
    parts: list[PartRecord]


class UploadedPiece(BaseModel):
    """A part that is in place already."""

    part: PartRecord

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.part.bytes


class GatheredPiece(BaseModel):
    """Tails that are uploaded together as one part."""

    number: int
    tails: list[TailRecord]

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(tail.bytes for tail in self.tails)

    @property
    def rows(self) -> int:
        """How many rows are in it."""
        return sum(tail.rows for tail in self.tails)


FilePiece = UploadedPiece | GatheredPiece


class StagingError(Exception):
    """What is staged makes no valid file: a small range before a large one, or a store that differs from the ledgers.

    The download is processed again, by one fetcher: its single range can always be joined.
    """


class StagingExpired(Exception):
    """What is staged is older than the resume window: the source may have changed, so the download starts again."""


def compute_part_number(range_index: int, position: int, ranges: int) -> int:
    """The number of a range's part at *position*, counted from 0: every range owns an equal block of them.

    Raises:
        StagingError: The range has more parts than its block; one fetcher has all of them to itself.
    """
    block = MAX_PARTS // ranges
    if position >= block:
        raise StagingError(f"range {range_index} of {ranges} needs more than {block} parts")
    return range_index * block + position + 1


def join_ledgers(ledgers: Sequence[RangeLedger]) -> list[FilePiece]:
    """The pieces of the final object in order; neighbouring tails are gathered until they make a valid part.

    Raises:
        StagingError: A piece under the store's minimum size stands before another.
    """
    pieces: list[FilePiece] = []
    for ledger in ledgers:
        pieces.extend(UploadedPiece(part=part) for part in ledger.parts)
        if ledger.tail is not None:
            _append_tail(pieces, ledger.tail, compute_part_number(ledger.range, len(ledger.parts), len(ledgers)))
    if any(piece.bytes < PART_MIN_BYTES for piece in pieces[:-1]):
        raise StagingError(f"sizes of pieces: {[piece.bytes for piece in pieces]}")
    return pieces


def _append_tail(pieces: list[FilePiece], tail: TailRecord, number: int) -> None:
    last = pieces[-1] if pieces else None
    if isinstance(last, GatheredPiece) and min(last.bytes, tail.bytes) < PART_MIN_BYTES:
        last.tails.append(tail)
    else:
        pieces.append(GatheredPiece(number=number, tails=[tail]))


@dataclass(frozen=True)
class StagedFrame:
    """One page, packed."""

    packed: bytes
    plain_bytes: int
    rows: int

    def to_bytes(self) -> bytes:
        """The frame as it is staged."""
        return _FRAME_HEAD.pack(len(self.packed), self.plain_bytes, self.rows) + self.packed


async def read_frames(content: AsyncIterable[bytes]) -> AsyncGenerator[StagedFrame]:
    """The frames of joined content, whatever pieces it arrives in.

    Raises:
        ValueError: The content ends within a frame.
    """
    buffer = bytearray()
    async for piece in content:
        buffer += piece
        start = 0
        while len(buffer) - start >= _FRAME_HEAD.size:
            packed_bytes, plain_bytes, rows = _FRAME_HEAD.unpack_from(buffer, start)
            begin = start + _FRAME_HEAD.size
            end = begin + packed_bytes
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                packed = bytes(view[begin:end])
            yield StagedFrame(packed, plain_bytes, rows)
            start = end
        del buffer[:start]
    if buffer:
        raise ValueError(f"The staged frames end within one: {len(buffer)} bytes are left over.")

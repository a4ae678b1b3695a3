"""Staging: the rows that a fetcher has secured, and how the parts of all fetchers become one object.

Every range owns a block of part numbers of the final multipart upload. Full parts are final bytes and are uploaded at
once; rows that do not fill a part yet are kept in a *tail*, an object of its own. The ledger of a range records both,
and a retry resumes from it.

Rows of a file that is rendered are staged as *frames*: each is one packed page behind three numbers of four bytes: the
packed bytes, the bytes when unpacked, and the rows. The books of an Excel download are rendered from them; several
become the members of a zip archive, which is written without compression.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from excel.limits import WorkbookSizeAndCellChanges

MIB: Final = 1024 * 1024
PART_BYTES: Final = 8 * MIB
# A part is cut only when enough is left, so that the last part is never below the minimum of the store.
PART_MIN_BYTES: Final = 5 * MIB
CUT_AT_BYTES: Final = PART_BYTES + PART_MIN_BYTES
PAGE_END_DISTANCE_BYTES: Final = MIB
"""Distance between the page ends that the record of a tail has, if its pages are not larger."""
MAX_PARTS: Final = 9_999

ZIP_MAX_BYTES: Final = 2**32 - 1
ZIP_MAX_MEMBERS: Final = 2**16 - 1
ZIP_CONTENT_TYPE: Final = "application/zip"
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION = 20
_UTF_8_NAMES = 0x0800
_STORED = 0
_FRAME_HEAD = struct.Struct(">III")


class UploadedPartRecord(BaseModel):
    """One uploaded part of the final object."""

    number: int
    bytes: int
    etag: str
    sha256: str
    rows: int


class BoundaryBetweenPagesOfTail(BaseModel):
    """A boundary between two pages of a tail, where a part may end."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    bytes_after_previous: int = Field(alias="bytes")
    """Bytes of the tail between the boundary before and this one."""
    next_page: int
    rows_of_range: int = Field(alias="rows")
    """Rows of the whole range up to here."""


class StagedTailRecord(BaseModel):
    """Bytes that do not fill a part yet: an object of its own in the staging area.

    With its page ends, a resume can make a part of its first pages. A tail that could only be used as a whole would
    grow for ever under a source so slow that one attempt reads less than the minimum of a part.
    """

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    key: str
    bytes: int
    sha256: str
    rows: int
    page_ends: list[BoundaryBetweenPagesOfTail] = Field(default=[], alias="marks")


class RenderedSegment(BaseModel):
    """The books of a segment of rows, in order."""

    books: list[RenderedBook]
    part: UploadedPartRecord | None = None
    """The part of the archive that holds the books; without it, each book is an object."""


class RangeLedger(BaseModel):
    """The record of one range: pages before `next_page` are in its parts, its tail or its books."""

    upload_id: str
    range: int
    next_page: int
    rows: int = 0
    parts: list[UploadedPartRecord] = []
    tail: StagedTailRecord | None = None
    marks: list[str] = []
    """Marks of its pages, to notice repetition."""
    row_marks: list[str] = []
    """Marks of the rows of its first pages."""
    has_gaps: bool = False
    """Whether a page had fewer rows than it should, and announced more."""
    repeated_keys: dict[str, int] = {}
    """Keys that a row has twice, with the first page of such a row, as the source counts."""
    lone_surrogate_page: int | None = None
    """The first page with a lone surrogate, as the source counts."""
    rendered: RenderedSegment | None = None
    """The books of all its rows, if the fetcher rendered them."""
    new_columns: list[str] = []
    """Columns that the first page does not have. From the first one on no page is staged: all are read again."""


class AssembledPartsRecord(BaseModel):
    """All parts of the final object, uploaded and in order, written before the upload is completed."""

    upload_id: str
    parts: list[UploadedPartRecord]


class UploadedPiece(BaseModel):
    """A part that is uploaded."""

    part: UploadedPartRecord

    @property
    def bytes(self) -> int:
        """Bytes of the part."""
        return self.part.bytes


class JoinedTailsPiece(BaseModel):
    """Tails that are uploaded together as one part."""

    number: int
    tails: list[StagedTailRecord]

    @property
    def bytes(self) -> int:
        """Bytes of all tails."""
        return sum(tail.bytes for tail in self.tails)

    @property
    def rows(self) -> int:
        """Rows of all tails."""
        return sum(tail.rows for tail in self.tails)


FilePiece = UploadedPiece | JoinedTailsPiece


class StagedPartsInvalid(Exception):
    """The staged parts make no valid object: a small range before a large one, or a store that differs from the
    ledgers.

    The download is processed again by one fetcher, whose single range can always be joined.
    """


class StagedRowsTooOld(Exception):
    """The staged rows are older than the resume window. The source may have changed, so the download starts over."""


def compute_part_number_in_range_block(range_index: int, position: int, ranges: int) -> int:
    """Return the number of a range's part at *position*, from 0; every range owns an equal block of numbers.

    Raises:
        StagedPartsInvalid: The range has more parts than its block; a single fetcher has all numbers.
    """
    block = MAX_PARTS // ranges
    if position >= block:
        raise StagedPartsInvalid(f"range {range_index} of {ranges} needs more than {block} parts")
    return range_index * block + position + 1


def list_file_pieces(ledgers: Sequence[RangeLedger]) -> list[FilePiece]:
    """Return the pieces of the final object in order; join neighbouring tails until they make a valid part.

    Raises:
        StagedPartsInvalid: A piece below the minimum of the store is followed by another.
    """
    pieces: list[FilePiece] = []
    for ledger in ledgers:
        pieces.extend(UploadedPiece(part=part) for part in ledger.parts)
        if ledger.tail is not None:
            _append_or_join_tail(
                pieces, ledger.tail, compute_part_number_in_range_block(ledger.range, len(ledger.parts), len(ledgers))
            )
    if any(piece.bytes < PART_MIN_BYTES for piece in pieces[:-1]):
        raise StagedPartsInvalid(f"sizes of pieces: {[piece.bytes for piece in pieces]}")
    return pieces


def _append_or_join_tail(pieces: list[FilePiece], tail: StagedTailRecord, number: int) -> None:
    last = pieces[-1] if pieces else None
    if isinstance(last, JoinedTailsPiece) and min(last.bytes, tail.bytes) < PART_MIN_BYTES:
        last.tails.append(tail)
    else:
        pieces.append(JoinedTailsPiece(number=number, tails=[tail]))


@dataclass(frozen=True)
class CompressedPageFrame:
    """One packed page."""

    packed: bytes
    plain_bytes: int
    rows: int

    def to_bytes(self) -> bytes:
        """Return the frame as it is staged."""
        return _FRAME_HEAD.pack(len(self.packed), self.plain_bytes, self.rows) + self.packed


async def read_frames(content: AsyncIterable[bytes]) -> AsyncGenerator[CompressedPageFrame]:
    """Yield the frames of a stream of bytes.

    Raises:
        ValueError: The stream ends within a frame.
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
            yield CompressedPageFrame(packed, plain_bytes, rows)
            start = end
        del buffer[:start]
    if buffer:
        raise ValueError(f"The staged frames end within one: {len(buffer)} bytes are left over.")


class RenderedBook(BaseModel):
    """A rendered book."""

    member: ZipMemberSizeAndChecksum
    etag: str = ""
    """ETag of its object; empty if it is in a part of the archive."""
    report: WorkbookSizeAndCellChanges


class ZipTooLarge(Exception):
    """The members exceed the limits of a zip archive."""


class ZipMemberSizeAndChecksum(BaseModel):
    """One file of the archive."""

    name: str
    bytes: int
    crc32: int


def require_zip_limits(members: Sequence[ZipMemberSizeAndChecksum]) -> None:
    """Check that the members fit into a zip archive.

    Raises:
        ZipTooLarge: They do not.
    """
    names = sum(len(member.name.encode()) for member in members)
    around = len(members) * (_LOCAL.size + _CENTRAL.size) + 2 * names + _END.size
    size = around + sum(member.bytes for member in members)
    if size > ZIP_MAX_BYTES or len(members) > ZIP_MAX_MEMBERS:
        raise ZipTooLarge(f"{len(members):,} files of {size:,} bytes in all")


def encode_local_header(member: ZipMemberSizeAndChecksum, written_at: datetime) -> bytes:
    """Return the header that precedes the content of a member."""
    name = member.name.encode()
    return _LOCAL.pack(b"PK\x03\x04", _VERSION, *_build_common_header_fields(member, name, written_at)) + name


def encode_central_directory(members: Sequence[ZipMemberSizeAndChecksum], written_at: datetime) -> bytes:
    """Return the directory that follows the last member and has the position of each."""
    entries: list[bytes] = []
    position = 0
    for member in members:
        name = member.name.encode()
        common = _build_common_header_fields(member, name, written_at)
        entries.append(_CENTRAL.pack(b"PK\x01\x02", _VERSION, _VERSION, *common, 0, 0, 0, 0, position) + name)
        position += _LOCAL.size + len(name) + member.bytes
    central, count = b"".join(entries), len(entries)
    return central + _END.pack(b"PK\x05\x06", 0, 0, count, count, len(central), position, 0)


def _build_common_header_fields(member: ZipMemberSizeAndChecksum, name: bytes, written_at: datetime) -> tuple[int, ...]:
    """Return the fields that both records of a member share."""
    time = written_at.hour << 11 | written_at.minute << 5 | written_at.second // 2
    date = (written_at.year - 1980) << 9 | written_at.month << 5 | written_at.day
    return (_UTF_8_NAMES, _STORED, time, date, member.crc32, member.bytes, member.bytes, len(name), 0)

"""The stager of one range: collects encoded pages, uploads full parts at once, and keeps the ledger up to date."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from activities.downloads import books
from activities.downloads.book_rendering import BufferedRowReader
from domain.downloads import names, repeats, staging
from domain.downloads.activity_models import FetchRangeInput
from domain.downloads.staging import (
    BoundaryBetweenPagesOfTail,
    RangeLedger,
    RenderedSegment,
    StagedPartsInvalid,
    StagedTailRecord,
    UploadedPartRecord,
)
from infra import metrics
from infra.objects import PART_TYPE, ObjectMissing, ObjectStore

# A crash must not lose minutes of a slow source, so pages are secured at least this often.
SECURE_EVERY_SECONDS = 5.0
# Rows of a book were planned by those of the first page; what grows far beyond that is staged by parts instead.
BOOK_ROWS_MAX_BYTES = 2 * books.GATHERED_MAX_BYTES


@dataclass(frozen=True, slots=True)
class _StagedPiece:
    """Some whole pages, and the progress of the range behind them: a part consists of pieces, so that a resume can
    follow."""

    data: bytes
    next_page: int
    rows: int


async def load_ledger_and_tail(objects: ObjectStore, fetch: FetchRangeInput) -> tuple[RangeLedger, bytes]:
    """Load what an earlier attempt secured of the range: its ledger and the content of its tail."""
    spec, pages, upload_id = fetch.spec, fetch.pages, fetch.probe.upload_id
    empty = RangeLedger(upload_id=upload_id, range=pages.index, next_page=pages.first)
    try:
        ledger = RangeLedger.model_validate_json(await objects.get(names.build_range_ledger_key(spec, pages.index)))
    except ObjectMissing:
        return empty, b""
    if ledger.upload_id != upload_id:
        return empty, b""
    return ledger, await read_tail(objects, ledger.tail) if ledger.tail else b""


async def read_tail(objects: ObjectStore, tail: StagedTailRecord) -> bytes:
    """Return the content of a tail.

    Raises:
        StagedPartsInvalid: It is not what was stored: a worker that was taken for dead has written it again.
    """
    content = await objects.get(tail.key)
    if hashlib.sha256(content).hexdigest() != tail.sha256:
        raise StagedPartsInvalid(f"the tail {tail.key} is not the one that its ledger describes")
    return content


class RangeStager:
    """Stages one range. Pages come in order; a page that was added is secured by the next upload or tail."""

    def __init__(
        self, objects: ObjectStore, fetch: FetchRangeInput, ledger: RangeLedger, tail_content: bytes = b""
    ) -> None:
        self._objects = objects
        self._fetch = fetch
        self._spec = fetch.spec
        self._ranges = fetch.ranges
        self.ledger = ledger
        self.rows = ledger.rows
        self.next_page = ledger.next_page
        self.marks = list(ledger.marks)
        self.row_marks = list(ledger.row_marks)
        self.has_gaps = ledger.has_gaps
        self.new_columns = list(ledger.new_columns)
        self._repeated_keys = ledger.repeated_keys
        self._lone_surrogate_page = ledger.lone_surrogate_page
        self._pieces: list[_StagedPiece] = []
        self._pieces_bytes = 0
        if ledger.tail is not None:
            self._split_tail_into_pieces(ledger.tail, tail_content)
        self._secured_at = time.monotonic()

    @property
    def has_nothing_stored(self) -> bool:
        """Whether nothing of this range is secured yet."""
        return not self.ledger.parts and self.ledger.tail is None

    def add_head(self, head: bytes) -> None:
        """Add the head of the file before the first page."""
        self._add_piece(head)

    async def add_page_and_store_due_parts(
        self,
        encoded: bytes,
        rows: int,
        mark: str = "",
        row_mark: str | None = None,
        *,
        has_gaps: bool = False,
        repeated_keys: Sequence[str] = (),
        has_lone_surrogate: bool = False,
    ) -> None:
        """Add the next page; upload a part if there is enough, and secure the rest if it is time.

        Args:
            encoded: Its rows as they are staged.
            rows: Number of rows.
            mark: The mark of the page.
            row_mark: The mark of its rows, if it is one of the first pages.
            has_gaps: Whether it has fewer rows than it should, and announces more.
            repeated_keys: Keys that a row of it has twice.
            has_lone_surrogate: Whether it contains a lone surrogate.
        """
        source_number = self._fetch.probe.extent.to_source_page_number(self.next_page)
        self._repeated_keys = repeats.add_repeated_keys_with_first_page(
            self._repeated_keys, repeated_keys, source_number
        )
        if has_lone_surrogate and self._lone_surrogate_page is None:
            self._lone_surrogate_page = source_number
        self.rows += rows
        self.next_page += 1
        self.marks.append(mark)
        if row_mark is not None:
            self.row_marks.append(row_mark)
        self.has_gaps |= has_gaps
        self._add_piece(encoded)
        metrics.ROWS.inc(rows)
        metrics.BYTES.inc(len(encoded))
        while self._pieces_bytes >= staging.CUT_AT_BYTES and await self._upload_part_if_full():
            pass
        await self._store_tail_at_intervals()

    def add_new_columns(self, names: Iterable[str]) -> None:
        """Add columns that the first page does not have. What was collected is dropped, as it is read again."""
        self.new_columns += [name for name in names if name not in self.new_columns]
        self._pieces.clear()
        self._pieces_bytes = 0

    async def skip_page(self, mark: str) -> None:
        """Go on to the next page without staging this one; secure the place if it is time."""
        self.next_page += 1
        self.marks.append(mark)
        await self._store_tail_at_intervals()

    async def _store_tail_at_intervals(self) -> None:
        if time.monotonic() - self._secured_at >= SECURE_EVERY_SECONDS:
            await self.store_tail()

    def _add_piece(self, data: bytes) -> None:
        self._pieces.append(_StagedPiece(data, self.next_page, self.rows))
        self._pieces_bytes += len(data)

    def _split_tail_into_pieces(self, tail: StagedTailRecord, tail_content: bytes) -> None:
        start = 0
        for page_end in tail.page_ends:
            end = start + page_end.bytes_after_previous
            self._pieces.append(_StagedPiece(tail_content[start:end], page_end.next_page, page_end.rows_of_range))
            start = end
        self._pieces.append(_StagedPiece(tail_content[start:], self.next_page, self.rows))
        self._pieces_bytes = len(tail_content)

    async def on_last_page_added(self) -> None:
        """Upload the rest as a part, or store it as the tail of a range that is too small for one."""
        if self._pieces_bytes and (self.ledger.parts or self._pieces_bytes >= staging.PART_MIN_BYTES):
            await self._upload_pieces_as_part(len(self._pieces))
        else:
            await self.store_tail()

    async def _upload_part_if_full(self) -> bool:
        """Upload whole pages of at least `PART_BYTES` if that leaves enough for another part; return whether it did."""
        size = 0
        for count, piece in enumerate(self._pieces, start=1):
            size += len(piece.data)
            if size >= staging.PART_BYTES:
                if self._pieces_bytes - size < staging.PART_MIN_BYTES:
                    return False
                await self._upload_pieces_as_part(count)
                return True
        return False

    async def _upload_pieces_as_part(self, count: int) -> None:
        """Upload the first pieces as a part."""
        data, last = _join_pieces(self._pieces[:count]), self._pieces[count - 1]
        # Free the pieces before sending: if the upload fails, this attempt is over.
        del self._pieces[:count]
        self._pieces_bytes -= len(data)
        number = staging.compute_part_number_in_range_block(self.ledger.range, len(self.ledger.parts), self._ranges)
        part = await self._objects.put_part(
            names.build_joined_parts_key(self._spec), self.ledger.upload_id, number, data
        )
        rows = last.rows - self._rows_in_parts
        record = UploadedPartRecord(number=number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=rows)
        await self._write_ledger_and_delete_old_tail(
            self._build_ledger([*self.ledger.parts, record], None, last.next_page, last.rows)
        )

    async def store_tail(self) -> None:
        """Store the remaining pieces as a tail, from which a retry resumes."""
        if self.ledger.next_page == self.next_page and (self.ledger.tail or not self._pieces_bytes):
            return
        data = _join_pieces(self._pieces)
        key = names.build_tail_key(self._spec, self.ledger.range, self.next_page)
        stored = await self._objects.put(key, data, content_type=PART_TYPE)
        rows = self.rows - self._rows_in_parts
        tail = StagedTailRecord(
            key=key, bytes=len(data), sha256=stored.sha256, rows=rows, page_ends=_build_tail_page_ends(self._pieces)
        )
        await self._write_ledger_and_delete_old_tail(
            self._build_ledger(self.ledger.parts, tail, self.next_page, self.rows)
        )

    @property
    def _rows_in_parts(self) -> int:
        return sum(part.rows for part in self.ledger.parts)

    async def _write_ledger_and_delete_old_tail(self, ledger: RangeLedger) -> None:
        before, self.ledger = self.ledger.tail, ledger
        key = names.build_range_ledger_key(self._spec, self.ledger.range)
        await self._objects.put(key, self.ledger.model_dump_json().encode())
        if before is not None and (ledger.tail is None or ledger.tail.key != before.key):
            await self._objects.delete(before.key)
        self._secured_at = time.monotonic()

    def _build_ledger(
        self,
        parts: list[UploadedPartRecord],
        tail: StagedTailRecord | None,
        next_page: int,
        rows: int,
        rendered: RenderedSegment | None = None,
    ) -> RangeLedger:
        return self.ledger.model_copy(
            update={
                "parts": parts,
                "tail": tail,
                "next_page": next_page,
                "rows": rows,
                "rendered": rendered,
                "marks": self.marks[: next_page - self._fetch.pages.first],
                "row_marks": self.row_marks[: next_page - self._fetch.pages.first],
                "has_gaps": self.has_gaps,
                "repeated_keys": self._repeated_keys,
                "lone_surrogate_page": self._lone_surrogate_page,
                "new_columns": self.new_columns,
            }
        )


class BookRenderingStager(RangeStager):
    """A stager that collects all pages of its range and renders books of them, which replace what was secured before.

    Args:
        render_slots: Limits the stagers of this process that render at a time.
    """

    def __init__(
        self,
        objects: ObjectStore,
        fetch: FetchRangeInput,
        ledger: RangeLedger,
        tail_content: bytes,
        render_slots: asyncio.Semaphore,
    ) -> None:
        super().__init__(objects, fetch, ledger, tail_content)
        self._render_slots = render_slots

    async def on_last_page_added(self) -> None:
        """Render the rows to books, unless an earlier attempt did."""
        if self.ledger.rendered is None:
            async with self._render_slots:
                rows = BufferedRowReader(_join_pieces(self._pieces), self.rows, self._fetch.probe.shape)
                rendered = await books.render_fetched_rows(self._objects, self._fetch, rows)
            await self._write_ledger_and_delete_old_tail(
                self._build_ledger([], None, self.next_page, self.rows, rendered)
            )

    async def _upload_part_if_full(self) -> bool:
        if self._pieces_bytes > BOOK_ROWS_MAX_BYTES:
            raise StagedPartsInvalid("the rows are larger than those of the first page, too large for books in memory")
        return False


class InMemoryFileStager(RangeStager):
    """A stager that collects all pages of a small file, which is stored at once, or staged later."""

    async def on_last_page_added(self) -> None:
        """Store nothing."""

    async def store_tail(self) -> None:
        """Store nothing."""

    def build_whole_ledger(self) -> RangeLedger:
        """Return the ledger of the range as if it were staged."""
        return self._build_ledger([], None, self.next_page, self.rows)

    def join_collected_pages(self) -> bytes:
        """Return the joined pages."""
        return _join_pieces(self._pieces)

    async def stage_collected_pages(self, upload_id: str) -> None:
        """Stage what was collected for an upload."""
        self.ledger = self.ledger.model_copy(update={"upload_id": upload_id})
        if self.next_page > self.ledger.next_page:
            await super().store_tail()

    async def _upload_part_if_full(self) -> bool:
        raise StagedPartsInvalid("the rows are larger than those of the first page, too large for a small file")


def _join_pieces(pieces: Sequence[_StagedPiece]) -> bytes:
    return b"".join([piece.data for piece in pieces])


def _build_tail_page_ends(pieces: Sequence[_StagedPiece]) -> list[BoundaryBetweenPagesOfTail]:
    page_ends, size = [], 0
    for piece in pieces:
        size += len(piece.data)
        if size >= staging.PAGE_END_DISTANCE_BYTES:
            page_ends.append(
                BoundaryBetweenPagesOfTail(
                    bytes_after_previous=size, next_page=piece.next_page, rows_of_range=piece.rows
                )
            )
            size = 0
    return page_ends

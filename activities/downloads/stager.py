"""The stager of one range: gathers encoded pages, uploads full parts at once, and keeps the ledger true."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from activities.downloads import books
from activities.downloads.book_rendering import BufferedRows
from domain.downloads import names, repeats, staging
from domain.downloads.activity_models import FetchOrder
from domain.downloads.staging import Ledger, Mark, PartRecord, Rendered, TailRecord
from infra import metrics
from infra.objects import PART_TYPE, ObjectMissing, ObjectStore

# A slow source must not lose minutes of pages to a crash: what is gathered is secured at least this often.
SECURE_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some whole pages, and how far the range is with them: a part consists of pieces, so that a resume can follow."""

    data: bytes
    next_page: int
    rows: int


async def load_range(objects: ObjectStore, fetch: FetchOrder) -> tuple[Ledger, bytes]:
    """What an earlier attempt at the same upload secured of the range: its ledger, and what waits for more."""
    order, pages, upload_id = fetch.order, fetch.pages, fetch.probe.upload_id
    fresh = Ledger(upload_id=upload_id, range=pages.index, next_page=pages.first)
    try:
        ledger = Ledger.model_validate_json(await objects.get(names.ledger(order, pages.index)))
    except ObjectMissing:
        return fresh, b""
    if ledger.upload_id != upload_id:
        return fresh, b""
    return ledger, await objects.get(ledger.tail.key) if ledger.tail else b""


class Stager:
    """One attempt at one range. Pages come in order; after `add` returns, a page is gathered, not yet secured."""

    def __init__(self, objects: ObjectStore, fetch: FetchOrder, ledger: Ledger, gathered: bytes = b"") -> None:
        self._objects = objects
        self._fetch = fetch
        self._order = fetch.order
        self._ranges = fetch.ranges
        self.ledger = ledger
        self.rows = ledger.rows
        self.next_page = ledger.next_page
        self.marks = list(ledger.marks)
        self.row_marks = list(ledger.row_marks)
        self.has_gaps = ledger.has_gaps
        self._repeated_keys = ledger.repeated_keys
        self._half_pair_page = ledger.half_pair_page
        self._gathered: list[_Piece] = []
        self._gathered_bytes = 0
        if ledger.tail is not None:
            self._take_up(ledger.tail, gathered)
        self._secured_at = time.monotonic()

    @property
    def fresh(self) -> bool:
        """Whether nothing of this range is secured yet."""
        return not self.ledger.parts and self.ledger.tail is None

    def open_with(self, head: bytes) -> None:
        """Put the head of the file before the first page."""
        self._gather(head)

    async def add(
        self,
        encoded: bytes,
        rows: int,
        mark: str = "",
        row_mark: str | None = None,
        *,
        has_gaps: bool = False,
        keys_twice: Sequence[str] = (),
        has_half_pair: bool = False,
    ) -> None:
        """Take the next page; upload a part when enough is there, secure the rest when it is time.

        Args:
            encoded: Its rows as they are staged.
            rows: How many.
            mark: What is to be remembered of it.
            row_mark: What is to be remembered of its rows, if it is one of the first pages.
            has_gaps: Whether it has fewer rows than it should, and says that more follow.
            keys_twice: Keys that a row of it has twice.
            has_half_pair: Whether half of a surrogate pair stood in it.
        """
        named = self._fetch.probe.extent.named(self.next_page)
        self._repeated_keys = repeats.merge_repeated_keys(self._repeated_keys, keys_twice, named)
        if has_half_pair and self._half_pair_page is None:
            self._half_pair_page = named
        self.rows += rows
        self.next_page += 1
        self.marks.append(mark)
        if row_mark is not None:
            self.row_marks.append(row_mark)
        self.has_gaps |= has_gaps
        self._gather(encoded)
        metrics.ROWS.inc(rows)
        while self._gathered_bytes >= staging.CUT_BYTES and await self._cut():
            pass
        if time.monotonic() - self._secured_at >= SECURE_EVERY_SECONDS:
            await self.secure()

    def _gather(self, data: bytes) -> None:
        self._gathered.append(_Piece(data, self.next_page, self.rows))
        self._gathered_bytes += len(data)

    def _take_up(self, tail: TailRecord, gathered: bytes) -> None:
        start = 0
        for mark in tail.marks:
            self._gathered.append(_Piece(gathered[start : start + mark.bytes], mark.next_page, mark.rows))
            start += mark.bytes
        self._gathered.append(_Piece(gathered[start:], self.next_page, self.rows))
        self._gathered_bytes = len(gathered)

    async def finish(self) -> Ledger:
        """Everything is gathered: the rest is a part, or the tail of a range that is too small for one."""
        if self._gathered_bytes and (self.ledger.parts or self._gathered_bytes >= staging.PART_MIN_BYTES):
            await self._upload(len(self._gathered))
        else:
            await self.secure()
        return self.ledger

    async def _cut(self) -> bool:
        """Upload whole pages of at least PART_BYTES, if that leaves enough for another part."""
        size = 0
        for count, piece in enumerate(self._gathered, start=1):
            size += len(piece.data)
            if size >= staging.PART_BYTES:
                if self._gathered_bytes - size < staging.PART_MIN_BYTES:
                    return False
                await self._upload(count)
                return True
        return False

    async def _upload(self, count: int) -> None:
        """Make a part of the first pieces."""
        data, last = _join_pieces(self._gathered[:count]), self._gathered[count - 1]
        # What is sent need not be held twice: if it does not arrive, this attempt is over.
        del self._gathered[:count]
        self._gathered_bytes -= len(data)
        number = staging.part_number(self.ledger.range, len(self.ledger.parts), self._ranges)
        part = await self._objects.put_part(names.upload(self._order), self.ledger.upload_id, number, data)
        rows = last.rows - self._rows_in_parts
        record = PartRecord(number=number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=rows)
        await self._write([*self.ledger.parts, record], None, last.next_page, last.rows)

    async def secure(self) -> None:
        """Put what is gathered where a retry finds it."""
        if self.ledger.next_page == self.next_page and (self.ledger.tail or not self._gathered_bytes):
            return
        data = _join_pieces(self._gathered)
        key = names.tail(self._order, self.ledger.range, self.next_page)
        stored = await self._objects.put(key, data, content_type=PART_TYPE)
        rows = self.rows - self._rows_in_parts
        tail = TailRecord(key=key, bytes=len(data), sha256=stored.sha256, rows=rows, marks=_build_marks(self._gathered))
        await self._write(self.ledger.parts, tail, self.next_page, self.rows)

    @property
    def _rows_in_parts(self) -> int:
        return sum(part.rows for part in self.ledger.parts)

    async def _write(
        self,
        parts: list[PartRecord],
        tail: TailRecord | None,
        next_page: int,
        rows: int,
        rendered: Rendered | None = None,
    ) -> None:
        before = self.ledger.tail
        self.ledger = self.ledger.model_copy(
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
                "half_pair_page": self._half_pair_page,
            }
        )
        key = names.ledger(self._order, self.ledger.range)
        await self._objects.put(key, self.ledger.model_dump_json().encode())
        if before is not None and (tail is None or tail.key != before.key):
            await self._objects.delete(before.key)
        self._secured_at = time.monotonic()


class BookStager(Stager):
    """A stager that gathers all pages of its range, and makes books of them: what was secured before then goes.

    Args:
        presses: So many stagers make books at a time.
    """

    def __init__(
        self, objects: ObjectStore, fetch: FetchOrder, ledger: Ledger, gathered: bytes, presses: asyncio.Semaphore
    ) -> None:
        super().__init__(objects, fetch, ledger, gathered)
        self._presses = presses

    async def finish(self) -> Ledger:
        """Everything is gathered: the rows become books, unless an earlier attempt made them."""
        if self.ledger.rendered is None:
            async with self._presses:
                rows = BufferedRows(_join_pieces(self._gathered), self.rows, self._fetch.probe.shape)
                rendered = await books.render_fetched_rows(self._objects, self._fetch, rows)
            await self._write([], None, self.next_page, self.rows, rendered)
        return self.ledger

    async def _cut(self) -> bool:
        return False


def _join_pieces(pieces: Sequence[_Piece]) -> bytes:
    return b"".join([piece.data for piece in pieces])


def _build_marks(pieces: Sequence[_Piece]) -> list[Mark]:
    marks, size = [], 0
    for piece in pieces:
        size += len(piece.data)
        if size >= staging.MARK_BYTES:
            marks.append(Mark(bytes=size, next_page=piece.next_page, rows=piece.rows))
            size = 0
    return marks

"""The press: books made of rows, in threads, batch after batch."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from activities.downloads import staged
from activities.downloads.staged import Rows
from domain.downloads.request import DownloadOrder
from domain.downloads.segments import Segment
from domain.downloads.shape import Shape
from excel.limits import BookTooLarge
from excel.template.drawing import Drawing

if TYPE_CHECKING:
    import pyarrow as pa

    from excel.book import Book as Workbook
    from excel.book import TableBody
    from excel.report import BookReport

# Rows are worked on in batches of this weight: enough for work on whole columns, little enough to hold several.
BATCH_BYTES = 4 * 1024 * 1024
SAMPLE_ROWS = 5_000
# What a book has besides its rows: styles, heads, and what names its parts.
FRAME_BYTES = 32 * 1024
MEMORY_BYTES = 32 * 1024 * 1024
READ_BYTES = 1024 * 1024


@dataclass
class Print:
    """A finished book. Who has it closes it."""

    report: BookReport
    crc32: int
    _file: IO[bytes]

    def close(self) -> None:
        """Give its bytes up."""
        self._file.close()

    async def stream(self) -> AsyncIterator[bytes]:
        """Its bytes, once; then they are gone."""
        with self._file:
            self._file.seek(0)
            while piece := await asyncio.to_thread(self._file.read, READ_BYTES):
                yield piece


class Press:
    """Makes books of rows. What draws and packs them runs in threads."""

    def __init__(self, order: DownloadOrder, drawing: Drawing, shapes: Sequence[Shape], rows: Rows) -> None:
        self._order = order
        self._drawing = drawing
        self._shapes = shapes
        self._rows = rows
        self._max_bytes = order.file_max_bytes - FRAME_BYTES
        self._batch_bytes = max(1, min(BATCH_BYTES, self._max_bytes // 8))

    async def row_bytes(self, *first_rows: int) -> float:
        """What a row takes in a book, by samples from these rows on."""
        body = await self._begun(self._new_book(), 0)
        count = await self._rows.count(0)
        for first in first_rows:
            await self._fill(body, 0, first, min(SAMPLE_ROWS, count - first))
        return body.compressed_bytes / body.rows

    async def whole_book(self) -> AsyncGenerator[Print]:
        """All tables with all their rows.

        Raises:
            BookTooLarge: They take more than a file may have. What is packed is given up as soon as that is certain.
        """
        bodies: list[TableBody] = []
        book = self._new_book()
        for table in range(len(self._shapes)):
            bodies.append(await self._begun(book, table))
            async with aclosing(self._batches(table, 0, await self._rows.count(table))) as batches:
                async for batch in batches:
                    await asyncio.to_thread(bodies[-1].add, batch)
                    self._require_room(sum(body.packed_bytes for body in bodies))
        made = await _printed(book, footer=True)
        try:
            # Rows under row heads are packed at the end, and the frame with its links is known by now.
            self._require_room(made.report.bytes)
        except BookTooLarge:
            made.close()
            raise
        yield made

    async def books(self, segment: Segment) -> AsyncGenerator[Print]:
        """The rows of a segment; a book that would grow too large is closed before it does."""
        book, largest = self._new_book(), 0
        body = await self._begun(book, 0)
        async with aclosing(self._batches(0, segment.first_row, segment.rows)) as batches:
            async for batch in batches:
                full = body.compressed_bytes + largest > self._max_bytes
                if body.rows and (full or body.rows + batch.num_rows > self._order.file_max_rows):
                    yield await _printed(book, footer=False)
                    book = self._new_book()
                    body = await self._begun(book, 0)
                before = body.compressed_bytes
                await asyncio.to_thread(body.add, batch)
                largest = max(largest, body.compressed_bytes - before)
        yield await _printed(book, footer=segment.last)

    def _require_room(self, size: int) -> None:
        if size > self._order.file_max_bytes:
            raise BookTooLarge(self._order.file_max_bytes)

    def _new_book(self) -> Workbook:
        # Workflows import the steps for their signatures, and must not pay for Arrow.
        from excel.book import Book as Workbook  # noqa: PLC0415

        return Workbook(self._drawing, time_zone=self._order.time_zone)

    async def _begun(self, book: Workbook, table: int) -> TableBody:
        return await asyncio.to_thread(book.begin_table, self._drawing.tables[table], self._shapes[table].columns)

    async def _fill(self, body: TableBody, table: int, first_row: int, rows: int) -> None:
        async with aclosing(self._batches(table, first_row, rows)) as batches:
            async for batch in batches:
                await asyncio.to_thread(body.add, batch)

    def _batches(self, table: int, first_row: int, rows: int) -> AsyncGenerator[pa.RecordBatch]:
        return staged.batches(self._rows, table, first_row, rows, self._batch_bytes)


async def _printed(book: Workbook, *, footer: bool) -> Print:
    """Finish a book."""
    file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (it goes with the print)
    counted = _Counted(file)
    try:
        report = await asyncio.to_thread(book.finish, counted.write, footer=footer)
    except BaseException:
        file.close()
        raise
    return Print(report, counted.crc32, file)


class _Counted:
    """Writes to a file, and keeps the check sum that an archive asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc32 = 0

    def write(self, data: bytes) -> None:
        self.crc32 = zlib.crc32(data, self.crc32)
        self._file.write(data)

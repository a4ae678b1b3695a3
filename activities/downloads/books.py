"""Books: how many an Excel download takes, and the rendering of each in a thread, row after row from the store."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import IO, TYPE_CHECKING

from activities.downloads import staged
from domain.downloads import places
from domain.downloads.excel import segments
from domain.downloads.excel.drawing import Drawing, TableDrawing
from domain.downloads.excel.limits import SheetFull
from domain.downloads.excel.reading import read_template
from domain.downloads.excel.rows import UncoveredRows
from domain.downloads.excel.segments import Book, Segment
from domain.downloads.request import DownloadOrder
from domain.downloads.sinks import sink_for
from domain.downloads.steps import Opening, Probe, RenderOrder
from domain.faults import SourceFault
from infra.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from domain.downloads.excel.book import Book as Workbook
    from domain.downloads.excel.book import TableBody

# Rows are worked on in batches of this weight: enough for work on whole columns, little enough to hold several.
BATCH_BYTES = 4 * 1024 * 1024
# So few rows make one small book whatever they hold, and need no sample.
ROWS_OF_ONE_BOOK = 20_000
SAMPLE_ROWS = 5_000
# What a book has besides its rows: styles, heads, and what names its parts.
FRAME_BYTES = 32 * 1024
MEMORY_BYTES = 32 * 1024 * 1024
READ_BYTES = 1024 * 1024


def require_room(order: DownloadOrder, drawings: Sequence[TableDrawing], probes: Sequence[Probe]) -> None:
    """See, before anything is fetched, that a book that cannot be made several may have all rows.

    Raises:
        SourceFault: It may not.
    """
    if drawings and is_whole(drawings):
        _whole(sum(probe.extent.total or 0 for probe in probes), order.file_max_rows)


async def plan(objects: ObjectStore, order: DownloadOrder, opening: Opening, rows: Sequence[int]) -> list[Segment]:
    """Share the rows out among books.

    Args:
        rows: How many each table has.
    """
    drawings = await _drawings(objects, order)
    if is_whole(drawings):
        return _whole(sum(rows), order.file_max_rows)
    (count,) = rows
    row_bytes = 0.0
    if count > ROWS_OF_ONE_BOOK:
        row_bytes = await _Press(objects, order, opening, drawings).row_bytes(count)
    return segments.segments(count, row_bytes, order.file_max_bytes - FRAME_BYTES, order.file_max_rows)


def is_whole(drawings: Sequence[TableDrawing]) -> bool:
    """Whether the book cannot be made several: it has several tables, or rows under row heads."""
    template = drawings[0].template
    return len(drawings) > 1 or (template is not None and bool(read_template(template).rows))


async def render(objects: ObjectStore, render: RenderOrder) -> list[Book]:
    """The books of a segment: one, unless its rows take more room than planned."""
    drawings = await _drawings(objects, render.order)
    press = _Press(objects, render.order, render.opening, drawings)
    try:
        return [await press.whole_book()] if render.segment.whole else await press.books(render.segment)
    except UncoveredRows as error:
        raise SourceFault(
            "excel_uncovered_rows", str(error), "Add row heads of these names to the template, or leave the rows out."
        ) from None
    except SheetFull as error:
        raise SourceFault("excel_sheet_full", str(error)) from None


def _whole(rows: int, max_rows: int) -> list[Segment]:
    """All rows in one book, if it may have as many."""
    try:
        return segments.whole(rows, max_rows)
    except segments.TooManyRows:
        raise SourceFault(
            "excel_too_many_rows",
            f"A book with row heads or with several tables stays one file, of at most {max_rows:,} rows; "
            f"the source has {rows:,}.",
            "Ask for fewer rows, or for one table without row heads, which becomes several files where it must.",
        ) from None


async def _drawings(objects: ObjectStore, order: DownloadOrder) -> list[TableDrawing]:
    keys = [places.drawing(order.for_table(table)) for table in range(order.table_count)]
    return [TableDrawing.model_validate_json(text) for text in await asyncio.gather(*map(objects.get, keys))]


class _Press:
    """Makes books of staged rows. What draws and packs them runs in threads."""

    def __init__(
        self, objects: ObjectStore, order: DownloadOrder, opening: Opening, drawings: Sequence[TableDrawing]
    ) -> None:
        self._objects = objects
        self._order = order
        self._shapes = [probe.shape for probe in opening.tables]
        self._drawing = (order.drawing or Drawing()).model_copy(update={"tables": list(drawings)})
        self._max_bytes = order.file_max_bytes - FRAME_BYTES
        self._batch_bytes = max(1, min(BATCH_BYTES, self._max_bytes // 8))

    async def row_bytes(self, rows: int) -> float:
        """What a row takes in a book, by samples from the beginning and the middle."""
        book = self._new_book()
        body = await self._begun(book, 0)
        for first in (0, rows // 2):
            await self._fill(body, 0, first, SAMPLE_ROWS)
        return body.compressed_bytes / body.rows

    async def whole_book(self) -> Book:
        """All tables with all their rows."""
        book = self._new_book()
        for table in range(len(self._shapes)):
            rows = await staged.row_count(self._objects, self._order.for_table(table))
            body = await self._begun(book, table)
            await self._fill(body, table, 0, rows)
        return await self._put(book, places.book(self._order, 0, 0), footer=True)

    async def books(self, segment: Segment) -> list[Book]:
        """The rows of a segment; a book that would grow too large is closed before it does."""
        made: list[Book] = []
        book, largest = self._new_book(), 0
        body = await self._begun(book, 0)
        async with aclosing(self._batches(0, segment.first_row, segment.rows)) as batches:
            async for batch in batches:
                full = body.compressed_bytes + largest > self._max_bytes
                if body.rows and (full or body.rows + batch.num_rows > self._order.file_max_rows):
                    made.append(await self._put(book, self._key(segment, made), footer=False))
                    book = self._new_book()
                    body = await self._begun(book, 0)
                before = body.compressed_bytes
                await asyncio.to_thread(body.add, batch)
                largest = max(largest, body.compressed_bytes - before)
        made.append(await self._put(book, self._key(segment, made), footer=segment.last))
        return made

    def _new_book(self) -> Workbook:
        # Workflows import the steps for their signatures, and must not pay for Arrow.
        from domain.downloads.excel.book import Book as Workbook  # noqa: PLC0415

        return Workbook(self._drawing, time_zone=self._order.time_zone)

    async def _begun(self, book: Workbook, table: int) -> TableBody:
        return await asyncio.to_thread(book.begin_table, self._drawing.tables[table], self._shapes[table].columns)

    async def _fill(self, body: TableBody, table: int, first_row: int, rows: int) -> None:
        async with aclosing(self._batches(table, first_row, rows)) as batches:
            async for batch in batches:
                await asyncio.to_thread(body.add, batch)

    def _batches(self, table: int, first_row: int, rows: int) -> AsyncGenerator[pa.RecordBatch]:
        order, columns = self._order.for_table(table), self._shapes[table].columns
        return staged.batches(self._objects, order, columns, first_row, rows, self._batch_bytes)

    def _key(self, segment: Segment, made: Sequence[Book]) -> str:
        return places.book(self._order, segment.number, len(made))

    async def _put(self, book: Workbook, key: str, *, footer: bool) -> Book:
        """Finish a book, and put it into the store."""
        with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as file:
            counted = _Counted(file)
            report = await asyncio.to_thread(book.finish, counted.write, footer=footer)
            stored = await self._objects.put_stream(
                key,
                _read(file),
                content_type=sink_for(self._order).content_type,
                metadata={"task": self._order.task_id},
            )
        return Book(
            key=key,
            bytes=stored.size,
            crc32=counted.crc32,
            etag=stored.etag,
            rows=report.rows,
            cut_cells=report.cut_cells,
            empty_columns=report.empty_columns,
            warnings=report.warnings,
        )


class _Counted:
    """Writes to a file, and keeps the check sum that an archive asks for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc32 = 0

    def write(self, data: bytes) -> None:
        self.crc32 = zlib.crc32(data, self.crc32)
        self._file.write(data)


async def _read(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while piece := await asyncio.to_thread(file.read, READ_BYTES):
        yield piece

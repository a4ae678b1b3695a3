"""Rendering books: staged or buffered rows, batch by batch, formatted and compressed in threads."""

from __future__ import annotations

import asyncio
import tempfile
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from domain.downloads import names
from domain.downloads.models import DownloadSpec
from domain.downloads.plan import RowSegment
from domain.downloads.shape import TableShape
from domain.downloads.staging import AssembledPartsRecord, read_frames
from excel.limits import WorkbookFileTooLarge
from excel.template.models import WorkbookLayout
from infra.objects import ObjectStore

if TYPE_CHECKING:
    from excel.arrow import pa
    from excel.limits import WorkbookSizeAndCellChanges
    from excel.table_body import TableBodyWriter
    from excel.workbook import Workbook

# Rows are processed in batches of this weight: enough for columnar work, little enough to hold several.
BATCH_BYTES = 4 * 1024 * 1024
SAMPLE_ROWS = 5_000
# Bytes of a book beside its rows: styles, heads, and the index of its parts.
BOOK_OVERHEAD_BYTES = 32 * 1024
MEMORY_BYTES = 32 * 1024 * 1024
READ_BYTES = 1024 * 1024


@dataclass
class TemporaryBookFile:
    """A finished book in a temporary file, which the owner closes."""

    report: WorkbookSizeAndCellChanges
    crc32: int
    _file: IO[bytes]

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()

    async def stream_once_and_close(self) -> AsyncIterator[bytes]:
        """Yield the bytes once; the file is closed behind them."""
        with self._file:
            self._file.seek(0)
            while piece := await asyncio.to_thread(self._file.read, READ_BYTES):
                yield piece


class BookRenderer:
    """Renders rows to books, in threads."""

    def __init__(
        self, spec: DownloadSpec, drawing: WorkbookLayout, shapes: Sequence[TableShape], rows: RowReader
    ) -> None:
        self._spec = spec
        self._drawing = drawing
        self._shapes = shapes
        self._rows = rows
        self._max_bytes = spec.file_max_bytes - BOOK_OVERHEAD_BYTES
        self._batch_bytes = max(1, min(BATCH_BYTES, self._max_bytes // 8))

    async def measure_row_bytes(self, *first_rows: int) -> float:
        """Measure the bytes that a row takes in a book, by samples that begin at these rows."""
        body = await self._begin_table(self._create_book(), 0)
        count = await self._rows.count_rows(0)
        for first in first_rows:
            await self._add_rows(body, 0, first, min(SAMPLE_ROWS, count - first))
        return await asyncio.to_thread(body.flush_and_count_bytes) / body.rows

    async def render_and_close_single_book(self) -> AsyncGenerator[TemporaryBookFile]:
        """Render all tables to a single book.

        Raises:
            WorkbookFileTooLarge: It exceeds the maximum size; rendering stops as soon as that is certain.
        """
        bodies: list[TableBodyWriter] = []
        book = self._create_book()
        for table in range(len(self._shapes)):
            bodies.append(await self._begin_table(book, table))
            async with aclosing(self._read_batches(table, 0, await self._rows.count_rows(table))) as batches:
                async for batch in batches:
                    await asyncio.to_thread(bodies[-1].add, batch)
                    self._require_size_within_limit(sum(body.packed_bytes for body in bodies))
        made = await _write_book_to_temporary_file(book, footer=True)
        try:
            # Rows under row heads are compressed at the end, and the size of everything else is known by now.
            self._require_size_within_limit(made.report.bytes)
        except WorkbookFileTooLarge:
            made.close()
            raise
        yield made

    async def render_books(self, segment: RowSegment) -> AsyncGenerator[TemporaryBookFile]:
        """Render the rows of a segment; begin a new book before one grows too large."""
        book, packed, largest = self._create_book(), 0, 0
        body = await self._begin_table(book, 0)
        async with aclosing(self._read_batches(0, segment.first_row, segment.rows)) as batches:
            async for batch in batches:
                if body.rows and (
                    packed + largest > self._max_bytes or body.rows + batch.num_rows > self._spec.file_max_rows
                ):
                    yield await _write_book_to_temporary_file(book, footer=False)
                    book, packed = self._create_book(), 0
                    body = await self._begin_table(book, 0)
                before = packed
                packed = await asyncio.to_thread(_add_rows_and_get_total_bytes, body, batch)
                largest = max(largest, packed - before)
        yield await _write_book_to_temporary_file(book, footer=segment.is_last)

    def _require_size_within_limit(self, size: int) -> None:
        if size > self._spec.file_max_bytes:
            raise WorkbookFileTooLarge(self._spec.file_max_bytes)

    def _create_book(self) -> Workbook:
        # Workflows import the activities for their signatures, and must not load Arrow.
        from excel.workbook import Workbook  # noqa: PLC0415

        return Workbook(self._drawing, time_zone=self._spec.time_zone)

    async def _begin_table(self, book: Workbook, table: int) -> TableBodyWriter:
        return await asyncio.to_thread(book.begin_table, self._drawing.tables[table], self._shapes[table].columns)

    async def _add_rows(self, body: TableBodyWriter, table: int, first_row: int, rows: int) -> None:
        async with aclosing(self._read_batches(table, first_row, rows)) as batches:
            async for batch in batches:
                await asyncio.to_thread(body.add, batch)

    def _read_batches(self, table: int, first_row: int, rows: int) -> AsyncGenerator[pa.RecordBatch]:
        return read_batches(self._rows, table, first_row, rows, self._batch_bytes)


def _add_rows_and_get_total_bytes(body: TableBodyWriter, batch: pa.RecordBatch) -> int:
    """Encode and pack rows; return the size of all rows so far."""
    body.add(batch)
    return body.flush_and_count_bytes()


async def _write_book_to_temporary_file(book: Workbook, *, footer: bool) -> TemporaryBookFile:
    """Finish a book."""
    file = tempfile.SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 (the book file closes it)
    counted = _Crc32Writer(file)
    try:
        report = await asyncio.to_thread(book.finish, counted.write, footer=footer)
    except BaseException:
        file.close()
        raise
    return TemporaryBookFile(report, counted.crc32, file)


class _Crc32Writer:
    """Writes to a file, and computes the checksum that a zip archive needs."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.crc32 = 0

    def write(self, data: bytes) -> None:
        self.crc32 = zlib.crc32(data, self.crc32)
        self._file.write(data)


class RowReader(Protocol):
    """Reads the rows of some tables."""

    async def count_rows(self, table: int) -> int:
        """Return the number of rows of a table."""

    def read_pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """Yield the rows of a table from a given one on, page by page."""


async def read_batches(
    rows: RowReader, table: int, first_row: int, count: int, batch_bytes: int
) -> AsyncGenerator[pa.RecordBatch]:
    """Yield consecutive rows of a table in batches of about *batch_bytes*.

    A heavier page is split, since a book can only end between two batches.

    Raises:
        ValueError: The table has fewer rows.
    """
    # Workflows import the activities for their signatures, and must not load Arrow.
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    if not count:
        return
    gathered: list[pa.RecordBatch] = []
    left, size = count, 0
    async with aclosing(rows.read_pages(table, first_row)) as pages:
        async for page in pages:
            for part in _split_page(page.slice(0, left), batch_bytes):
                gathered.append(part)
                left -= part.num_rows
                size += part.nbytes
                if not left or size >= batch_bytes:
                    yield arrow.join_batches(gathered)
                    gathered, size = [], 0
            if not left:
                return
    raise ValueError(f"{left} of {count} rows from row {first_row} on are missing.")


def _split_page(page: pa.RecordBatch, part_bytes: int) -> Iterator[pa.RecordBatch]:
    """Split a page into parts of about this weight."""
    rows = max(1, page.num_rows * part_bytes // max(1, page.nbytes))
    return (page.slice(first, rows) for first in range(0, page.num_rows, rows))


class StagedRowReader:
    """Reads rows from the object store, where each table is one object."""

    def __init__(self, objects: ObjectStore, spec: DownloadSpec, shapes: Sequence[TableShape]) -> None:
        self._objects = objects
        self._orders = [spec.build_table_spec(table) for table in range(len(shapes))]
        self._shapes = shapes

    async def count_rows(self, table: int) -> int:
        """Return the number of rows of a table."""
        return sum(part.rows for part in (await self._read_assembly_record(table)).parts)

    async def read_pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """Yield the rows of a table from a given one on, page by page."""
        start, before = await self._find_start_of_part_with_row(table, first_row)
        async with (
            aclosing(self._objects.stream(names.build_joined_parts_key(self._orders[table]), start)) as content,
            aclosing(_read_pages(content, self._shapes[table].columns, first_row - before)) as pages,
        ):
            async for page in pages:
                yield page

    async def _find_start_of_part_with_row(self, table: int, row: int) -> tuple[int, int]:
        """Return the start of the part that holds a row, in bytes and in rows; every part begins with a page."""
        start = rows = 0
        for part in (await self._read_assembly_record(table)).parts:
            if rows + part.rows > row:
                break
            start, rows = start + part.bytes, rows + part.rows
        return start, rows

    async def _read_assembly_record(self, table: int) -> AssembledPartsRecord:
        return AssembledPartsRecord.model_validate_json(
            await self._objects.get(names.build_assembly_record_key(self._orders[table]))
        )


class BufferedRowReader:
    """Reads the rows of one table from memory, encoded as they are staged."""

    def __init__(self, content: bytes, rows: int, shape: TableShape) -> None:
        self._content = content
        self._rows = rows
        self._shape = shape

    async def count_rows(self, table: int) -> int:
        """Return the number of rows."""
        return self._rows

    async def read_pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """Yield the rows from a given one on, page by page."""

        async def yield_buffered_content() -> AsyncIterator[bytes]:
            yield self._content

        async with aclosing(_read_pages(yield_buffered_content(), self._shape.columns, first_row)) as pages:
            async for page in pages:
                yield page


async def _read_pages(
    content: AsyncIterator[bytes], columns: Sequence[str], skip: int
) -> AsyncGenerator[pa.RecordBatch]:
    """Yield the pages of staged content, without its first rows."""
    # Workflows import the activities for their signatures, and must not load Arrow.
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    schema = arrow.build_staged_schema(columns)
    async with aclosing(read_frames(content)) as pages:
        async for page in pages:
            if page.rows <= skip:
                # The head has no rows.
                skip -= page.rows
                continue
            yield arrow.decode_record_batch(page, schema).slice(skip)
            skip = 0

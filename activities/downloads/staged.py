"""Rows on their way into books: those that are staged in the store, or those that a fetcher has gathered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

from domain.downloads import names
from domain.downloads.request import DownloadOrder
from domain.downloads.shape import Shape
from domain.downloads.sinks import frames
from domain.downloads.staging import AssemblyRecord
from infra.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


class Rows(Protocol):
    """The rows of some tables."""

    async def count(self, table: int) -> int:
        """How many a table has."""

    def pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """The rows of a table from one on, page by page."""


async def batches(
    rows: Rows, table: int, first_row: int, count: int, batch_bytes: int
) -> AsyncGenerator[pa.RecordBatch]:
    """Consecutive rows of a table, some thousand at a time: about as many as weigh *batch_bytes*.

    A page that weighs more is parted, as a book can only end between two batches.
    """
    # Workflows import the steps for their signatures, and must not pay for Arrow.
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    if not count:
        return
    gathered: list[pa.RecordBatch] = []
    left, size = count, 0
    async with aclosing(rows.pages(table, first_row)) as pages:
        async for page in pages:
            for part in _parted(page.slice(0, left), batch_bytes):
                gathered.append(part)
                left -= part.num_rows
                size += part.nbytes
                if not left or size >= batch_bytes:
                    yield arrow.joined(gathered)
                    gathered, size = [], 0
            if not left:
                return
    raise ValueError(f"{left} of {count} rows from row {first_row} on are missing.")


def _parted(page: pa.RecordBatch, part_bytes: int) -> Iterator[pa.RecordBatch]:
    """A page in parts of about this weight; as it is where it weighs less."""
    rows = max(1, page.num_rows * part_bytes // max(1, page.nbytes))
    return (page.slice(first, rows) for first in range(0, page.num_rows, rows))


class StagedRows:
    """Rows in the store, each table joined to one object."""

    def __init__(self, objects: ObjectStore, order: DownloadOrder, shapes: Sequence[Shape]) -> None:
        self._objects = objects
        self._orders = [order.for_table(table) for table in range(len(shapes))]
        self._shapes = shapes

    async def count(self, table: int) -> int:
        """How many a table has."""
        return sum(part.rows for part in (await self._record(table)).parts)

    async def pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """The rows of a table from one on, page by page."""
        start, before = await self._part_with(table, first_row)
        async with (
            aclosing(self._objects.stream(names.upload(self._orders[table]), start)) as content,
            aclosing(_read(content, self._shapes[table].columns, first_row - before)) as pages,
        ):
            async for page in pages:
                yield page

    async def _part_with(self, table: int, row: int) -> tuple[int, int]:
        """Where the part begins that holds a row, in bytes and in rows; every part begins with a page."""
        start = rows = 0
        for part in (await self._record(table)).parts:
            if rows + part.rows > row:
                break
            start, rows = start + part.bytes, rows + part.rows
        return start, rows

    async def _record(self, table: int) -> AssemblyRecord:
        return AssemblyRecord.model_validate_json(await self._objects.get(names.assembly(self._orders[table])))


class GatheredRows:
    """Rows of one table in memory, as they are staged."""

    def __init__(self, content: bytes, rows: int, shape: Shape) -> None:
        self._content = content
        self._rows = rows
        self._shape = shape

    async def count(self, table: int) -> int:
        """How many there are."""
        return self._rows

    async def pages(self, table: int, first_row: int) -> AsyncGenerator[pa.RecordBatch]:
        """The rows from one on, page by page."""

        async def content() -> AsyncIterator[bytes]:
            yield self._content

        async with aclosing(_read(content(), self._shape.columns, first_row)) as pages:
            async for page in pages:
                yield page


async def _read(content: AsyncIterator[bytes], columns: Sequence[str], skip: int) -> AsyncGenerator[pa.RecordBatch]:
    """The pages of staged content, without its first rows."""
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    schema = arrow.schema(columns)
    async with aclosing(frames.frames(content)) as pages:
        async for page in pages:
            if page.rows <= skip:
                # The head has none.
                skip -= page.rows
                continue
            yield arrow.batch(page, schema).slice(skip)
            skip = 0

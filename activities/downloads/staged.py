"""The staged rows of a table, read back: all of them, or those of one book."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from domain.downloads import places
from domain.downloads.request import DownloadOrder
from domain.downloads.sinks import frames
from domain.downloads.staging import AssemblyRecord
from infra.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa


async def batches(
    objects: ObjectStore, order: DownloadOrder, columns: list[str], first_row: int, rows: int, batch_bytes: int
) -> AsyncGenerator[pa.RecordBatch]:
    """Consecutive rows of a table, some thousand at a time.

    Args:
        order: For the table.
        columns: Of the table, as it is staged.
        batch_bytes: About what a batch weighs.
    """
    # Workflows import the steps for their signatures, and must not pay for Arrow.
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    if not rows:
        return
    gathered: list[pa.RecordBatch] = []
    left, size = rows, 0
    async with aclosing(_pages(objects, order, columns, first_row)) as pages:
        async for page in pages:
            gathered.append(page.slice(0, left))
            left -= gathered[-1].num_rows
            size += gathered[-1].nbytes
            if not left or size >= batch_bytes:
                yield arrow.joined(gathered)
                gathered, size = [], 0
            if not left:
                return
    raise ValueError(f"{left} of {rows} staged rows from row {first_row} on are missing.")


async def row_count(objects: ObjectStore, order: DownloadOrder) -> int:
    """How many rows of a table are staged."""
    return sum(part.rows for part in (await _parts(objects, order)).parts)


async def _pages(
    objects: ObjectStore, order: DownloadOrder, columns: list[str], first_row: int
) -> AsyncGenerator[pa.RecordBatch]:
    """The rows from one on, page by page."""
    from domain.downloads.sinks import arrow  # noqa: PLC0415

    schema = arrow.schema(columns)
    start, before = await _part_with(objects, order, first_row)
    skip = first_row - before
    async with (
        aclosing(objects.stream(places.upload(order), start)) as content,
        aclosing(frames.frames(content)) as pages,
    ):
        async for page in pages:
            if page.rows <= skip:
                # The head has none.
                skip -= page.rows
                continue
            yield arrow.batch(page, schema).slice(skip)
            skip = 0


async def _part_with(objects: ObjectStore, order: DownloadOrder, row: int) -> tuple[int, int]:
    """Where the part begins that holds a row, in bytes and in rows; every part begins with a page."""
    start = rows = 0
    for part in (await _parts(objects, order)).parts:
        if rows + part.rows > row:
            break
        start, rows = start + part.bytes, rows + part.rows
    return start, rows


async def _parts(objects: ObjectStore, order: DownloadOrder) -> AssemblyRecord:
    return AssemblyRecord.model_validate_json(await objects.get(places.assembly(order)))

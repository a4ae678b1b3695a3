"""Books: how many an Excel download takes, and how they are kept: as objects, or as parts of one archive."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from activities.downloads.press import FRAME_BYTES, Press, Print
from domain.downloads import archive, places, staging
from domain.downloads.archive import Member
from domain.downloads.excel import segments
from domain.downloads.excel.drawing import TableDrawing
from domain.downloads.excel.limits import SheetFull
from domain.downloads.excel.reading import read_template
from domain.downloads.excel.rows import UncoveredRows
from domain.downloads.excel.segments import Book, Segment
from domain.downloads.request import DownloadOrder
from domain.downloads.sinks import sink_for
from domain.downloads.staging import PartRecord
from domain.downloads.steps import Assembled, Opening, Probe, Rendered, RenderOrder
from domain.faults import SourceFault
from infra.objects import ObjectStore

# So few rows make one small book whatever they hold, and need no sample.
ROWS_OF_ONE_BOOK = 20_000
# Books are parts of an upload if they are planned to be this much larger than the smallest part that is allowed.
PART_MARGIN = 1.4
PART_MAX_BYTES = 64 * 1024 * 1024


def require_room(order: DownloadOrder, drawings: Sequence[TableDrawing], probes: Sequence[Probe]) -> None:
    """See, before anything is fetched, that a book that cannot be made several may have all rows.

    Raises:
        SourceFault: It may not.
    """
    if drawings and is_whole(drawings):
        _whole(sum(probe.extent.total or 0 for probe in probes), order.file_max_rows)


async def plan(objects: ObjectStore, order: DownloadOrder, opening: Opening, rows: Sequence[int]) -> Assembled:
    """Share the rows out among books.

    Args:
        rows: How many each table has.
    """
    drawings = await _drawings(objects, order)
    if is_whole(drawings):
        return Assembled(segments=_whole(sum(rows), order.file_max_rows))
    (count,) = rows
    row_bytes = 0.0
    if count > ROWS_OF_ONE_BOOK:
        row_bytes = await Press(objects, order, opening, drawings).row_bytes(count)
    found = segments.segments(count, row_bytes, order.file_max_bytes - FRAME_BYTES, order.file_max_rows)
    smallest = found[-1].rows * row_bytes
    if len(found) == 1 or smallest < PART_MARGIN * staging.PART_MIN_BYTES or order.file_max_bytes > PART_MAX_BYTES:
        return Assembled(segments=found)
    return Assembled(segments=found, archive=await _new_archive(objects, order))


def is_whole(drawings: Sequence[TableDrawing]) -> bool:
    """Whether the book cannot be made several: it has several tables, or rows under row heads."""
    template = drawings[0].template
    return len(drawings) > 1 or (template is not None and bool(read_template(template).rows))


async def render(objects: ObjectStore, render: RenderOrder) -> Rendered:
    """The books of a segment: one, unless its rows take more room than planned."""
    order, segment = render.order, render.segment
    press = Press(objects, order, render.opening, await _drawings(objects, order))
    prints = press.whole_book() if segment.whole else press.books(segment)
    try:
        async with aclosing(prints):
            if render.archive:
                return await _as_part(objects, render, prints)
            return await _as_objects(objects, render, prints)
    except UncoveredRows as error:
        raise SourceFault(
            "excel_uncovered_rows", str(error), "Add row heads of these names to the template, or leave the rows out."
        ) from None
    except SheetFull as error:
        raise SourceFault("excel_sheet_full", str(error)) from None


async def _as_objects(objects: ObjectStore, render: RenderOrder, prints: AsyncGenerator[Print]) -> Rendered:
    """Each book an object of its own."""
    order, books = render.order, list[Book]()
    async for made in prints:
        stored = await objects.put_stream(
            places.book(order, render.segment.number, len(books)),
            made.stream(),
            content_type=sink_for(order).content_type,
            metadata={"task": order.task_id},
        )
        books.append(_book(render, made, len(books), stored.etag))
    return Rendered(books=books)


async def _as_part(objects: ObjectStore, render: RenderOrder, prints: AsyncGenerator[Print]) -> Rendered:
    """All books of the segment one part of the archive, unless they are too small for one: then they are nowhere."""
    order, books, pieces = render.order, list[Book](), list[bytes]()
    async for made in prints:
        books.append(_book(render, made, len(books)))
        pieces.append(archive.opening(books[-1].member, order.archived_at))
        pieces += [piece async for piece in made.stream()]
    data = b"".join(pieces)
    if len(data) < staging.PART_MIN_BYTES:
        return Rendered(books=books)
    number = render.segment.number + 1
    part, digest = await asyncio.gather(
        objects.put_part(places.archive(order), render.archive, number, data),
        asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest()),
    )
    record = PartRecord(
        number=number, bytes=len(data), etag=part.etag, sha256=digest, rows=sum(book.report.rows for book in books)
    )
    return Rendered(books=books, part=record)


def _book(render: RenderOrder, made: Print, place: int, etag: str = "") -> Book:
    name = render.segment.book_name(place, render.order.file_name.removesuffix(".xlsx"))
    member = Member(name=name, bytes=made.report.bytes, crc32=made.crc32)
    return Book(member=member, etag=etag, report=made.report)


async def _new_archive(objects: ObjectStore, order: DownloadOrder) -> str:
    """An upload for the archive; one that an earlier attempt left behind goes."""
    for upload in await objects.list_uploads(places.archive(order)):
        await objects.abort(upload.key, upload.upload_id)
    return await objects.begin_upload(
        places.archive(order), content_type=archive.CONTENT_TYPE, metadata={"task": order.task_id}
    )


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

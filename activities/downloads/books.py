"""Books: how many an Excel download takes, and how they are kept: as objects, or as parts of one archive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from activities.downloads.book_rendering import BOOK_OVERHEAD_BYTES, BookFile, BookRenderer, BufferedRows, StagedRows
from domain.downloads import names, plan, staging
from domain.downloads.activity_models import Assembled, FetchOrder, Opening, Probe, RenderOrder
from domain.downloads.books import (
    ZIP_CONTENT_TYPE,
    RenderedBook,
    Segment,
    TooManyRowsForBook,
    ZipMember,
    encode_local_header,
    plan_segments,
    plan_single_book,
)
from domain.downloads.models import DownloadOrder
from domain.downloads.sinks import sink_for
from domain.downloads.staging import PartRecord, Rendered, StagingError
from domain.faults import SourceFault
from excel.limits import SheetFull, UncoveredRows, WorkbookTooLarge
from excel.template.models import Drawing
from excel.template.reading import read_template
from infra.objects import ObjectStore

# So few rows make one small book whatever they hold, and need no sample.
ROWS_OF_ONE_BOOK = 20_000
# Books are parts of an upload if they are planned to be this much larger than the smallest part that is allowed.
PART_MARGIN = 1.4
PART_MAX_BYTES = 64 * 1024 * 1024
# What a fetcher holds of the rows of a book, as they would be staged.
GATHERED_MAX_BYTES = 24 * 1024 * 1024
ASK_FOR_LESS = "Ask for fewer rows, or for one table without row heads, which becomes several files where it must."


def require_single_book_limit(order: DownloadOrder, drawing: Drawing | None, probes: Sequence[Probe]) -> None:
    """See, before anything is fetched, that a book that cannot be made several may have all rows.

    Raises:
        SourceFault: It may not.
    """
    if drawing is not None and _is_single_book(drawing):
        _plan_single_book(sum(probe.extent.total or 0 for probe in probes), order.file_max_rows)


async def plan_fetched_books(order: DownloadOrder, drawing: Drawing, probe: Probe, sample: BufferedRows) -> int:
    """How many books fetchers make of the rows, each of those that it gathers; 0 where they are staged first.

    Args:
        sample: The rows of the first page.
    """
    total = probe.extent.total
    if not probe.extent.exact or total is None or order.inline_key is not None or _is_single_book(drawing):
        return 0
    if plan.fetchers(total, probe.extent.page_size) == 1:
        return 0
    row_bytes = await BookRenderer(order, drawing, [probe.shape], sample).row_bytes(0)
    found = _plan_segments(order, total, row_bytes)
    gathered_bytes = found[0].rows * probe.row_bytes
    return len(found) if _fit_parts(order, found, row_bytes) and gathered_bytes <= GATHERED_MAX_BYTES else 0


async def plan_staged_books(
    objects: ObjectStore, order: DownloadOrder, opening: Opening, rows: Sequence[int]
) -> Assembled:
    """Share the staged rows out among books.

    Args:
        rows: How many each table has.
    """
    drawing = await read_drawing(objects, order)
    if _is_single_book(drawing):
        return Assembled(segments=_plan_single_book(sum(rows), order.file_max_rows))
    (count,) = rows
    row_bytes = 0.0
    if count > ROWS_OF_ONE_BOOK:
        row_bytes = await _open_renderer(objects, order, opening, drawing).row_bytes(0, count // 2)
    found = _plan_segments(order, count, row_bytes)
    if not _fit_parts(order, found, row_bytes):
        return Assembled(segments=found)
    return Assembled(segments=found, archive=await begin_archive(objects, order))


async def render_segment(objects: ObjectStore, render: RenderOrder) -> Rendered:
    """The books of a segment of staged rows: one, unless they take more room than planned."""
    press = _open_renderer(objects, render.order, render.opening, await read_drawing(objects, render.order))
    return await _store_books(objects, render.order, render.segment, render.archive, press)


async def render_fetched_rows(objects: ObjectStore, fetch: FetchOrder, rows: BufferedRows) -> Rendered:
    """The books of a range, made of its rows where they were fetched.

    Raises:
        StagingError: They are too small to be a part of the archive.
    """
    order, shape = fetch.order, fetch.probe.shape
    segment = Segment(number=fetch.pages.index, count=fetch.ranges, first_row=0, rows=await rows.count(0))
    press = BookRenderer(order, await read_drawing(objects, order), [shape], rows)
    rendered = await _store_books(objects, order, segment, fetch.archive, press)
    if rendered.part is None:
        raise StagingError(f"the books of range {fetch.pages.index} are too small for a part of the archive")
    return rendered


async def begin_archive(objects: ObjectStore, order: DownloadOrder) -> str:
    """An upload for the archive; one that an earlier attempt left behind goes."""
    for upload in await objects.list_uploads(names.archive(order)):
        await objects.abort(upload.key, upload.upload_id)
    return await objects.begin_upload(
        names.archive(order), content_type=ZIP_CONTENT_TYPE, metadata={"task": order.task_id}
    )


async def read_drawing(objects: ObjectStore, order: DownloadOrder) -> Drawing:
    """How the book is to look."""
    return Drawing.model_validate_json(await objects.get(names.drawing(order)))


def _open_renderer(objects: ObjectStore, order: DownloadOrder, opening: Opening, drawing: Drawing) -> BookRenderer:
    shapes = [probe.shape for probe in opening.tables]
    return BookRenderer(order, drawing, shapes, StagedRows(objects, order, shapes))


def _plan_segments(order: DownloadOrder, rows: int, row_bytes: float) -> list[Segment]:
    return plan_segments(rows, row_bytes, order.file_max_bytes - BOOK_OVERHEAD_BYTES, order.file_max_rows)


def _fit_parts(order: DownloadOrder, found: Sequence[Segment], row_bytes: float) -> bool:
    """Whether books of these segments are surely large enough for parts of an upload, and small enough for memory."""
    smallest = found[-1].rows * row_bytes
    return (
        len(found) > 1 and smallest >= PART_MARGIN * staging.PART_MIN_BYTES and order.file_max_bytes <= PART_MAX_BYTES
    )


def _is_single_book(drawing: Drawing) -> bool:
    """Whether the book cannot be made several: it has several tables, or rows under row heads."""
    template = drawing.tables[0].template
    return len(drawing.tables) > 1 or (template is not None and bool(read_template(template).rows))


async def _store_books(
    objects: ObjectStore, order: DownloadOrder, segment: Segment, archive_upload: str, press: BookRenderer
) -> Rendered:
    """Make the books of a segment, and keep them."""
    shelf = _BookStorage(objects, order, segment)
    prints = press.whole_book() if segment.whole else press.books(segment)
    try:
        async with aclosing(prints):
            return await (shelf.as_part(archive_upload, prints) if archive_upload else shelf.as_objects(prints))
    except UncoveredRows as error:
        raise SourceFault(
            "excel_uncovered_rows", str(error), "Add row heads of these names to the template, or leave the rows out."
        ) from None
    except SheetFull as error:
        raise SourceFault("excel_sheet_full", str(error)) from None
    except WorkbookTooLarge as error:
        raise SourceFault(
            "excel_too_large",
            f"A book with row heads or with several tables stays one file, of at most {error.max_bytes:,} bytes; "
            "its rows take more.",
            ASK_FOR_LESS,
        ) from None


class _BookStorage:
    """Where the books of a segment are kept."""

    def __init__(self, objects: ObjectStore, order: DownloadOrder, segment: Segment) -> None:
        self._objects = objects
        self._order = order
        self._segment = segment

    async def as_objects(self, prints: AsyncGenerator[BookFile]) -> Rendered:
        """Each book an object of its own."""
        order, books = self._order, list[RenderedBook]()
        async for made in prints:
            stored = await self._objects.put_stream(
                names.book(order, self._segment.number, len(books)),
                made.stream(),
                content_type=sink_for(order).content_type,
                metadata={"task": order.task_id},
            )
            books.append(self._book(made, len(books), stored.etag))
        return Rendered(books=books)

    async def as_part(self, upload_id: str, prints: AsyncGenerator[BookFile]) -> Rendered:
        """All books one part of the archive, unless they are too small for one: then they are nowhere."""
        books, pieces = list[RenderedBook](), list[bytes]()
        async for made in prints:
            books.append(self._book(made, len(books)))
            pieces.append(encode_local_header(books[-1].member, self._order.archived_at))
            pieces += [piece async for piece in made.stream()]
        data = b"".join(pieces)
        if len(data) < staging.PART_MIN_BYTES:
            return Rendered(books=books)
        number = self._segment.number + 1
        part = await self._objects.put_part(names.archive(self._order), upload_id, number, data)
        rows = sum(book.report.rows for book in books)
        record = PartRecord(number=number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=rows)
        return Rendered(books=books, part=record)

    def _book(self, made: BookFile, place: int, etag: str = "") -> RenderedBook:
        name = self._segment.book_name(place, self._order.file_name.removesuffix(".xlsx"))
        member = ZipMember(name=name, bytes=made.report.bytes, crc32=made.crc32)
        return RenderedBook(member=member, etag=etag, report=made.report)


def _plan_single_book(rows: int, max_rows: int) -> list[Segment]:
    """All rows in one book, if it may have as many."""
    try:
        return plan_single_book(rows, max_rows)
    except TooManyRowsForBook:
        raise SourceFault(
            "excel_too_many_rows",
            f"A book with row heads or with several tables stays one file, of at most {max_rows:,} rows; "
            f"the source has {rows:,}.",
            ASK_FOR_LESS,
        ) from None

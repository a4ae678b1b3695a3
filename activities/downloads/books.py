"""Books of an Excel download: how many it takes, and how they are stored: as objects, or as parts of an archive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from activities.downloads.book_rendering import (
    BOOK_OVERHEAD_BYTES,
    BookRenderer,
    BufferedRowReader,
    StagedRowReader,
    TemporaryBookFile,
)
from domain.downloads import names, plan, staging
from domain.downloads.activity_models import (
    CombineBooksInput,
    FetchRangeInput,
    FileManifest,
    FileOrSegments,
    RenderSegmentInput,
    SourcesProbe,
    TableProbe,
)
from domain.downloads.models import DownloadSpec, StoredFile
from domain.downloads.plan import RowSegment, TooManyRowsForBook, plan_segments, plan_single_book
from domain.downloads.sinks import build_sink
from domain.downloads.staging import (
    RenderedBook,
    RenderedSegment,
    StagedPartsInvalid,
    UploadedPartRecord,
    ZipMemberSizeAndChecksum,
    ZipTooLarge,
    encode_central_directory,
    encode_local_header,
    require_zip_limits,
)
from domain.faults import SourceFault
from excel.limits import SheetFull, UncoveredRows, WorkbookFileTooLarge, list_warnings
from excel.template.models import WorkbookLayout
from excel.template.reading import read_template
from infra.objects import ObjectMissing, ObjectStore, UploadPart

# Up to this many rows fit one book whatever they contain, so no sample is needed.
ROWS_OF_ONE_BOOK = 20_000
# Books become parts of an upload if their planned size exceeds the minimum of a part by this factor.
PART_MARGIN = 1.4
PART_MAX_BYTES = 64 * 1024 * 1024
# Rows that a fetcher may hold in memory for one book, encoded as they are staged.
GATHERED_MAX_BYTES = 24 * 1024 * 1024
ASK_FOR_LESS = "Ask for fewer rows, or for one table without row heads, which becomes several files where it must."


def require_rows_within_single_book(
    spec: DownloadSpec, drawing: WorkbookLayout | None, probes: Sequence[TableProbe]
) -> None:
    """Check, before anything is fetched, that all rows fit a book that cannot be split.

    Raises:
        SourceFault: They do not.
    """
    if drawing is not None and _must_be_single_book(drawing):
        _plan_single_book(sum(probe.extent.total or 0 for probe in probes), spec.file_max_rows)


async def count_books_rendered_by_fetchers(
    spec: DownloadSpec, drawing: WorkbookLayout, probe: TableProbe, sample: BufferedRowReader
) -> int:
    """Return how many books fetchers render themselves, one for each range; 0 if rows are staged first.

    Args:
        sample: The rows of the first page.
    """
    total = probe.extent.total
    if not probe.extent.is_exact or total is None or spec.inline_key is not None or _must_be_single_book(drawing):
        return 0
    if plan.choose_fetcher_count(total, probe.extent.page_size) == 1 or not await sample.count_rows(0):
        return 0
    row_bytes = await BookRenderer(spec, drawing, [probe.shape], sample).measure_row_bytes(0)
    if total * row_bytes > staging.ZIP_MAX_BYTES:
        # No archive holds that many, and a source that reports any total could have billions of them planned.
        return 0
    found = _plan_segments(spec, total, row_bytes)
    gathered_bytes = found[0].rows * probe.row_bytes
    return len(found) if _can_be_archive_parts(spec, found, row_bytes) and gathered_bytes <= GATHERED_MAX_BYTES else 0


async def plan_staged_books_and_begin_archive(
    objects: ObjectStore, spec: DownloadSpec, sources: SourcesProbe, rows: Sequence[int]
) -> FileOrSegments:
    """Divide the staged rows among books.

    Args:
        rows: Number of rows of each table.
    """
    drawing = await read_drawing(objects, spec)
    if _must_be_single_book(drawing):
        return FileOrSegments(segments=_plan_single_book(sum(rows), spec.file_max_rows))
    (count,) = rows
    row_bytes = 0.0
    if count > ROWS_OF_ONE_BOOK:
        row_bytes = await _open_renderer(objects, spec, sources, drawing).measure_row_bytes(0, count // 2)
    found = _plan_segments(spec, count, row_bytes)
    if not _can_be_archive_parts(spec, found, row_bytes):
        return FileOrSegments(segments=found)
    return FileOrSegments(segments=found, archive=await abort_old_and_begin_archive_upload(objects, spec))


async def render_segment(objects: ObjectStore, render: RenderSegmentInput) -> RenderedSegment:
    """Render the staged rows of a segment to one book, or to several if they are larger than planned."""
    renderer = _open_renderer(objects, render.spec, render.sources, await read_drawing(objects, render.spec))
    return await _render_and_store_books(objects, render.spec, render.segment, render.archive, renderer)


async def render_fetched_rows(objects: ObjectStore, fetch: FetchRangeInput, rows: BufferedRowReader) -> RenderedSegment:
    """Render the rows of a range, which its fetcher holds in memory.

    Raises:
        StagedPartsInvalid: The books are too small to be a part of the archive.
    """
    spec, shape = fetch.spec, fetch.probe.shape
    segment = RowSegment(number=fetch.pages.index, count=fetch.ranges, first_row=0, rows=await rows.count_rows(0))
    renderer = BookRenderer(spec, await read_drawing(objects, spec), [shape], rows)
    rendered = await _render_and_store_books(objects, spec, segment, fetch.archive, renderer)
    if rendered.part is None:
        raise StagedPartsInvalid(f"the books of range {fetch.pages.index} are too small for a part of the archive")
    return rendered


async def abort_old_and_begin_archive_upload(objects: ObjectStore, spec: DownloadSpec) -> str:
    """Begin the upload of the archive; abort one that an earlier attempt left behind."""
    for upload in await objects.list_open_uploads(names.build_archive_key(spec)):
        await objects.abort_upload(upload.key, upload.upload_id)
    return await objects.begin_upload(
        names.build_archive_key(spec), content_type=staging.ZIP_CONTENT_TYPE, metadata={"task": spec.task_id}
    )


async def read_drawing(objects: ObjectStore, spec: DownloadSpec) -> WorkbookLayout:
    """Read the drawing of a download."""
    return WorkbookLayout.model_validate_json(await objects.get(names.build_drawing_key(spec)))


def _open_renderer(
    objects: ObjectStore, spec: DownloadSpec, sources: SourcesProbe, drawing: WorkbookLayout
) -> BookRenderer:
    shapes = [probe.shape for probe in sources.tables]
    return BookRenderer(spec, drawing, shapes, StagedRowReader(objects, spec, shapes))


def _plan_segments(spec: DownloadSpec, rows: int, row_bytes: float) -> list[RowSegment]:
    return plan_segments(rows, row_bytes, spec.file_max_bytes - BOOK_OVERHEAD_BYTES, spec.file_max_rows)


def _can_be_archive_parts(spec: DownloadSpec, segments: Sequence[RowSegment], row_bytes: float) -> bool:
    """Return whether books of these segments are large enough for parts of an upload and small enough for memory."""
    smallest = segments[-1].rows * row_bytes
    return (
        len(segments) > 1 and smallest >= PART_MARGIN * staging.PART_MIN_BYTES and spec.file_max_bytes <= PART_MAX_BYTES
    )


def _must_be_single_book(drawing: WorkbookLayout) -> bool:
    """Return whether the book cannot be split, because it has several tables or rows under row heads."""
    template = drawing.tables[0].template
    return len(drawing.tables) > 1 or (template is not None and bool(read_template(template).rows))


async def _render_and_store_books(
    objects: ObjectStore, spec: DownloadSpec, segment: RowSegment, archive_upload: str, renderer: BookRenderer
) -> RenderedSegment:
    """Render the books of a segment and store them; explain books that cannot be made as faults."""
    storage = _SegmentBookWriter(objects, spec, segment)
    files = renderer.render_and_close_single_book() if segment.whole else renderer.render_books(segment)
    try:
        async with aclosing(files):
            return await (
                storage.store_as_part_unless_too_small(archive_upload, files)
                if archive_upload
                else storage.store_as_objects(files)
            )
    except UncoveredRows as error:
        raise SourceFault(
            "excel_uncovered_rows", str(error), "Add row heads of these names to the template, or leave the rows out."
        ) from None
    except SheetFull as error:
        raise SourceFault("excel_sheet_full", str(error)) from None
    except WorkbookFileTooLarge as error:
        raise SourceFault(
            "excel_too_large",
            f"A book with row heads or with several tables stays one file, of at most {error.max_bytes:,} bytes; "
            "its rows take more.",
            ASK_FOR_LESS,
        ) from None


class _SegmentBookWriter:
    """Stores the books of a segment."""

    def __init__(self, objects: ObjectStore, spec: DownloadSpec, segment: RowSegment) -> None:
        self._objects = objects
        self._spec = spec
        self._segment = segment

    async def store_as_objects(self, files: AsyncGenerator[TemporaryBookFile]) -> RenderedSegment:
        """Store each book as an object."""
        spec, books = self._spec, list[RenderedBook]()
        async for file in files:
            stored = await self._objects.put_stream(
                names.build_book_key(spec, self._segment.number, len(books)),
                file.stream_once_and_close(),
                content_type=build_sink(spec).content_type,
                metadata={"task": spec.task_id},
            )
            books.append(self._build_rendered_book(file, len(books), stored.etag))
        return RenderedSegment(books=books)

    async def store_as_part_unless_too_small(
        self, upload_id: str, files: AsyncGenerator[TemporaryBookFile]
    ) -> RenderedSegment:
        """Store all books as one part of the archive, or nothing if they are too small for a part."""
        books, pieces = list[RenderedBook](), list[bytes]()
        async for file in files:
            books.append(self._build_rendered_book(file, len(books)))
            pieces.append(encode_local_header(books[-1].member, self._spec.timestamp_of_files_in_archive))
            pieces += [piece async for piece in file.stream_once_and_close()]
        data = b"".join(pieces)
        if len(data) < staging.PART_MIN_BYTES:
            return RenderedSegment(books=books)
        number = self._segment.number + 1
        part = await self._objects.put_part(names.build_archive_key(self._spec), upload_id, number, data)
        rows = sum(book.report.rows for book in books)
        record = UploadedPartRecord(number=number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=rows)
        return RenderedSegment(books=books, part=record)

    def _build_rendered_book(self, file: TemporaryBookFile, place: int, etag: str = "") -> RenderedBook:
        name = self._segment.build_book_name(place, self._spec.file_name.removesuffix(".xlsx"))
        member = ZipMemberSizeAndChecksum(name=name, bytes=file.report.bytes, crc32=file.crc32)
        report = file.report.build_copy_for_list(is_first=place == self._segment.number == 0)
        return RenderedBook(member=member, etag=etag, report=report)


def _plan_single_book(rows: int, max_rows: int) -> list[RowSegment]:
    """Plan a single book for all rows.

    Raises:
        SourceFault: A book may not have as many.
    """
    try:
        return plan_single_book(rows, max_rows)
    except TooManyRowsForBook:
        raise SourceFault(
            "excel_too_many_rows",
            f"A book with row heads or with several tables stays one file, of at most {max_rows:,} rows; "
            f"the source has {rows:,}.",
            ASK_FOR_LESS,
        ) from None


async def combine_books(objects: ObjectStore, params: CombineBooksInput) -> StoredFile:
    """Combine all books into one file. A repeated call finds what an earlier attempt did."""
    spec = params.spec
    manifest = await read_manifest_and_delete_staging(objects, spec)
    if manifest is None:
        manifest = await _make_file_and_build_manifest(objects, params)
        await write_manifest_and_delete_staging(objects, spec, manifest)
    if manifest.files > 1:
        for upload in await objects.list_open_uploads(names.build_files_prefix(spec)):
            await objects.abort_upload(upload.key, upload.upload_id)
        for key in _list_book_keys(params):
            await objects.delete(key)
    return manifest.file


async def _make_file_and_build_manifest(objects: ObjectStore, params: CombineBooksInput) -> FileManifest:
    spec, books = params.spec, params.books
    rows, total = sum(book.report.rows for book in books), params.sources.exact_total_rows
    if total is not None and not params.has_gaps and rows != total:
        raise StagedPartsInvalid(f"{rows} rows were rendered where the source has {total}")
    shapes = [probe.shape for probe in params.sources.tables]
    left_out = dict.fromkeys([*(key for shape in shapes for key in shape.left_out or []), *params.left_out])
    file = _build_stored_file_of_single_book(params) if len(books) == 1 else await _make_archive(objects, params)
    return FileManifest(
        **file.model_dump(exclude={"rows", "left_out", "warnings"}),
        task_id=spec.task_id,
        rows=rows,
        columns=[name for shape in shapes for name in shape.columns],
        parts=[rendered.part for rendered in params.rendered if rendered.part is not None],
        left_out=list(left_out),
        warnings=[*params.warnings, *list_warnings([book.report for book in books])],
    )


def _build_stored_file_of_single_book(params: CombineBooksInput) -> StoredFile:
    (book,) = params.books
    return StoredFile(
        key=names.build_book_key(params.spec, 0, 0),
        name=params.spec.file_name,
        content_type=build_sink(params.spec).content_type,
        rows=book.report.rows,
        bytes=book.member.bytes,
        etag=book.etag,
    )


async def _make_archive(objects: ObjectStore, params: CombineBooksInput) -> StoredFile:
    spec, members = params.spec, [book.member for book in params.books]
    try:
        require_zip_limits(members)
    except ZipTooLarge as error:
        raise SourceFault(
            "archive_too_large",
            f"The books do not fit one zip archive: {error}.",
            "Ask for less at a time, for example a month each.",
        ) from None
    parts = [rendered.part for rendered in params.rendered if rendered.part is not None]
    size, etag = await (
        _complete_archive(objects, params, members, parts) if parts else _copy_into_archive(objects, params, members)
    )
    return StoredFile(
        key=names.build_archive_key(spec),
        name=f"{spec.file_name.removesuffix('.xlsx')}.zip",
        content_type=staging.ZIP_CONTENT_TYPE,
        rows=sum(book.report.rows for book in params.books),
        bytes=size,
        etag=etag,
        files=len(members),
    )


async def _complete_archive(
    objects: ObjectStore,
    params: CombineBooksInput,
    members: Sequence[ZipMemberSizeAndChecksum],
    placed: Sequence[UploadedPartRecord],
) -> tuple[int, str]:
    """Complete the archive, whose parts are the books and, at last, its directory."""
    key = names.build_archive_key(params.spec)
    directory = encode_central_directory(members, params.spec.timestamp_of_files_in_archive)
    if await objects.head(key) is None:
        parts = [UploadPart(number=part.number, size=part.bytes, etag=part.etag) for part in placed]
        last = await objects.put_part(key, params.archive, len(parts) + 1, directory)
        await objects.complete_upload(key, params.archive, [*parts, last])
    head, size = await objects.head(key), sum(part.bytes for part in placed) + len(directory)
    if head is None or head.size != size:
        raise StagedPartsInvalid(f"the store holds {head}, the parts have {size} bytes")
    return size, head.etag


async def _copy_into_archive(
    objects: ObjectStore, params: CombineBooksInput, members: Sequence[ZipMemberSizeAndChecksum]
) -> tuple[int, str]:
    """Write the archive from the books, which are objects."""
    stored = await objects.put_stream(
        names.build_archive_key(params.spec),
        _stream_archive(objects, params, members),
        content_type=staging.ZIP_CONTENT_TYPE,
        metadata={"task": params.spec.task_id},
    )
    return stored.size, stored.etag


async def _stream_archive(
    objects: ObjectStore, params: CombineBooksInput, members: Sequence[ZipMemberSizeAndChecksum]
) -> AsyncIterator[bytes]:
    for member, key in zip(members, _list_book_keys(params), strict=True):
        yield encode_local_header(member, params.spec.timestamp_of_files_in_archive)
        async for piece in objects.stream(key):
            yield piece
    yield encode_central_directory(members, params.spec.timestamp_of_files_in_archive)


def _list_book_keys(params: CombineBooksInput) -> list[str]:
    """Return the keys of the books that are objects."""
    return [
        names.build_book_key(params.spec, segment, number)
        for segment, rendered in enumerate(params.rendered)
        if rendered.part is None
        for number in range(len(rendered.books))
    ]


async def read_manifest_and_delete_staging(objects: ObjectStore, spec: DownloadSpec) -> FileManifest | None:
    """Return the manifest if an earlier attempt wrote it; then delete what is still staged."""
    try:
        manifest = FileManifest.model_validate_json(await objects.get(names.build_manifest_key(spec)))
    except ObjectMissing:
        return None
    await objects.delete_prefix(names.build_staging_prefix(spec))
    return manifest


async def write_manifest_and_delete_staging(
    objects: ObjectStore, spec: DownloadSpec, manifest: FileManifest
) -> StoredFile:
    """Write the manifest, which finishes the file, and delete the staged rows."""
    await objects.put(names.build_manifest_key(spec), manifest.model_dump_json().encode())
    await objects.delete_prefix(names.build_staging_prefix(spec))
    return manifest.file

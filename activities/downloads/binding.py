"""Binding: the books of an Excel download become one file: the book itself, or an archive of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from temporalio import activity

from activities.downloads.manifest import read_manifest, write_manifest
from domain.downloads import archive, places
from domain.downloads.archive import Archive, ArchiveTooLarge, Member
from domain.downloads.excel.segments import Book
from domain.downloads.request import DownloadOrder
from domain.downloads.sinks import sink_for
from domain.downloads.staging import StagingError
from domain.downloads.status import StoredFile
from domain.downloads.steps import BindOrder, Manifest
from domain.faults import SourceFault
from infra.objects import ObjectStore, Stored


async def bind(objects: ObjectStore, bind: BindOrder) -> StoredFile:
    """Make one file of all books. Repeated, it finds what an earlier attempt did."""
    order, books = bind.order, bind.books
    manifest = await read_manifest(objects, order)
    if manifest is None:
        manifest = await _bound(objects, bind)
        await write_manifest(objects, order, manifest)
    if len(books) > 1:
        for book in books:
            await objects.delete(book.key)
    return manifest.file


async def _bound(objects: ObjectStore, bind: BindOrder) -> Manifest:
    order, books = bind.order, bind.books
    rows = sum(book.rows for book in books)
    total = bind.opening.exact_total
    if total is not None and rows != total:
        raise StagingError(f"{rows} rows were rendered where the source has {total}")
    name, content_type = order.file_name, sink_for(order).content_type
    stored = Stored(books[0].key, books[0].bytes, books[0].etag, "")
    if len(books) > 1:
        name, content_type = f"{name.removesuffix('.xlsx')}.zip", archive.CONTENT_TYPE
        stored = await _archived(objects, order, books)
    shapes = [probe.shape for probe in bind.opening.tables]
    left_out = dict.fromkeys([*(key for shape in shapes for key in shape.left_out or []), *bind.left_out])
    return Manifest(
        task_id=order.task_id,
        key=stored.key,
        name=name,
        content_type=content_type,
        columns=[name for shape in shapes for name in shape.columns],
        rows=rows,
        parts=[],
        bytes=stored.size,
        etag=stored.etag,
        files=len(books),
        left_out=list(left_out),
        warnings=warnings(books),
    )


def warnings(books: Sequence[Book]) -> list[str]:
    """What a user should know of the books: what was cut, and what stayed empty in all of them."""
    found = list(dict.fromkeys(warning for book in books for warning in book.warnings))
    if cut := sum(book.cut_cells for book in books):
        found.append(f"{cut:,} texts were longer than a cell of Excel holds, and are cut.")
    empty = [title for title in books[0].empty_columns if all(title in book.empty_columns for book in books)]
    return found + [f"The column “{title}” is empty: no row has a value for it." for title in empty]


async def _archived(objects: ObjectStore, order: DownloadOrder, books: Sequence[Book]) -> Stored:
    stem, digits = order.file_name.removesuffix(".xlsx"), len(str(len(books)))
    members = [
        Member(f"{stem}-{number:0{digits}}.xlsx", book.bytes, book.crc32) for number, book in enumerate(books, start=1)
    ]
    moment = activity.info().started_time.astimezone(ZoneInfo(order.time_zone))
    content = _content(objects, books, members, moment)
    metadata = {"task": order.task_id}
    try:
        return await objects.put_stream(
            places.archive(order), content, content_type=archive.CONTENT_TYPE, metadata=metadata
        )
    except ArchiveTooLarge as error:
        raise SourceFault(
            "archive_too_large",
            f"The books do not fit one zip archive: {error}.",
            "Ask for less at a time, for example a month each.",
        ) from None


async def _content(
    objects: ObjectStore, books: Sequence[Book], members: list[Member], moment: datetime
) -> AsyncIterator[bytes]:
    zipped = Archive(members, moment)
    for place, book in enumerate(books):
        yield zipped.begin(place)
        async for piece in objects.stream(book.key):
            yield piece
    yield zipped.end()

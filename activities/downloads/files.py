"""The finished file of an Excel download: a single book, or a zip archive of several; and the manifest of any file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from domain.downloads import names
from domain.downloads.activity_models import BindInput, FileManifest
from domain.downloads.books import (
    ZIP_CONTENT_TYPE,
    ZipMember,
    ZipTooLarge,
    encode_central_directory,
    encode_local_header,
    require_zip_limits,
)
from domain.downloads.models import DownloadSpec, StoredFile
from domain.downloads.sinks import build_sink
from domain.downloads.staging import PartRecord, StagingError
from domain.faults import SourceFault
from excel.limits import list_warnings
from infra.objects import ObjectMissing, ObjectStore, UploadPart


async def bind_books(objects: ObjectStore, bind: BindInput) -> StoredFile:
    """Combine all books into one file. A repeated call finds what an earlier attempt did."""
    spec = bind.spec
    manifest = await read_manifest(objects, spec)
    if manifest is None:
        manifest = await _make_file(objects, bind)
        await write_manifest(objects, spec, manifest)
    if manifest.files > 1:
        for upload in await objects.list_uploads(names.files_prefix(spec)):
            await objects.abort(upload.key, upload.upload_id)
        for key in _book_keys(bind):
            await objects.delete(key)
    return manifest.file


async def _make_file(objects: ObjectStore, bind: BindInput) -> FileManifest:
    spec, books = bind.spec, bind.books
    rows, total = sum(book.report.rows for book in books), bind.sources.exact_total
    if total is not None and not bind.has_gaps and rows != total:
        raise StagingError(f"{rows} rows were rendered where the source has {total}")
    shapes = [probe.shape for probe in bind.sources.tables]
    left_out = dict.fromkeys([*(key for shape in shapes for key in shape.left_out or []), *bind.left_out])
    file = _describe_single_book(bind) if len(books) == 1 else await _make_archive(objects, bind)
    return FileManifest(
        **file.model_dump(exclude={"rows", "left_out", "warnings"}),
        task_id=spec.task_id,
        rows=rows,
        columns=[name for shape in shapes for name in shape.columns],
        parts=[rendered.part for rendered in bind.rendered if rendered.part is not None],
        left_out=list(left_out),
        warnings=[*bind.warnings, *list_warnings([book.report for book in books])],
    )


def _describe_single_book(bind: BindInput) -> StoredFile:
    (book,) = bind.books
    return StoredFile(
        key=names.book_key(bind.spec, 0, 0),
        name=bind.spec.file_name,
        content_type=build_sink(bind.spec).content_type,
        rows=book.report.rows,
        bytes=book.member.bytes,
        etag=book.etag,
    )


async def _make_archive(objects: ObjectStore, bind: BindInput) -> StoredFile:
    spec, members = bind.spec, [book.member for book in bind.books]
    try:
        require_zip_limits(members)
    except ZipTooLarge as error:
        raise SourceFault(
            "archive_too_large",
            f"The books do not fit one zip archive: {error}.",
            "Ask for less at a time, for example a month each.",
        ) from None
    parts = [rendered.part for rendered in bind.rendered if rendered.part is not None]
    size, etag = await (
        _complete_archive(objects, bind, members, parts) if parts else _copy_into_archive(objects, bind, members)
    )
    return StoredFile(
        key=names.archive_key(spec),
        name=f"{spec.file_name.removesuffix('.xlsx')}.zip",
        content_type=ZIP_CONTENT_TYPE,
        rows=sum(book.report.rows for book in bind.books),
        bytes=size,
        etag=etag,
        files=len(members),
    )


async def _complete_archive(
    objects: ObjectStore, bind: BindInput, members: Sequence[ZipMember], placed: Sequence[PartRecord]
) -> tuple[int, str]:
    """Complete the archive, whose parts are the books and, at last, its directory."""
    key, directory = names.archive_key(bind.spec), encode_central_directory(members, bind.spec.archived_at)
    if await objects.head(key) is None:
        parts = [UploadPart(number=part.number, size=part.bytes, etag=part.etag) for part in placed]
        last = await objects.put_part(key, bind.archive, len(parts) + 1, directory)
        await objects.complete(key, bind.archive, [*parts, last])
    head, size = await objects.head(key), sum(part.bytes for part in placed) + len(directory)
    if head is None or head.size != size:
        raise StagingError(f"the store holds {head}, the parts have {size} bytes")
    return size, head.etag


async def _copy_into_archive(objects: ObjectStore, bind: BindInput, members: Sequence[ZipMember]) -> tuple[int, str]:
    """Write the archive from the books, which are objects."""
    stored = await objects.put_stream(
        names.archive_key(bind.spec),
        _stream_archive(objects, bind, members),
        content_type=ZIP_CONTENT_TYPE,
        metadata={"task": bind.spec.task_id},
    )
    return stored.size, stored.etag


async def _stream_archive(objects: ObjectStore, bind: BindInput, members: Sequence[ZipMember]) -> AsyncIterator[bytes]:
    for member, key in zip(members, _book_keys(bind), strict=True):
        yield encode_local_header(member, bind.spec.archived_at)
        async for piece in objects.stream(key):
            yield piece
    yield encode_central_directory(members, bind.spec.archived_at)


def _book_keys(bind: BindInput) -> list[str]:
    """Return the keys of the books that are objects."""
    return [
        names.book_key(bind.spec, segment, number)
        for segment, rendered in enumerate(bind.rendered)
        if rendered.part is None
        for number in range(len(rendered.books))
    ]


async def read_manifest(objects: ObjectStore, spec: DownloadSpec) -> FileManifest | None:
    """Return the manifest if an earlier attempt wrote it; then delete what is still staged."""
    try:
        manifest = FileManifest.model_validate_json(await objects.get(names.manifest_key(spec)))
    except ObjectMissing:
        return None
    await objects.delete_prefix(names.staging_prefix(spec))
    return manifest


async def write_manifest(objects: ObjectStore, spec: DownloadSpec, manifest: FileManifest) -> StoredFile:
    """Write the manifest, which finishes the file, and delete the staged rows."""
    await objects.put(names.manifest_key(spec), manifest.model_dump_json().encode())
    await objects.delete_prefix(names.staging_prefix(spec))
    return manifest.file

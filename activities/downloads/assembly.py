"""Assembly: join the staged ranges of a table into one object and verify it; for most types that is the file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from activities.downloads import books
from activities.downloads.books import read_manifest_and_delete_staging, write_manifest_and_delete_staging
from activities.downloads.stager import read_tail
from domain.downloads import names, repeats, sinks, staging
from domain.downloads.activity_models import AssembleInput, FileManifest, FileOrSegments, SourcesProbe, TableProbe
from domain.downloads.models import DownloadSpec, FileType, StoredFile
from domain.downloads.staging import (
    AssembledPartsRecord,
    CompressedPageFrame,
    FilePiece,
    RangeLedger,
    RenderedSegment,
    StagedPartsInvalid,
    UploadedPartRecord,
    UploadedPiece,
    read_frames,
)
from infra.objects import ObjectMissing, ObjectStore, StoredObject, UploadPart, compute_composite_etag

if TYPE_CHECKING:
    from domain.downloads.sinks.arrow import ParquetRenderer

# Weight of the row groups of a Parquet file; memory holds one group at a time.
GROUP_BYTES = 16 * 1024 * 1024


async def join_ranges_or_plan_books(objects: ObjectStore, assemble: AssembleInput) -> FileOrSegments:
    """Join the rows of every table. A repeated call finds what an earlier attempt did."""
    spec, sources = assemble.spec, assemble.sources
    if (manifest := await read_manifest_and_delete_staging(objects, spec)) is not None:
        return FileOrSegments(file=manifest.file)
    ledgers = [
        await _read_ledgers(objects, spec.build_table_spec(table), count) for table, count in enumerate(assemble.ranges)
    ]
    _require_reported_rows(assemble.rows, [ledger for table in ledgers for ledger in table])
    warnings = assemble.warnings + check_page_repeats_and_collect_warnings(spec, sources, assemble.pages, ledgers)
    known = FileOrSegments(warnings=warnings, has_gaps=any(ledger.has_gaps for table in ledgers for ledger in table))
    if sources.archive:
        return known.model_copy(
            update={"rendered": _require_all_rendered_segments(ledgers[0]), "archive": sources.archive}
        )
    joined = [
        await _TableJoiner(objects, spec.build_table_spec(table), probe, ledgers[table]).join_and_verify_table()
        for table, probe in enumerate(sources.tables)
    ]
    if spec.type is FileType.EXCEL:
        shared = await books.plan_staged_books_and_begin_archive(
            objects, spec, sources, [table.rows for table in joined]
        )
        return shared.model_copy(update={"warnings": known.warnings, "has_gaps": known.has_gaps})
    return FileOrSegments(
        file=await _render_if_needed_and_write_manifest(objects, spec, sources.tables[0], joined[0], warnings)
    )


def check_page_repeats_and_collect_warnings(
    spec: DownloadSpec, sources: SourcesProbe, pages: Sequence[Sequence[int]], ledgers: Sequence[Sequence[RangeLedger]]
) -> list[str]:
    """Check for pages that came twice, and return warnings about the rows of all tables.

    Args:
        pages: The first page of each range of each table.
        ledgers: The ledger of each range of each table.
    """
    return [
        warning
        for table, probe in enumerate(sources.tables)
        for warning in (
            *_require_allowed_repeats_and_list_warnings(spec, probe, pages[table], ledgers[table]),
            *_build_doubtful_end_warning_if_any(probe, ledgers[table]),
            *_build_warnings_of_repeated_keys(ledgers[table]),
            *_build_lone_surrogates_warning_if_any(ledgers[table]),
        )
    ]


def count_rows_and_require_total(probe: TableProbe, ledgers: Sequence[RangeLedger]) -> int:
    """Return the number of rows of a table.

    Raises:
        StagedPartsInvalid: The source has another number of rows.
    """
    rows = sum(ledger.rows for ledger in ledgers)
    has_gaps = any(ledger.has_gaps for ledger in ledgers)
    if probe.extent.is_exact and not has_gaps and rows != probe.extent.total:
        raise StagedPartsInvalid(f"{rows} rows are staged where the source has {probe.extent.total}")
    return rows


def _require_reported_rows(reported: int | None, ledgers: Sequence[RangeLedger]) -> None:
    """Check the ledgers against what fetchers reported: a worker that was taken for dead may write one back.

    Raises:
        StagedPartsInvalid: They have another number of rows.
    """
    rows = sum(ledger.rows for ledger in ledgers)
    if reported is not None and rows != reported:
        raise StagedPartsInvalid(f"{rows} rows are staged where fetchers reported {reported}")


def _require_all_rendered_segments(ledgers: Sequence[RangeLedger]) -> list[RenderedSegment]:
    """Return the segments that fetchers rendered.

    Raises:
        StagedPartsInvalid: Some range is not rendered.
    """
    rendered = [ledger.rendered for ledger in ledgers if ledger.rendered is not None]
    if len(rendered) < len(ledgers):
        raise StagedPartsInvalid(f"{len(rendered)} of {len(ledgers)} ranges are rendered")
    return rendered


def _require_allowed_repeats_and_list_warnings(
    spec: DownloadSpec, probe: TableProbe, firsts: Sequence[int], ledgers: Sequence[RangeLedger]
) -> list[str]:
    """Check for pages that came twice, perhaps to different fetchers, and return warnings about allowed ones."""
    rows = repeats.build_repeated_rows_warning_if_any(mark for ledger in ledgers for mark in ledger.row_marks)
    ranges = [
        (probe.extent.to_source_page_number(first), ledger.marks) for first, ledger in zip(firsts, ledgers, strict=True)
    ]
    return repeats.require_distinct_pages_or_build_warning(ranges, is_allowed=spec.allow_repeats) + rows


def _build_doubtful_end_warning_if_any(probe: TableProbe, ledgers: Sequence[RangeLedger]) -> list[str]:
    """Return a warning if the rows may have ended too early."""
    marks = [mark for ledger in ledgers for mark in ledger.marks]
    return repeats.list_doubtful_end_warnings(marks, probe.extent.total, sum(ledger.rows for ledger in ledgers))


def _build_warnings_of_repeated_keys(ledgers: Sequence[RangeLedger]) -> list[str]:
    """Return warnings about keys that rows have twice, from all ranges."""
    pages: dict[str, int] = {}
    for ledger in ledgers:
        for key, page in ledger.repeated_keys.items():
            pages = repeats.add_repeated_keys_with_first_page(pages, [key], page)
    return repeats.build_warning_for_each_repeated_key(pages)


def _build_lone_surrogates_warning_if_any(ledgers: Sequence[RangeLedger]) -> list[str]:
    """Return a warning about lone surrogates, from all ranges."""
    pages = [ledger.lone_surrogate_page for ledger in ledgers if ledger.lone_surrogate_page is not None]
    if not pages:
        return []
    first = f"first on page {min(pages)}; the file has U+FFFD in its place."
    return [f"Texts of the source hold half of a surrogate pair, which is no character, {first}"]


async def _read_ledgers(objects: ObjectStore, spec: DownloadSpec, count: int) -> list[RangeLedger]:
    texts = await asyncio.gather(*(objects.get(names.build_range_ledger_key(spec, index)) for index in range(count)))
    return [RangeLedger.model_validate_json(text) for text in texts]


@dataclass(frozen=True)
class _JoinedPartsAndEtag:
    """The rows of a table, joined to one object."""

    rows: int
    parts: list[UploadedPartRecord]
    etag: str

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


async def _render_if_needed_and_write_manifest(
    objects: ObjectStore, spec: DownloadSpec, probe: TableProbe, joined: _JoinedPartsAndEtag, warnings: list[str]
) -> StoredFile:
    """Make the file: the joined object itself, or a file rendered from it."""
    parts, etag, size = joined.parts, joined.etag, joined.bytes
    sink = sinks.build_sink(spec)
    if sink.needs_rendering:
        staged, metadata = names.build_joined_parts_key(spec), {"task": spec.task_id}
        rendered = await render_parquet(objects, staged, names.build_file_key(spec), metadata=metadata)
        if rendered.rows != joined.rows:
            raise StagedPartsInvalid(f"{rendered.rows} rows were rendered where {joined.rows} are staged")
        parts, etag, size = [], rendered.stored.etag, rendered.stored.size
    manifest = FileManifest(
        task_id=spec.task_id,
        key=names.build_file_key(spec),
        name=spec.file_name,
        content_type=sink.content_type,
        columns=probe.shape.columns,
        rows=joined.rows,
        bytes=size,
        etag=etag,
        parts=parts,
        warnings=warnings,
    )
    return await write_manifest_and_delete_staging(objects, spec, manifest)


class _TableJoiner:
    """Joins the staged ranges of one table."""

    def __init__(
        self, objects: ObjectStore, spec: DownloadSpec, probe: TableProbe, ledgers: Sequence[RangeLedger]
    ) -> None:
        self._objects = objects
        self._spec = spec
        self._probe = probe
        self._ledgers = ledgers
        self._joined_key = names.build_joined_parts_key(spec)

    async def join_and_verify_table(self) -> _JoinedPartsAndEtag:
        """Join the ranges, and check that all rows are there."""
        rows = count_rows_and_require_total(self._probe, self._ledgers)
        placed = await self._upload_missing_parts(staging.list_file_pieces(self._ledgers))
        return _JoinedPartsAndEtag(rows, placed, await self._complete_and_verify_upload(placed))

    async def _upload_missing_parts(self, pieces: Sequence[FilePiece]) -> list[UploadedPartRecord]:
        """Upload the missing parts and record all of them: after completion no part can be uploaded again."""
        key = names.build_assembly_record_key(self._spec)
        try:
            record = AssembledPartsRecord.model_validate_json(await self._objects.get(key))
        except ObjectMissing:
            record = None
        if record is None or record.upload_id != self._probe.upload_id:
            parts = [await self._upload_or_reuse_part(piece) for piece in pieces]
            record = AssembledPartsRecord(upload_id=self._probe.upload_id, parts=parts)
            await self._objects.put(key, record.model_dump_json().encode())
        return record.parts

    async def _upload_or_reuse_part(self, piece: FilePiece) -> UploadedPartRecord:
        if isinstance(piece, UploadedPiece):
            return piece.part
        data = b"".join(await asyncio.gather(*(read_tail(self._objects, tail) for tail in piece.tails)))
        part = await self._objects.put_part(self._joined_key, self._probe.upload_id, piece.number, data)
        return UploadedPartRecord(
            number=part.number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=piece.rows
        )

    async def _complete_and_verify_upload(self, placed: Sequence[UploadedPartRecord]) -> str:
        """Complete the upload, unless an earlier attempt did, and verify the object by size and ETag."""
        parts = [UploadPart(number=part.number, size=part.bytes, etag=part.etag) for part in placed]
        if await self._objects.head(self._joined_key) is None:
            await self._objects.complete_upload(self._joined_key, self._probe.upload_id, parts)
        head = await self._objects.head(self._joined_key)
        size = sum(part.size for part in parts)
        if head is None or head.size != size:
            raise StagedPartsInvalid(f"the store holds {head}, the parts have {size} bytes")
        if head.etag != compute_composite_etag([part.etag for part in parts]):
            # With encryption by a key service an ETag is no digest, so the bytes are compared.
            await self._require_content_matches_part_digests(placed)
        return head.etag

    async def _require_content_matches_part_digests(self, placed: Sequence[UploadedPartRecord]) -> None:
        """Read the object once and compare it with the digests of the parts."""
        content = self._objects.stream(self._joined_key)
        rest = b""
        for part in placed:
            digest, left = hashlib.sha256(), part.bytes
            while left:
                piece = rest or await anext(content)
                digest.update(piece[:left])
                rest, left = piece[left:], left - min(left, len(piece))
            if digest.hexdigest() != part.sha256:
                raise StagedPartsInvalid(f"part {part.number} in the store is not the one that was put there")


@dataclass(frozen=True)
class RenderedParquetObjectAndRowCount:
    """The finished object, and its number of rows."""

    stored: StoredObject
    rows: int


async def render_parquet(
    objects: ObjectStore, staged_key: str, key: str, *, metadata: Mapping[str, str]
) -> RenderedParquetObjectAndRowCount:
    """Render the frames under *staged_key* to a Parquet file under *key*; a repeated call makes the same file."""
    # Workflows import the activities for their signatures, and must not load Arrow.
    from domain.downloads.sinks.arrow import (  # noqa: PLC0415
        PARQUET_TYPE,
        ColumnTypeInference,
        ParquetRenderer,
    )

    survey = ColumnTypeInference(await _read_head_frame(objects, staged_key))
    async for pages in _read_row_groups(objects, staged_key):
        await asyncio.to_thread(survey.add, pages)
    content = _stream_parquet(objects, staged_key, ParquetRenderer(survey))
    stored = await objects.put_stream(key, content, content_type=PARQUET_TYPE, metadata=metadata)
    return RenderedParquetObjectAndRowCount(stored, survey.rows)


async def _stream_parquet(objects: ObjectStore, staged_key: str, renderer: ParquetRenderer) -> AsyncIterator[bytes]:
    async for pages in _read_row_groups(objects, staged_key):
        yield await asyncio.to_thread(renderer.write_row_group, pages)
    yield await asyncio.to_thread(renderer.write_footer_and_take_bytes)


async def _read_head_frame(objects: ObjectStore, staged_key: str) -> CompressedPageFrame:
    async with aclosing(objects.stream(staged_key)) as content, aclosing(read_frames(content)) as pages:
        return await anext(pages)


async def _read_row_groups(objects: ObjectStore, staged_key: str) -> AsyncIterator[list[CompressedPageFrame]]:
    """Yield the pages behind the head in groups, each a row group of the file."""
    group, size = list[CompressedPageFrame](), 0
    async with aclosing(objects.stream(staged_key)) as content, aclosing(read_frames(content)) as pages:
        await anext(pages)
        async for page in pages:
            group.append(page)
            size += page.plain_bytes
            if size >= GROUP_BYTES:
                yield group
                group, size = [], 0
    if group:
        yield group

"""Assembly: the staged ranges of a table become one object in the store, checked; for most types that is the file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from activities.downloads import books, parquet
from activities.downloads.manifest import read_manifest, write_manifest
from domain.downloads import places, sinks, staging
from domain.downloads.request import DownloadOrder, FileType
from domain.downloads.staging import AssemblyRecord, Ledger, PartRecord, Piece, Rendered, StagingError, UploadedPiece
from domain.downloads.status import StoredFile
from domain.downloads.steps import Assembled, AssembleOrder, Manifest, Probe
from infra.objects import ObjectMissing, ObjectStore, Part, composite_etag


async def assemble(objects: ObjectStore, assemble: AssembleOrder) -> Assembled:
    """Join the rows of every table. Repeated, it finds what an earlier attempt did."""
    order, opening = assemble.order, assemble.opening
    if (manifest := await read_manifest(objects, order)) is not None:
        return Assembled(file=manifest.file)
    if opening.archive:
        return Assembled(rendered=await _rendered(objects, assemble), archive=opening.archive)
    joined = [
        await _Table(objects, order.for_table(table), probe, assemble.ranges[table]).joined()
        for table, probe in enumerate(opening.tables)
    ]
    if order.type is FileType.EXCEL:
        return await books.shared_out(objects, order, opening, [table.rows for table in joined])
    return Assembled(file=await _file(objects, order, opening.tables[0], joined[0]))


async def _rendered(objects: ObjectStore, assemble: AssembleOrder) -> list[Rendered]:
    """What fetchers have made of their ranges."""
    order, (count,) = assemble.order, assemble.ranges
    ledgers = await asyncio.gather(*(_ledger(objects, order.for_table(0), index) for index in range(count)))
    rendered = [ledger.rendered for ledger in ledgers if ledger.rendered is not None]
    if len(rendered) < count:
        raise StagingError(f"{len(rendered)} of {count} ranges are rendered")
    return rendered


async def _ledger(objects: ObjectStore, order: DownloadOrder, index: int) -> Ledger:
    return Ledger.model_validate_json(await objects.get(places.ledger(order, index)))


@dataclass(frozen=True)
class _Joined:
    """The rows of a table as one object."""

    rows: int
    parts: list[PartRecord]
    etag: str

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)


async def _file(objects: ObjectStore, order: DownloadOrder, probe: Probe, joined: _Joined) -> StoredFile:
    """What is joined is the file, or the file is made of it in one piece."""
    parts, etag, size = joined.parts, joined.etag, joined.bytes
    sink = sinks.sink_for(order)
    if sink.rendered:
        staged, metadata = places.upload(order), {"task": order.task_id}
        rendered = await parquet.render(objects, staged, places.data(order), metadata=metadata)
        if rendered.rows != joined.rows:
            raise StagingError(f"{rendered.rows} rows were rendered where {joined.rows} are staged")
        parts, etag, size = [], rendered.stored.etag, rendered.stored.size
    manifest = Manifest(
        task_id=order.task_id,
        key=places.data(order),
        name=order.file_name,
        content_type=sink.content_type,
        columns=probe.shape.columns,
        rows=joined.rows,
        bytes=size,
        etag=etag,
        parts=parts,
    )
    return await write_manifest(objects, order, manifest)


class _Table:
    """The staged ranges of one table."""

    def __init__(self, objects: ObjectStore, order: DownloadOrder, probe: Probe, ranges: int) -> None:
        self._objects = objects
        self._order = order
        self._probe = probe
        self._ranges = ranges
        self._joined = places.upload(order)

    async def joined(self) -> _Joined:
        """Join them, and check that all rows are there."""
        ledgers = await asyncio.gather(*(_ledger(self._objects, self._order, index) for index in range(self._ranges)))
        rows = sum(ledger.rows for ledger in ledgers)
        if self._probe.extent.exact and rows != self._probe.extent.total:
            raise StagingError(f"{rows} rows are staged where the source has {self._probe.extent.total}")
        placed = await self._placed(staging.join(ledgers))
        return _Joined(rows, placed, await self._complete(placed))

    async def _placed(self, pieces: Sequence[Piece]) -> list[PartRecord]:
        """All parts, in place, and written down: once the upload is completed, none can be put again."""
        key = places.assembly(self._order)
        try:
            record = AssemblyRecord.model_validate_json(await self._objects.get(key))
        except ObjectMissing:
            record = None
        if record is None or record.upload_id != self._probe.upload_id:
            parts = [await self._place(piece) for piece in pieces]
            record = AssemblyRecord(upload_id=self._probe.upload_id, parts=parts)
            await self._objects.put(key, record.model_dump_json().encode())
        return record.parts

    async def _place(self, piece: Piece) -> PartRecord:
        if isinstance(piece, UploadedPiece):
            return piece.part
        data = b"".join(await asyncio.gather(*(self._objects.get(tail.key) for tail in piece.tails)))
        part = await self._objects.put_part(self._joined, self._probe.upload_id, piece.number, data)
        return PartRecord(number=part.number, bytes=part.size, etag=part.etag, sha256=part.sha256, rows=piece.rows)

    async def _complete(self, placed: Sequence[PartRecord]) -> str:
        """Complete the upload unless an earlier attempt did; then see that the object is what its parts make."""
        parts = [Part(number=part.number, size=part.bytes, etag=part.etag) for part in placed]
        if await self._objects.head(self._joined) is None:
            await self._objects.complete(self._joined, self._probe.upload_id, parts)
        head = await self._objects.head(self._joined)
        size = sum(part.size for part in parts)
        if head is None or head.size != size:
            raise StagingError(f"the store holds {head}, the parts have {size} bytes")
        if head.etag != composite_etag([part.etag for part in parts]):
            # With encryption by a key service an ETag is no digest: then the bytes themselves have to tell.
            await self._compare(placed)
        return head.etag

    async def _compare(self, placed: Sequence[PartRecord]) -> None:
        """Read the object once and hold it against the digests of the parts."""
        content = self._objects.stream(self._joined)
        rest = b""
        for part in placed:
            digest, left = hashlib.sha256(), part.bytes
            while left:
                piece = rest or await anext(content)
                digest.update(piece[:left])
                rest, left = piece[left:], left - min(left, len(piece))
            if digest.hexdigest() != part.sha256:
                raise StagingError(f"part {part.number} in the store is not the one that was put there")

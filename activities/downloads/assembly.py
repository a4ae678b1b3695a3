"""Assembly: staged ranges become one object in the store, checked, with its manifest written last."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from activities.downloads import parquet
from domain.downloads import places, sinks, staging
from domain.downloads.staging import AssemblyRecord, Ledger, PartRecord, Piece, StagingError, UploadedPiece
from domain.downloads.status import StoredFile
from domain.downloads.steps import AssembleOrder, Manifest
from infra.objects import ObjectMissing, ObjectStore, Part, composite_etag


class Assembly:
    """One attempt at the assembly; a repeated one finds what an earlier one did."""

    def __init__(self, objects: ObjectStore, assemble: AssembleOrder) -> None:
        self._objects = objects
        self._order = assemble.order
        self._probe = assemble.probe
        self._ranges = assemble.ranges
        self._sink = sinks.sink_for(assemble.order)
        self._key = places.data(assemble.order)
        self._joined = places.upload(assemble.order)

    async def run(self) -> StoredFile:
        """Join, check, and write the manifest."""
        manifest = await self._written() or await self._write()
        return StoredFile(
            key=manifest.key, name=manifest.name, rows=manifest.rows, bytes=manifest.bytes, etag=manifest.etag
        )

    async def _written(self) -> Manifest | None:
        try:
            return Manifest.model_validate_json(await self._objects.get(places.manifest(self._order)))
        except ObjectMissing:
            return None

    async def _write(self) -> Manifest:
        ledgers = await asyncio.gather(*(self._ledger(index) for index in range(self._ranges)))
        rows = sum(ledger.rows for ledger in ledgers)
        if self._probe.extent.exact and rows != self._probe.extent.total:
            raise StagingError(f"{rows} rows are staged where the source has {self._probe.extent.total}")
        placed = await self._placed(staging.join(ledgers))
        etag, size = await self._complete(placed), sum(part.bytes for part in placed)
        if self._sink.rendered:
            rendered = await parquet.render(
                self._objects, self._joined, self._key, metadata={"task": self._order.task_id}
            )
            if rendered.rows != rows:
                raise StagingError(f"{rendered.rows} rows were rendered where {rows} are staged")
            etag, size, placed = rendered.stored.etag, rendered.stored.size, []
        manifest = Manifest(
            task_id=self._order.task_id,
            key=self._key,
            name=self._order.file_name,
            content_type=self._sink.content_type,
            columns=self._probe.columns,
            rows=rows,
            bytes=size,
            etag=etag,
            parts=placed,
        )
        await self._objects.put(places.manifest(self._order), manifest.model_dump_json().encode())
        return manifest

    async def _ledger(self, index: int) -> Ledger:
        return Ledger.model_validate_json(await self._objects.get(places.ledger(self._order, index)))

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
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        return PartRecord(number=piece.number, bytes=len(data), etag=part.etag, sha256=digest)

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

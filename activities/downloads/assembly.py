"""Assembly: staged ranges become one object in the store, checked, with its manifest written last."""

from __future__ import annotations

import asyncio

from domain.downloads import csv, places, staging
from domain.downloads.staging import GatheredPiece, Ledger, StagingError, UploadedPiece
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
        self._key = places.data(assemble.order)

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
        ledgers = [await self._ledger(index) for index in range(self._ranges)]
        rows = sum(ledger.rows for ledger in ledgers)
        if rows != self._probe.total:
            raise StagingError(f"{rows} rows are staged where the source has {self._probe.total}")
        pieces = staging.join(ledgers)
        parts = [await self._place(piece) for piece in pieces]
        etag = await self._complete(parts)
        manifest = Manifest(
            task_id=self._order.task_id,
            key=self._key,
            name=self._order.file_name,
            content_type=csv.CONTENT_TYPE,
            columns=self._probe.columns,
            rows=rows,
            bytes=sum(part.size for part in parts),
            etag=etag,
            part_sha256=[digest for piece in pieces for digest in _digests(piece)],
        )
        await self._objects.put(places.manifest(self._order), manifest.model_dump_json().encode())
        return manifest

    async def _ledger(self, index: int) -> Ledger:
        return Ledger.model_validate_json(await self._objects.get(places.ledger(self._order, index)))

    async def _place(self, piece: staging.Piece) -> Part:
        match piece:
            case UploadedPiece(part=part):
                return Part(number=part.number, size=part.bytes, etag=part.etag)
            case GatheredPiece(number=number, tails=tails):
                gathered = await asyncio.gather(*(self._objects.get(tail.key) for tail in tails))
                return await self._objects.put_part(self._key, self._probe.upload_id, number, b"".join(gathered))

    async def _complete(self, parts: list[Part]) -> str:
        """Complete the upload unless an earlier attempt did; then see that the object is what its parts make."""
        expected, size = composite_etag([part.etag for part in parts]), sum(part.size for part in parts)
        head = await self._objects.head(self._key)
        if head is None:
            await self._objects.complete(self._key, self._probe.upload_id, parts)
            head = await self._objects.head(self._key)
        if head is None or (head.etag, head.size) != (expected, size):
            raise StagingError(f"the store holds {head}, the parts make {expected} with {size} bytes")
        return expected


def _digests(piece: staging.Piece) -> list[str]:
    match piece:
        case UploadedPiece(part=part):
            return [part.sha256]
        case GatheredPiece(tails=tails):
            return [tail.sha256 for tail in tails]

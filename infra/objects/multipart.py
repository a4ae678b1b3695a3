"""Uploads in parts: streams, cut, hashed and sent while the next part is gathered."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping

from infra.objects.records import (
    MAX_PARTS,
    PART_BYTES,
    MultipartStore,
    StoredObject,
    UploadPart,
)

PARTS_IN_FLIGHT = 2


async def put_stream(
    store: MultipartStore, key: str, chunks: AsyncIterable[bytes], content_type: str, metadata: Mapping[str, str]
) -> StoredObject:
    """Store what a stream yields: with one put if it is short, with an upload in parts if it is long."""
    blocks = split_into_blocks(chunks, PART_BYTES)
    first = await anext(blocks, b"")
    if len(first) < PART_BYTES:
        return await store.put(key, first, content_type=content_type, metadata=metadata)
    upload_id = await store.begin_upload(key, content_type=content_type, metadata=metadata)
    sender = _ConcurrentUploadSender(store, key, upload_id)
    try:
        await sender.send_block(first)
        del first  # it would stay in memory to the end
        async for block in blocks:
            await sender.send_block(block)
        return await sender.complete_upload()
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(sender.abort_upload()))
        raise


async def split_into_blocks(chunks: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """Yield the same bytes in blocks of one size; the last may be shorter."""
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= size:
            with memoryview(buffer) as view:
                block = bytes(view[:size])
            del buffer[:size]
            yield block
    if buffer:
        yield bytes(buffer)


class _ConcurrentUploadSender:
    """Send the parts of one upload, a few at a time."""

    def __init__(self, store: MultipartStore, key: str, upload_id: str) -> None:
        self._store = store
        self._key = key
        self._upload_id = upload_id
        self._digest = hashlib.sha256()
        self._size = 0
        self._sent: list[UploadPart] = []
        self._pending: deque[asyncio.Task[UploadPart]] = deque()

    async def send_block(self, block: bytes) -> None:
        """Hash a block and start sending it; return when the next may be sent."""
        number = len(self._sent) + len(self._pending) + 1
        if number > MAX_PARTS:
            raise ValueError(
                f"The stream to {self._key!r} is longer than {MAX_PARTS * PART_BYTES:,} bytes, "
                "the most that fits one object. Cut it into several."
            )
        await asyncio.to_thread(self._digest.update, block)
        self._size += len(block)
        self._pending.append(asyncio.create_task(self._store.put_part(self._key, self._upload_id, number, block)))
        if len(self._pending) == PARTS_IN_FLIGHT:
            self._sent.append(await self._pending.popleft())

    async def complete_upload(self) -> StoredObject:
        """Wait for the last parts and make the object appear."""
        while self._pending:
            self._sent.append(await self._pending.popleft())
        etag = await self._store.complete_upload(self._key, self._upload_id, self._sent)
        return StoredObject(self._key, self._size, etag, self._digest.hexdigest())

    async def abort_upload(self) -> None:
        """Abort the upload after its parts have ended: one that arrived later would stay in the store."""
        for part in self._pending:
            part.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self._store.abort_upload(self._key, self._upload_id)

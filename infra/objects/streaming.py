"""Streams into the store: parts are cut, hashed and sent while the next is gathered, so memory stays flat."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Mapping

from infra.objects.records import MAX_PARTS, PART_BYTES, Part, Stored, Uploads

PARTS_IN_FLIGHT = 2


async def put_stream(
    store: Uploads, key: str, chunks: AsyncIterable[bytes], content_type: str, metadata: Mapping[str, str]
) -> Stored:
    """Store what a stream yields; one put when it is short, an upload in parts when it is long."""
    blocks = cut(chunks, PART_BYTES)
    first = await anext(blocks, b"")
    if len(first) < PART_BYTES:
        return await store.put(key, first, content_type=content_type, metadata=metadata)
    upload_id = await store.begin_upload(key, content_type=content_type, metadata=metadata)
    sender = _Sender(store, key, upload_id)
    try:
        await sender.send(first)
        del first  # held on to, it would be one part more in memory to the end
        async for block in blocks:
            await sender.send(block)
        return await sender.complete()
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(sender.give_up()))
        raise


async def cut(chunks: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    """The same bytes in blocks of one size; the last may be shorter."""
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


class _Sender:
    """One upload in progress."""

    def __init__(self, store: Uploads, key: str, upload_id: str) -> None:
        self._store = store
        self._key = key
        self._upload_id = upload_id
        self._digest = hashlib.sha256()
        self._size = 0
        self._sent: list[Part] = []
        self._pending: deque[asyncio.Task[Part]] = deque()

    async def send(self, block: bytes) -> None:
        """Hash a block and start sending it; return when there is room for the next."""
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

    async def complete(self) -> Stored:
        """Wait for the last parts and make the object appear."""
        while self._pending:
            self._sent.append(await self._pending.popleft())
        etag = await self._store.complete(self._key, self._upload_id, self._sent)
        return Stored(self._key, self._size, etag, self._digest.hexdigest())

    async def give_up(self) -> None:
        """Leave nothing behind. A part that lands after the abort would, so they end first."""
        for part in self._pending:
            part.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self._store.abort(self._key, self._upload_id)

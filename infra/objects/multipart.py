"""Uploads in parts: streams, cut, hashed and sent while the next part is gathered, and joins inside the store."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

from infra.objects.failures import ObjectMissing, PartTooSmall
from infra.objects.records import (
    MAX_COPY_BYTES,
    MAX_PARTS,
    MIN_PART_BYTES,
    PART_BYTES,
    JoinedObject,
    MultipartStore,
    ObjectMetadata,
    StoredObject,
    UploadPart,
)

PARTS_IN_FLIGHT = 2

T = TypeVar("T")


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


async def join(
    store: MultipartStore, key: str, sources: Sequence[str], content_type: str, metadata: Mapping[str, str]
) -> JoinedObject:
    """Make one object of others inside the store, in their order; abort the upload if that fails."""
    heads = await _gather_all_then_raise(_require_head(store, source) for source in sources)
    require_sources_joinable_in_store(key, heads)
    upload_id = await store.begin_upload(key, content_type=content_type, metadata=metadata)
    try:
        parts = await _gather_all_then_raise(
            store.copy_part(key, upload_id, number, head) for number, head in enumerate(heads, start=1)
        )
        etag = await store.complete_upload(key, upload_id, parts)
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(store.abort_upload(key, upload_id)))
        raise
    return JoinedObject(key, sum(head.size for head in heads), etag)


def require_sources_joinable_in_store(key: str, sources: Sequence[ObjectMetadata]) -> None:
    """Raise for sources that S3 would refuse to join; its own error would name none of them."""
    if not sources:
        raise ValueError(f"There is nothing to join into {key!r}: name at least one source.")
    if len(sources) > MAX_PARTS:
        raise ValueError(f"{len(sources):,} sources for {key!r}: at most {MAX_PARTS:,} can be joined. Join in stages.")
    for source in sources[:-1]:
        if source.size < MIN_PART_BYTES:
            raise PartTooSmall(
                f"{source.key!r} has {source.size:,} bytes and cannot be joined into {key!r}: every source but the "
                f"last needs at least {MIN_PART_BYTES:,} bytes (5 MiB). Write larger sources, or send them as one.",
                key=key,
                code="EntityTooSmall",
            )
    for source in sources:
        if source.size > MAX_COPY_BYTES:
            raise ValueError(
                f"{source.key!r} has {source.size:,} bytes and cannot be joined into {key!r}: "
                f"at most {MAX_COPY_BYTES:,} bytes (5 GiB) can be copied at once. Write smaller sources."
            )


async def _require_head(store: MultipartStore, source: str) -> ObjectMetadata:
    head = await store.head(source)
    if head is None:
        raise ObjectMissing(f"There is no object {source!r} in the store to join.", key=source, code="NoSuchKey")
    return head


async def _gather_all_then_raise(work: Iterable[Awaitable[T]]) -> list[T]:
    """Return all results; raise the first failure only when everything has ended, so that an abort can clean up."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

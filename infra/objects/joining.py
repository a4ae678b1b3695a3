"""Joins inside the store: each source becomes one part of the new object, and no byte passes through here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TypeVar

from infra.objects.failures import ObjectMissing, PartTooSmall
from infra.objects.records import MAX_COPY_BYTES, MAX_PARTS, MIN_PART_BYTES, Head, Joined, Uploads

T = TypeVar("T")


async def join(
    store: Uploads, key: str, sources: Sequence[str], content_type: str, metadata: Mapping[str, str]
) -> Joined:
    """Make one object of others, in their order."""
    heads = await _each(_head(store, source) for source in sources)
    check_joinable(key, heads)
    upload_id = await store.begin_upload(key, content_type=content_type, metadata=metadata)
    try:
        parts = await _each(store.copy_part(key, upload_id, number, head) for number, head in enumerate(heads, start=1))
        etag = await store.complete(key, upload_id, parts)
    except BaseException:
        await asyncio.shield(asyncio.ensure_future(store.abort(key, upload_id)))
        raise
    return Joined(key, sum(head.size for head in heads), etag)


def check_joinable(key: str, sources: Sequence[Head]) -> None:
    """Refuse what S3 would refuse, before anything is begun; SeaweedFS and AWS name no part when they do."""
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


async def _head(store: Uploads, source: str) -> Head:
    head = await store.head(source)
    if head is None:
        raise ObjectMissing(f"There is no object {source!r} in the store to join.", key=source, code="NoSuchKey")
    return head


async def _each(work: Iterable[Awaitable[T]]) -> list[T]:
    """All results, or the first failure once nothing is under way any more, so that an abort can clean up."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]

"""Streams and uploads in parts on a real S3."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from infra.objects import (
    PART_BYTES,
    ObjectStore,
    PartTooSmall,
    StoredObject,
    StoreFailure,
    UploadMissing,
    UploadPart,
    build_content_disposition,
    compute_composite_etag,
)

MIB = 1024 * 1024
MIN_PART_BYTES = 5 * MIB


async def pieces(total: int, size: int) -> AsyncIterator[bytes]:
    """Bytes whose content shows their position, so that a swapped or lost block changes the hash."""
    for start in range(0, total, size):
        length = min(size, total - start)
        yield start.to_bytes(8, "big").ljust(length, b".")[:length]


@pytest.mark.long
async def test_a_long_stream_is_stored_in_flat_memory(objects: ObjectStore) -> None:
    """Twice the bytes need no more memory, and the hash is that of every byte in order."""
    total = 40 * 1000 * 1000
    _, short_peak = await put_measured(objects, total)
    stored, long_peak = await put_measured(objects, 2 * total)
    sent, read = hashlib.sha256(), hashlib.sha256()
    async for piece in pieces(2 * total, 100_000):
        sent.update(piece)
    async for piece in objects.stream("streamed"):
        read.update(piece)

    assert (stored.size, stored.sha256) == (2 * total, sent.hexdigest())
    assert read.hexdigest() == sent.hexdigest()
    # How many parts are in memory at a time depends on the moment; 40 MB more would be all of them.
    assert long_peak < short_peak + 2 * PART_BYTES
    assert long_peak < 5 * PART_BYTES


async def put_measured(objects: ObjectStore, total: int) -> tuple[StoredObject, int]:
    """Store a stream; return the most memory that Python held meanwhile."""
    tracemalloc.start()
    try:
        stored = await objects.put_stream("streamed", pieces(total, 100_000))
        return stored, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("total", [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES])
async def test_streams_of_any_length_arrive_whole(objects: ObjectStore, total: int) -> None:
    """Around the size of a part nothing is lost, doubled or left open."""
    stored = await objects.put_stream("edge", pieces(total, 3 * MIB))

    assert hashlib.sha256(await objects.get("edge")).hexdigest() == stored.sha256
    assert stored.size == total
    assert await objects.list_open_uploads("") == []


async def test_a_stream_that_breaks_leaves_nothing(objects: ObjectStore) -> None:
    """When the source fails midway there is neither an object nor an open upload."""

    async def breaking() -> AsyncIterator[bytes]:
        async for piece in pieces(3 * PART_BYTES, MIB):
            yield piece
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await objects.put_stream("broken", breaking())

    assert await objects.head("broken") is None
    assert await objects.list_open_uploads("") == []


async def test_a_cancelled_stream_leaves_nothing(objects: ObjectStore) -> None:
    """A cancelled worker cleans up although parts were under way."""
    half = asyncio.Event()

    async def stalling() -> AsyncIterator[bytes]:
        async for piece in pieces(3 * PART_BYTES, MIB):
            yield piece
        half.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(objects.put_stream("cancelled", stalling()))
    await half.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await objects.head("cancelled") is None
    assert await objects.list_open_uploads("") == []


async def test_parts_may_come_in_any_order(objects: ObjectStore) -> None:
    """The object follows the numbers of its parts, and its ETag is the composite of theirs."""
    upload = await objects.begin_upload(
        "parts", content_type="text/csv", metadata={"rows": "2"}, disposition=build_content_disposition("订单.csv")
    )
    last = await objects.put_part("parts", upload, 7, b"end")
    first = await objects.put_part("parts", upload, 2, b"a" * MIN_PART_BYTES)
    etag = await objects.complete_upload("parts", upload, [last, first])
    head = await objects.head("parts")

    assert etag == compute_composite_etag([first.etag, last.etag])
    assert await objects.get("parts") == b"a" * MIN_PART_BYTES + b"end"
    assert head is not None
    assert (head.etag, head.content_type, head.metadata) == (etag, "text/csv", {"rows": "2"})
    assert head.disposition == build_content_disposition("订单.csv")


async def test_a_part_sent_again_counts_with_the_bytes_it_was_completed_with(objects: ObjectStore) -> None:
    """Of two contents under one number the ETag decides, whatever order the store lists them in."""
    upload = await objects.begin_upload("again")
    await objects.put_part("again", upload, 1, b"first attempt")
    second = await objects.put_part("again", upload, 1, b"second attempt")
    await objects.complete_upload("again", upload, [second])

    assert await objects.get("again") == b"second attempt"


@pytest.mark.parametrize("number", [0, 10_000])
async def test_a_part_number_outside_the_range_is_refused(objects: ObjectStore, number: int) -> None:
    """Numbers that the store would reject, or lose from its listing, are not sent."""
    with pytest.raises(ValueError, match=f"Part number {number} .* outside 1 to 9999"):
        await objects.put_part("a", "upload", number, b"")


async def test_completing_twice_is_once(objects: ObjectStore) -> None:
    """A retry after a lost answer gets the same ETag; one with other parts does not."""
    upload = await objects.begin_upload("repeated")
    part = await objects.put_part("repeated", upload, 1, b"x")
    etag = await objects.complete_upload("repeated", upload, [part])

    assert await objects.complete_upload("repeated", upload, [part]) == etag


async def test_completing_with_unknown_or_no_parts_is_refused(objects: ObjectStore) -> None:
    """A wrong ETag is not overlooked, and an upload without parts says what to do instead."""
    upload = await objects.begin_upload("wrong")
    await objects.put_part("wrong", upload, 1, b"x")
    with pytest.raises(StoreFailure, match="InvalidPart"):
        await objects.complete_upload("wrong", upload, [UploadPart(1, 1, "0" * 32)])
    with pytest.raises(ValueError, match="Put an empty object"):
        await objects.complete_upload("wrong", upload, [])

    assert await objects.head("wrong") is None


async def test_small_parts_in_the_middle_are_refused(objects: ObjectStore) -> None:
    """The rule of 5 MiB comes as its own error."""
    upload = await objects.begin_upload("small")
    parts = [await objects.put_part("small", upload, number, b"x") for number in (1, 2)]
    with pytest.raises(PartTooSmall, match="smaller than 5 MiB"):
        await objects.complete_upload("small", upload, parts)


async def test_an_aborted_upload_leaves_nothing(objects: ObjectStore) -> None:
    """Parts go with their upload, the abort may be repeated, and later calls say that it has ended."""
    upload = await objects.begin_upload("aborted")
    part = await objects.put_part("aborted", upload, 1, b"x")
    await objects.abort_upload("aborted", upload)
    await objects.abort_upload("aborted", upload)

    assert await objects.list_open_uploads("") == []
    assert await objects.head("aborted") is None
    with pytest.raises(UploadMissing):
        await objects.complete_upload("aborted", upload, [part])


@pytest.mark.long
async def test_every_open_upload_is_listed(objects: ObjectStore) -> None:
    """Several uploads of one key are several, beyond what one answer holds."""
    begun = await asyncio.gather(*(objects.begin_upload(f"open/{number % 400}") for number in range(1_050)))
    listed = await objects.list_open_uploads("open/")

    assert sorted(upload.upload_id for upload in listed) == sorted(begun)
    assert {upload.key for upload in listed} == {f"open/{number}" for number in range(400)}

"""The object store port on a real S3."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from pydantic import SecretStr
from yarl import URL

from infra.objects import BucketMissing, ObjectMissing, ObjectStore, StoreRefused, StoreUnreachable
from tests.support.waiting import PATIENCE_SECONDS

MIB = 1024 * 1024


async def collect(stream: AsyncIterator[bytes]) -> bytes:
    """All of a stream."""
    return b"".join([piece async for piece in stream])


async def test_what_was_put_is_got_with_its_type_and_metadata(objects: ObjectStore) -> None:
    """A put returns size and SHA-256; head and get return what was stored."""
    stored = await objects.put("a/页 1.csv", b"id\n1\n", content_type="text/csv", metadata={"rows": "1"})
    head = await objects.head("a/页 1.csv")

    assert await objects.get("a/页 1.csv") == b"id\n1\n"
    assert (stored.size, stored.sha256) == (5, hashlib.sha256(b"id\n1\n").hexdigest())
    assert head is not None
    assert (head.size, head.etag, head.content_type, head.metadata) == (5, stored.etag, "text/csv", {"rows": "1"})
    assert abs(datetime.now(UTC) - head.modified) < timedelta(minutes=1)


async def test_an_empty_object_is_an_object(objects: ObjectStore) -> None:
    """Nothing to say is not the same as no object."""
    await objects.put("empty", b"")

    assert await objects.get("empty") == b""
    assert await collect(objects.stream("empty")) == b""


async def test_a_missing_object_is_named(objects: ObjectStore) -> None:
    """Readers learn which key was missing; head says None; deleting nothing is fine."""
    with pytest.raises(ObjectMissing, match="'nowhere/1'") as missing:
        await objects.get("nowhere/1")
    with pytest.raises(ObjectMissing):
        await collect(objects.stream("nowhere/1"))
    await objects.delete("nowhere/1")

    assert missing.value.key == "nowhere/1"
    assert await objects.head("nowhere/1") is None


async def test_a_deleted_object_is_gone(objects: ObjectStore) -> None:
    """Delete deletes."""
    await objects.put("short-lived", b"x")
    await objects.delete("short-lived")

    assert await objects.head("short-lived") is None


async def test_ascii_is_all_that_metadata_can_carry(objects: ObjectStore) -> None:
    """Text that a header would mangle is refused before it is sent."""
    with pytest.raises(ValueError, match="not ASCII"):
        await objects.put("a", b"", metadata={"name": "页"})


@pytest.mark.parametrize(
    ("start", "expected"), [(0, b"0123456789"), (4, b"456789"), (9, b"9"), (10, b""), (4_000, b"")]
)
async def test_a_stream_starts_at_the_given_byte(objects: ObjectStore, start: int, expected: bytes) -> None:
    """A resume reads on from a byte; at or past the end there is nothing more."""
    await objects.put("digits", b"0123456789")

    assert await collect(objects.stream("digits", start)) == expected


async def test_an_abandoned_stream_leaves_the_store_usable(objects: ObjectStore) -> None:
    """More readers than connections may stop in the middle without starving the next one."""
    await objects.put("long", bytes(4 * MIB))
    for _ in range(objects.settings.threads + 1):
        stream = objects.stream("long")
        await anext(stream)
        await stream.aclose()

    assert len(await objects.get("long")) == 4 * MIB


async def test_a_cancelled_put_does_not_land_later(objects: ObjectStore) -> None:
    """Once the cancelled call returns nothing is under way, so what the clean-up deleted stays deleted."""
    for number in range(10):
        task = asyncio.create_task(objects.put(f"late/{number}", bytes(2 * MIB)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await objects.delete_prefix("late/")

    assert await objects.list("late/") == []


@pytest.mark.long
async def test_a_prefix_is_listed_and_deleted_with_nothing_else(objects: ObjectStore) -> None:
    """More keys than one batch holds go; a neighbour whose name begins alike but for the slash stays."""
    keys = [f"run/1/{number:04d}" for number in range(1_050)]
    await asyncio.gather(*(objects.put(key, b"x") for key in [*keys, "run/10"]))
    listed = await objects.list("run/1/")

    assert [found.key for found in listed] == keys
    assert {found.size for found in listed} == {1}
    assert await objects.delete_prefix("run/1/") == 1_050
    assert [found.key for found in await objects.list("")] == ["run/10"]
    assert await objects.delete_prefix("run/1/") == 0


async def test_stores_under_different_prefixes_do_not_meet(objects: ObjectStore) -> None:
    """Two installations share a bucket."""
    prefix = objects.settings.prefix.strip("/")
    neighbour = ObjectStore(objects.settings.model_copy(update={"prefix": f"{prefix}-b"}))
    await neighbour.put("same", b"theirs")
    await objects.put("same", b"own")

    assert await neighbour.get("same") == b"theirs"
    assert [found.key for found in await objects.list("")] == ["same"]
    await neighbour.delete("same")
    await neighbour.close()


@pytest.mark.parametrize("name", ["订单 报表.csv", 'a"b;c\\d%20.csv', "Zürich 🚚.csv", "plain.csv"])
async def test_a_link_downloads_under_any_file_name(objects: ObjectStore, name: str) -> None:
    """A client without keys gets the bytes, the type and the name it was promised."""
    await objects.put("file", b"id\n1\n")
    link = await objects.presign_download(
        "file", expires_seconds=60, file_name=name, content_type="text/csv; charset=utf-8"
    )
    async with aiohttp.ClientSession() as browser, browser.get(URL(link, encoded=True)) as answer:
        body = await answer.read()

    assert (answer.status, body) == (200, b"id\n1\n")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    disposition = answer.content_disposition
    assert disposition is not None
    assert (disposition.type, disposition.filename) == ("attachment", name)


async def test_a_link_serves_ranges(objects: ObjectStore) -> None:
    """A broken download goes on where it stopped."""
    await objects.put("file", b"0123456789")
    link = await objects.presign_download("file", expires_seconds=60, file_name="a", content_type="text/plain")
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(URL(link, encoded=True), headers={"Range": "bytes=7-"}) as answer,
    ):
        assert (answer.status, await answer.read()) == (206, b"789")
        assert answer.headers["Content-Range"] == "bytes 7-9/10"


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("/file?", "/other?"),
        ("X-Amz-Expires=60", "X-Amz-Expires=600"),
        ("a.csv", "b.csv"),
        ("text%2Fcsv", "text%2Fhtml"),
    ],
)
async def test_a_link_that_was_tampered_with_is_refused(objects: ObjectStore, expected: str, got: str) -> None:
    """Key, lifetime, name and type are all signed."""
    await objects.put("file", b"x")
    await objects.put("other", b"secret")
    link = await objects.presign_download("file", expires_seconds=60, file_name="a.csv", content_type="text/csv")
    assert expected in link
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(URL(link.replace(expected, got), encoded=True)) as answer,
    ):
        assert answer.status == 403


async def test_an_expired_link_is_refused(objects: ObjectStore) -> None:
    """After its time a link is worth nothing."""
    await objects.put("file", b"x")
    link = URL(
        await objects.presign_download("file", expires_seconds=1, file_name="a", content_type="text/csv"), encoded=True
    )
    async with aiohttp.ClientSession() as browser, asyncio.timeout(PATIENCE_SECONDS):
        statuses = set()
        while 403 not in statuses:
            async with browser.get(link) as answer:
                statuses.add(answer.status)

    assert statuses <= {200, 403}


async def test_a_link_is_signed_for_the_public_host(objects: ObjectStore) -> None:
    """Browsers use another host than we do, and the signature is valid for theirs."""
    port = objects.settings.endpoint.rpartition(":")[2]
    public = ObjectStore(objects.settings.model_copy(update={"public_base": f"http://localhost:{port}"}))
    await objects.put("file", b"x")
    link = await public.presign_download("file", expires_seconds=60, file_name="a", content_type="text/csv")
    await public.close()

    assert link.startswith(f"http://localhost:{port}/")
    async with aiohttp.ClientSession() as browser:
        async with browser.get(URL(link, encoded=True)) as answer:
            assert answer.status == 200
        async with browser.get(URL(link, encoded=True).with_host("127.0.0.1")) as answer:
            assert answer.status == 403


async def test_wrong_keys_differ_from_a_missing_object(objects: ObjectStore) -> None:
    """A refusal names the settings to look at, and not the secret."""
    wrong = ObjectStore(objects.settings.model_copy(update={"secret_key": SecretStr("not-the-secret")}))
    with pytest.raises(StoreRefused, match="HAULAGE_OBJECTS__SECRET_KEY") as refusal:
        await wrong.get("any")
    with pytest.raises(StoreRefused):
        await wrong.head("any")
    with pytest.raises(StoreRefused):
        await wrong.check_health()
    await wrong.close()

    assert refusal.value.code == "SignatureDoesNotMatch"
    assert "not-the-secret" not in str(refusal.value)


async def test_a_missing_bucket_is_named_and_can_be_made(objects: ObjectStore) -> None:
    """The error names the bucket; making it twice at once is fine."""
    bucket = f"new-{hashlib.sha256(objects.settings.prefix.encode()).hexdigest()[:12]}"
    store = ObjectStore(objects.settings.model_copy(update={"bucket": bucket}))
    with pytest.raises(BucketMissing, match=bucket):
        await store.list("")
    with pytest.raises(BucketMissing, match=bucket):
        await store.check_health()
    await asyncio.gather(store.ensure_bucket(), store.ensure_bucket())
    await store.check_health()
    await store.put("first", b"x")

    assert [found.key for found in await store.list("")] == ["first"]
    await store.delete("first")
    await store.close()


async def test_a_store_that_does_not_answer_says_where_to_look(objects: ObjectStore, unused_tcp_port: int) -> None:
    """An unreachable store is our own failure, with the settings to check."""
    store = ObjectStore(objects.settings.model_copy(update={"endpoint": f"127.0.0.1:{unused_tcp_port}"}))
    with pytest.raises(StoreUnreachable, match="HAULAGE_OBJECTS__ENDPOINT"):
        await store.put("a", b"x")
    await store.close()

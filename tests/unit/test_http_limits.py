"""The limits of the guarded client: size, time, headers, and one clear sentence for each way a peer can fail."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
import tracemalloc
import zlib

import pytest

from clients.http import GuardedClient, WaitBeforeReadingBeyondSize
from domain.faults import SourceFault
from infra.settings import EgressGuardSettings
from tests.support.http_peer import Answers, Script, answer, drips, running_peer, running_reachable_peer, says

OK = b"HTTP/1.1 200 OK\r\n"
GZIP = "Content-Encoding: gzip"


async def fault_of(script: Script, *, max_bytes: int = 1_000, timeout_seconds: float = 5) -> SourceFault:
    """What reading from this peer ends with."""
    async with running_reachable_peer(script) as (here, client):
        with pytest.raises(SourceFault) as failed:
            await client.get(here.url, max_bytes=max_bytes, timeout_seconds=timeout_seconds)
    return failed.value


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([OK + b"Content-Length: 1000000000000\r\n\r\n"], id="announced"),
        pytest.param([OK + b"Connection: close\r\n\r\n", b"x" * 1_001], id="until closed"),
        pytest.param(
            [OK + b"Transfer-Encoding: chunked\r\n\r\n", *[b"10\r\n" + b"x" * 16 + b"\r\n"] * 63], id="chunked"
        ),
        pytest.param([answer(gzip.compress(b"x" * 1_001, mtime=0), GZIP)], id="gzip"),
        pytest.param([answer(gzip.compress(b"x" * 501, mtime=0) * 2, GZIP)], id="gzip of two members"),
    ],
)
async def test_too_large(pieces: list[bytes]) -> None:
    """A body over the limit is refused, whether it says its size, hides it or is compressed."""
    fault = await fault_of(says(*pieces))
    assert (fault.record.code, fault.transient) == ("source_too_large", False)


@pytest.mark.parametrize(
    ("sent", "headers", "body"),
    [
        (b"x" * 1_000, (), b"x" * 1_000),
        (gzip.compress(b"x" * 1_000, mtime=0), (GZIP,), b"x" * 1_000),
        (gzip.compress(b"x" * 400, mtime=0) + gzip.compress(b"y" * 600, mtime=0), (GZIP,), b"x" * 400 + b"y" * 600),
        (b"", (), b""),
        (b"", (GZIP,), b""),
    ],
)
async def test_just_as_large_as_allowed(sent: bytes, headers: tuple[str, ...], body: bytes) -> None:
    """A body up to the very limit arrives whole, decompressed."""
    async with running_reachable_peer(says(answer(sent, *headers))) as (here, client):
        got = await client.get(here.url, max_bytes=1_000, timeout_seconds=60)
    assert got.body == body


@pytest.mark.parametrize(("size", "waits"), [(1_000, 0), (1_001, 1), (50_000, 1)])
async def test_a_long_body_is_read_on_after_a_wait_that_takes_none_of_its_time(size: int, waits: int) -> None:
    """What waits for room in memory is not what the peer is slow with; shorter bodies do not wait."""
    waited = list[float]()

    async def wait() -> None:
        await asyncio.sleep(2.5)
        waited.append(time.monotonic())

    pieces = [OK + b"Content-Length: %d\r\n\r\n" % size, *[b"x" * 1_000] * (size // 1_000), b"x" * (size % 1_000)]
    async with running_reachable_peer(says(*pieces)) as (here, client):
        got = await client.get(
            here.url, max_bytes=100_000, timeout_seconds=2, wait_beyond=WaitBeforeReadingBeyondSize(1_000, wait)
        )
    assert got.body == b"x" * size
    assert len(waited) == waits


async def test_the_time_of_a_long_body_goes_on_after_the_wait() -> None:
    """A peer that is slow is told so all the same."""

    async def wait() -> None:
        await asyncio.sleep(0.1)

    began = time.monotonic()
    async with running_reachable_peer(drips(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000)) as (here, client):
        with pytest.raises(SourceFault) as failed:
            await client.get(
                here.url, max_bytes=100_000, timeout_seconds=0.5, wait_beyond=WaitBeforeReadingBeyondSize(5, wait)
            )
    assert failed.value.record.code == "source_timeout"
    assert time.monotonic() - began >= 0.5


async def test_a_wait_extends_the_time_of_a_long_body_no_farther_than_said() -> None:
    """Whoever waited for it has a time of its own, which ends first."""

    async def wait() -> None:
        await asyncio.sleep(0.5)

    until = asyncio.get_running_loop().time() + 1
    async with running_reachable_peer(drips(OK + b"Content-Length: 100000\r\n\r\n" + b"x" * 50_000)) as (here, client):
        with pytest.raises(SourceFault) as failed:
            await client.get(
                here.url, max_bytes=100_000, timeout_seconds=60, wait_beyond=WaitBeforeReadingBeyondSize(5, wait, until)
            )
    assert failed.value.record.code == "source_timeout"
    assert asyncio.get_running_loop().time() - until < 10


async def test_bomb() -> None:
    """A small body that inflates to 256 MB costs a few MB before it is refused."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    tracemalloc.start()
    try:
        fault = await fault_of(says(answer(bomb, GZIP)), max_bytes=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert fault.record.code == "source_too_large"
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(drips(OK + b"Content-Length: 100000\r\n\r\n"), id="body"),
        pytest.param(drips(OK + b"X-Long: "), id="header"),
        pytest.param(drips(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), id="interim answers"),
    ],
)
async def test_dripping(script: Script) -> None:
    """A peer that always says a little more is cut off at the deadline."""
    started = time.monotonic()
    fault = await fault_of(script, max_bytes=10**6, timeout_seconds=0.2)
    assert (fault.record.code, fault.transient) == ("source_timeout", True)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([b"SSH-2.0-OpenSSH_9.9\r\n"], "valid HTTP"),
        ([OK + b"X-Long: " + b"x" * 9_000 + b"\r\n\r\n"], "headers"),
        ([OK + b"".join(b"X-%d: x\r\n" % n for n in range(200)) + b"\r\n"], "headers"),
        ([OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"], "valid HTTP"),
        ([b""], "broke off before the body of its answer"),
        ([OK + b"Content-Length: 10\r\n\r\n"], "broke off before the body of its answer"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n"], "valid HTTP"),
    ],
)
async def test_broken_answers(pieces: list[bytes], said: str) -> None:
    """Whatever a peer breaks, the user reads which peer it was and what was wrong."""
    fault = await fault_of(says(*pieces))
    assert (fault.record.code, fault.transient) == ("source_unreachable", True)
    assert said in fault.record.message
    assert fault.record.message.startswith("127.0.0.1:")
    assert fault.record.hint


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
async def test_an_encoding_that_was_not_asked_for(encoding: str) -> None:
    """It would be the same again."""
    fault = await fault_of(says(answer(b"rows", f"Content-Encoding: {encoding}")))
    assert (fault.record.code, fault.transient) == ("source_encoding", False)
    assert f"encoding {encoding!r}" in fault.record.message
    assert fault.record.hint


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([OK + b"Content-Length: 10\r\n\r\nhello"], "after 5 bytes of it"),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"], "after 5 bytes of it"),
        ([answer(b"this is not gzip", GZIP)], "packed it wrongly"),
        ([answer(gzip.compress(b"x" * 500, mtime=0)[:-1], GZIP)], "packed it wrongly"),
        ([answer(gzip.compress(b"x", mtime=0) * 2_000, GZIP)], "packed it wrongly"),
    ],
)
async def test_answers_that_are_cut_off(pieces: list[bytes], said: str) -> None:
    """How much of it came is told: who is cut off at the same place twice has more than a bad moment."""
    fault = await fault_of(says(*pieces))
    assert (fault.record.code, fault.transient) == ("source_cut_off", True)
    assert said in fault.record.message
    assert fault.record.hint


async def test_nobody_there() -> None:
    """A closed port, an unknown name and a port without TLS are unreachable, each with its own sentence."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
        async with GuardedClient(EgressGuardSettings(allow=[where]), resolver=Answers([])) as client:
            for url, said in ((f"http://{where}/", "No connection"), ("http://gone.example.com/", "not be resolved")):
                with pytest.raises(SourceFault, match=said) as failed:
                    await client.get(url, max_bytes=1, timeout_seconds=60)
                assert failed.value.record.code == "source_unreachable"
    async with (
        running_peer(says(b"what?"), until=b"\x16") as plain,
        GuardedClient(EgressGuardSettings(allow=[plain.where])) as client,
    ):
        with pytest.raises(SourceFault, match="TLS"):
            await client.get(f"https://{plain.where}/", max_bytes=1, timeout_seconds=60)


async def test_connect_timeout() -> None:
    """A host that swallows connections is given up long before the whole deadline."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        where = "{}:{}".format(*full.getsockname())
        settings = EgressGuardSettings(allow=[where], connect_timeout_seconds=0.2)
        async with GuardedClient(settings) as client:
            with pytest.raises(SourceFault, match="No connection") as failed:
                await client.get(f"http://{where}/", max_bytes=1, timeout_seconds=30)
    assert (failed.value.record.code, failed.value.transient) == ("source_unreachable", True)


async def test_stream() -> None:
    """A stream gives the head first, then the pieces, within the same limits."""
    async with running_reachable_peer(says(answer(b"x" * 100_000))) as (here, client):
        async with client.stream(here.url, max_bytes=100_000, timeout_seconds=60) as (head, chunks):
            assert head.headers["Content-Length"] == "100000"
            assert sum([len(chunk) async for chunk in chunks]) == 100_000
        with pytest.raises(SourceFault, match="more than the 99,999 bytes"):
            async with client.stream(here.url, max_bytes=99_999, timeout_seconds=60) as (_, chunks):
                assert [chunk async for chunk in chunks] == []


@pytest.mark.parametrize(
    ("script", "excerpt"),
    [
        pytest.param(says(answer(b"x" * 10)), b"x" * 10, id="short"),
        pytest.param(says(answer(b"x" * 2_000_000)), b"x" * 100, id="long"),
        pytest.param(says(answer(gzip.compress(b"x" * 2_000_000, mtime=0), GZIP)), b"x" * 100, id="swelling"),
        pytest.param(drips(OK + b"Content-Length: 100000\r\n\r\n", b""), b"", id="never sent"),
        pytest.param(says(OK + b"Content-Length: 20\r\n\r\nhello"), b"hello", id="broken off"),
        pytest.param(says(answer(b"this is not gzip", GZIP)), b"", id="damaged"),
        pytest.param(says(answer(b"what?", "Content-Encoding: br")), b"", id="unreadable"),
    ],
)
async def test_the_head_of_an_answer_to_a_post_counts(script: Script, excerpt: bytes) -> None:
    """Whatever becomes of its body, the answer is one, with as much of the body as was asked for and could be had."""
    async with running_reachable_peer(script) as (here, client):
        got = await client.post_and_read_excerpt(here.url, body=b"event", excerpt_bytes=100, timeout_seconds=60)
    assert (got.status, got.body) == (200, excerpt)


async def test_the_head_of_an_answer_at_the_last_moment_counts() -> None:
    """The time for the answer ends while the excerpt is read: the receiver has the event all the same."""
    async with running_reachable_peer(drips(OK + b"Content-Length: 100000\r\n\r\n")) as (here, client):
        got = await client.post_and_read_excerpt(here.url, body=b"event", excerpt_bytes=10**6, timeout_seconds=1.5)
    assert got.status == 200


@pytest.mark.parametrize("error", [TimeoutError("mine"), ConnectionResetError("mine"), ValueError("mine")])
async def test_callers_own_errors(error: Exception) -> None:
    """What goes wrong in the caller's hands while it reads a stream is not blamed on the source."""
    async with running_reachable_peer(says(answer(b"rows"))) as (here, client):
        with pytest.raises(type(error), match="mine"):
            async with client.stream(here.url, max_bytes=10, timeout_seconds=60):
                raise error


async def test_failures_give_connections_back() -> None:
    """With one connection in the pool, answers that were cut off do not block the next request."""
    async with (
        running_peer(drips(OK + b"Content-Length: 100000\r\n\r\n")) as slow,
        running_peer(says(answer(b"rows"))) as good,
    ):
        settings = EgressGuardSettings(allow=[slow.where, good.where], pool_connections=1)
        async with GuardedClient(settings) as client:
            for limits in ({"max_bytes": 10**6, "timeout_seconds": 0.1}, {"max_bytes": 1, "timeout_seconds": 5}):
                with pytest.raises(SourceFault):
                    await client.get(
                        slow.url, max_bytes=int(limits["max_bytes"]), timeout_seconds=limits["timeout_seconds"]
                    )
            assert (await client.get(good.url, max_bytes=10, timeout_seconds=60)).body == b"rows"


async def test_requests_as_written() -> None:
    """One connection serves many requests; paths and queries go out as written, cookies do not come back."""
    async with running_reachable_peer(says(answer(b"rows", "Set-Cookie: a=b")), keep_alive=True) as (here, client):
        for rest in ("a/%7Eb?sign=%2b%2B/==&q=[1]", "c d?名=值"):
            await client.get(here.url + rest, headers={"X-Key": "k"}, max_bytes=10, timeout_seconds=60)
        await client.post_and_read_excerpt(here.url, body=b"", excerpt_bytes=10, timeout_seconds=60)
    assert here.connections == 1
    lines = [head.split(b"\r\n")[0] for head in here.heads]
    assert lines[0] == b"GET /a/%7Eb?sign=%2b%2B/==&q=[1] HTTP/1.1"
    assert lines[1] == b"GET /c%20d?%E5%90%8D=%E5%80%BC HTTP/1.1"
    assert lines[2] == b"POST / HTTP/1.1"
    assert b"X-Key: k" in here.heads[0]
    assert not any(b"cookie" in head.lower() for head in here.heads)


async def test_pool_limit() -> None:
    """A process holds no more connections than its pool allows; further requests wait their turn."""
    async with running_reachable_peer(says(answer(b"rows")), keep_alive=True, pool_connections=3) as (here, client):
        reads = [client.get(here.url, max_bytes=10, timeout_seconds=60) for _ in range(30)]
        assert {got.body for got in await asyncio.gather(*reads)} == {b"rows"}
    assert here.connections <= 3

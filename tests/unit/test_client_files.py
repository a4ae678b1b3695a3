"""Files arrive whole or not at all, however often the connection breaks."""

from __future__ import annotations

import asyncio
import csv
import io
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulage import ApiUnreachable, Client, Download, DownloadFailed, FileDamaged
from haulage.saving import CsvLineCounter
from tests.support.api_peer import ApiPeer, running_api_peer, status

ROWS = 20_000
CONTENT = b'\xef\xbb\xbf"id","note"\r\n' + b"".join(b'%d,"a ""b"" \r\n c"\r\n' % n for n in range(ROWS))


@pytest.fixture
async def peer() -> AsyncIterator[ApiPeer]:
    """A store with one file."""
    async with running_api_peer() as running:
        running.content = CONTENT
        yield running


@pytest.fixture
async def client(peer: ApiPeer) -> AsyncIterator[Client]:
    """A client of it."""
    async with Client(peer.url, "hlg_key", patience_seconds=30.0) as opened:
        yield opened


def make_finished_download(**changes: Any) -> Download:
    """The download whose file it is."""
    return Download.model_validate(status(**{"state": "succeeded", "rows": ROWS, "bytes": len(CONTENT), **changes}))


async def test_the_file_is_the_one_in_the_store(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """Byte by byte; and the store never sees the project's key."""
    told: list[tuple[int, int]] = []

    saved = await client.save(make_finished_download(), tmp_path / "out.csv", progress=lambda *far: told.append(far))

    assert (tmp_path / "out.csv").read_bytes() == CONTENT
    assert (saved.path, saved.rows, saved.bytes) == (tmp_path / "out.csv", ROWS, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    [fetched] = peer.fetched
    assert fetched.line == "/store/file?sig=a%2Fb"
    assert "Authorization" not in fetched.headers


async def test_a_broken_connection_is_taken_up(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """Each byte is asked for once, by a fresh link each time."""
    peer.breaks = [100_000, 7, 150_000]

    await client.save(make_finished_download(), tmp_path / "out.csv")

    assert (tmp_path / "out.csv").read_bytes() == CONTENT
    ranges = [seen.headers.get("Range") for seen in peer.fetched]
    assert ranges[0] is None
    assert len(ranges) == len(peer.seen) == 4
    assert all(ranges[1:])


async def test_the_disk_has_the_file_before_it_takes_the_place_of_another(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power failure may leave neither of the two."""
    sizes: list[int] = []
    monkeypatch.setattr("os.fsync", lambda number: sizes.append(os.fstat(number).st_size))
    await client.save(make_finished_download(), tmp_path / "out.csv")
    assert sizes == [len(CONTENT)]


async def test_a_name_may_be_as_long_as_the_file_system_allows(client: Client, tmp_path: Path) -> None:
    """The name of the temporary file was longer still, and was refused after the whole export."""
    path = tmp_path / f"{'n' * 251}.csv"
    await client.save(make_finished_download(), path)
    assert path.read_bytes() == CONTENT


async def test_a_download_may_be_saved_twice_at_a_time(client: Client, tmp_path: Path) -> None:
    """Under two names in one folder: neither empties the temporary file of the other, or moves it away."""
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    await asyncio.gather(*(client.save(make_finished_download(), path) for path in paths))
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [CONTENT, CONTENT]


async def test_an_expired_link_is_renewed(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """Links are good for minutes; a large file may take longer."""
    peer.breaks, peer.expired_links = [50_000], 1

    await client.save(make_finished_download(), tmp_path / "out.csv")

    assert (tmp_path / "out.csv").read_bytes() == CONTENT


async def test_another_file_is_not_mixed_in(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """Where the file in the store is another one after the break, it is read from the start."""
    peer.content, peer.breaks = CONTENT.replace(b"a ", b"x "), [100_000]

    def changed(_done: int, _size: int) -> None:
        peer.content, peer.etag = CONTENT, '"two"'

    await client.save(make_finished_download(), tmp_path / "out.csv", progress=changed)

    assert (tmp_path / "out.csv").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (CONTENT[:-10], "bytes arrived of a file of"),
        (CONTENT + b"1", "bytes arrived of a file of"),
        (CONTENT.replace(b'\r\n5,"a', b'  5,"a'), "The file has 19,999 rows, the download 20,000"),
    ],
    ids=["short", "long", "a row fewer"],
)
async def test_a_damaged_file_is_not_kept(
    peer: ApiPeer, client: Client, tmp_path: Path, content: bytes, sentence: str
) -> None:
    """What was under the name before is still there, and nothing else."""
    peer.content = content
    (tmp_path / "out.csv").write_bytes(b"before")

    with pytest.raises(FileDamaged, match=sentence):
        await client.save(make_finished_download(), tmp_path / "out.csv")

    assert (tmp_path / "out.csv").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


async def test_patience_ends_when_no_byte_comes(peer: ApiPeer, tmp_path: Path) -> None:
    """A store that only refuses is given up."""
    peer.expired_links = 1_000

    async with Client(peer.url, "hlg_key", patience_seconds=1.0) as client:
        with pytest.raises(ApiUnreachable, match=r"stopped coming at 0 of"):
            await client.save(make_finished_download(), tmp_path / "out.csv")

    assert list(tmp_path.iterdir()) == []


async def test_a_failed_download_has_no_file(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """The reason is the download's."""
    fault = {"code": "source_status", "message": "The source answered 404.", "hint": "Check it."}
    download = make_finished_download(state="failed", fault=fault)

    with pytest.raises(DownloadFailed, match=r"The source answered 404\. Check it\.") as failed:
        await client.save(download, tmp_path / "out.csv")

    assert failed.value.download == download
    assert peer.seen == []


async def test_empty_files(peer: ApiPeer, client: Client, tmp_path: Path) -> None:
    """A source without rows makes a file of heads, or of nothing."""
    for content in (b'"id"\r\n', b"\xef\xbb\xbf", b""):
        peer.content = content
        await client.save(make_finished_download(rows=0, bytes=len(content)), tmp_path / "out.csv")
        assert (tmp_path / "out.csv").read_bytes() == content


@given(st.lists(st.lists(st.text('a",\r\n'), min_size=1, max_size=3), max_size=5), st.integers(1, 10))
def test_lines_are_counted_in_any_pieces(rows: list[list[str]], size: int) -> None:
    """As a CSV reader counts them, wherever the network cuts."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    content = out.getvalue().encode()
    counter = CsvLineCounter()

    for start in range(0, len(content), size):
        counter.add(content[start : start + size])

    assert counter.lines == len(rows)

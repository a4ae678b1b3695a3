"""The file cache: one fetch, no damaged file, nothing evicted in use, whatever processes die."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from domain.faults import SourceFault
from infra.filecache import FileCache
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
BIZ = 2
LARGE = 10**9

# Pins the file whose content is argv[2] in the cache argv[1]; what it does meanwhile is argv[3].
PROCESS = """
import asyncio, hashlib, sys
from pathlib import Path
from infra.filecache import FileCache

folder, content, deed = sys.argv[1:]

async def fetch(path):
    print("fetching", flush=True)
    path.write_text(content[:3])
    if deed == "hang in fetch":
        await asyncio.sleep(600)
    await asyncio.sleep(0.2)
    path.write_text(content)

async def main():
    cache, sha256 = FileCache(Path(folder), 1_000_000), hashlib.sha256(content.encode()).hexdigest()
    async with cache.provide_pinned(2, sha256, fetch) as path:
        print("pinned", path.read_text(), flush=True)
        if deed == "hang pinned":
            await asyncio.sleep(600)

asyncio.run(main())
"""


class Repository:
    """Content by its SHA-256, and how often each was fetched."""

    def __init__(self) -> None:
        self.fetched: list[bytes] = []

    def of(self, content: bytes) -> Fetching:
        """A fetch that brings this."""
        return Fetching(self, content)


class Fetching:
    """A fetch of one content."""

    def __init__(self, repository: Repository, content: bytes) -> None:
        self._repository, self._content = repository, content

    async def __call__(self, path: Path) -> None:
        self._repository.fetched.append(self._content)
        await asyncio.sleep(0)
        path.write_bytes(self._content)


def name(content: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def repository() -> Repository:
    """Where files come from."""
    return Repository()


async def use(cache: FileCache, content: bytes, repository: Repository) -> bytes:
    """Pin a file and read it."""
    async with cache.provide_pinned(BIZ, name(content), repository.of(content)) as path:
        assert path == path.absolute()
        assert path.name == name(content)
        return path.read_bytes()


@asynccontextmanager
async def process(folder: Path, content: str, deed: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process at the same cache; killed at the end."""
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, str(folder), content, deed, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def read_line(running: asyncio.subprocess.Process) -> str:
    """Its next line."""
    assert running.stdout
    return (await running.stdout.readline()).decode().strip()


def files(folder: Path) -> set[str]:
    """Whole files in the cache."""
    return {path.name for path in folder.glob("[0-9]*/*")}


def rest(folder: Path, kind: str) -> list[Path]:
    """What lies in a folder of the cache's own."""
    return list((folder / ".cache" / kind).glob("*"))


async def test_a_file_is_fetched_once(tmp_path: Path, repository: Repository) -> None:
    """The second use finds it, and so does another process that starts later."""
    cache = FileCache(tmp_path, LARGE)

    assert [await use(cache, b"one", repository) for _ in range(3)] == [b"one"] * 3
    assert await use(FileCache(tmp_path, LARGE), b"one", repository) == b"one"
    assert repository.fetched == [b"one"]


async def test_many_at_once_share_one_fetch(tmp_path: Path, repository: Repository) -> None:
    """A hundred shards that start together wait for one of them."""
    cache = FileCache(tmp_path, LARGE)

    got = await asyncio.gather(*(use(cache, b"one", repository) for _ in range(100)))

    assert got == [b"one"] * 100
    assert repository.fetched == [b"one"]


async def test_processes_share_one_fetch(tmp_path: Path) -> None:
    """Four processes of the host: one fetches, all have the file."""
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(process(tmp_path, "abcdef", "nothing")) for _ in range(4)]
        printed = [(await each.communicate())[0].decode().split("\n") for each in running]

    lines = [line for lines in printed for line in lines]
    assert lines.count("fetching") == 1
    assert lines.count("pinned abcdef") == 4


@pytest.mark.parametrize("damage", [b"", b"on", b"oNe", b"one more"])
@pytest.mark.parametrize("same_process", [True, False])
async def test_a_damaged_file_is_noticed_and_fetched_again(
    tmp_path: Path, repository: Repository, damage: bytes, same_process: bool
) -> None:
    """The original took any file of that name for good, for ever."""
    cache = FileCache(tmp_path, LARGE)
    await use(cache, b"one", repository)
    (tmp_path / str(BIZ) / name(b"one")).write_bytes(damage)

    with capture_logs() as logs:
        again = await use(cache if same_process else FileCache(tmp_path, LARGE), b"one", repository)

    assert again == b"one"
    assert repository.fetched == [b"one", b"one"]
    # Whatever else runs in this process may write lines, too.
    assert [each["event"] for each in logs if each["event"].startswith("cached_file")] == ["cached_file_damaged"]


async def test_damage_that_keeps_size_and_time_is_noticed(tmp_path: Path, repository: Repository) -> None:
    """Restoring the time of a changed file does not hide the change."""
    cache = FileCache(tmp_path, LARGE)
    await use(cache, b"one", repository)
    path = tmp_path / str(BIZ) / name(b"one")
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert await use(cache, b"one", repository) == b"one"


async def test_a_known_file_is_not_read_again_unless_told(
    tmp_path: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A use of a file that was checked costs no hashing; `invalidate` asks for it."""
    cache = FileCache(tmp_path, LARGE)
    await use(cache, b"one", repository)
    hashed: list[str] = []
    digest = hashlib.file_digest

    def counted(file: Any, kind: str) -> Any:
        hashed.append(kind)
        return digest(file, kind)

    monkeypatch.setattr(hashlib, "file_digest", counted)

    await use(cache, b"one", repository)
    assert hashed == []
    cache.require_full_verification_at_next_use(BIZ, name(b"one"))
    await use(cache, b"one", repository)
    assert hashed == ["sha256"]
    assert repository.fetched == [b"one"]


async def test_other_content_than_asked_for_is_a_fault(tmp_path: Path, repository: Repository) -> None:
    """What the repository holds under that name is not handed out, and nothing of it stays."""
    cache = FileCache(tmp_path, LARGE)

    with pytest.raises(SourceFault, match=f"{name(b'two')}, not {name(b'one')}") as fault:
        async with cache.provide_pinned(BIZ, name(b"one"), repository.of(b"two")):
            pytest.fail("a file of another content was handed out")

    assert fault.value.record.code == "signature_mismatch"
    assert files(tmp_path) == set()
    assert rest(tmp_path, "partials") == rest(tmp_path, "flights") == []


async def test_a_failed_fetch_leaves_nothing_and_the_next_one_works(tmp_path: Path, repository: Repository) -> None:
    """The failure comes out as it was raised; the next use fetches again."""
    cache = FileCache(tmp_path, LARGE)

    async def broken(path: Path) -> None:
        path.write_bytes(b"on")
        raise ConnectionError("the repository hung up")

    with pytest.raises(ConnectionError, match="hung up"):
        async with cache.provide_pinned(BIZ, name(b"one"), broken):
            pytest.fail("half a file was handed out")
    assert rest(tmp_path, "partials") == []
    assert await use(cache, b"one", repository) == b"one"


async def test_a_cancelled_fetch_lets_the_next_one_in(tmp_path: Path, repository: Repository) -> None:
    """Who waits for a fetch that is cancelled fetches itself."""
    cache = FileCache(tmp_path, LARGE)
    began = asyncio.Event()

    async def endless(path: Path) -> None:
        began.set()
        await asyncio.Event().wait()

    async def first() -> None:
        async with cache.provide_pinned(BIZ, name(b"one"), endless):
            pytest.fail("nothing was fetched")

    hanging = asyncio.create_task(first())
    await began.wait()
    waiting = asyncio.create_task(use(cache, b"one", repository))
    hanging.cancel()

    assert await waiting == b"one"
    assert isinstance((await asyncio.gather(hanging, return_exceptions=True))[0], asyncio.CancelledError)


async def test_a_killed_fetch_is_done_again_and_its_rest_removed(tmp_path: Path, repository: Repository) -> None:
    """A process dies in the middle of a fetch: its lock dies with it, and its half file goes."""
    async with process(tmp_path, "abcdef", "hang in fetch") as other:
        assert await read_line(other) == "fetching"
        assert await eventually(lambda: rest(tmp_path, "partials"))
        waiting = asyncio.create_task(use(FileCache(tmp_path, LARGE), b"abcdef", repository))
        other.kill()
        assert await waiting == b"abcdef"

    assert rest(tmp_path, "partials") == rest(tmp_path, "flights") == []


async def test_what_a_killed_process_left_of_another_file_is_removed(tmp_path: Path, repository: Repository) -> None:
    """A cancelled fetch leaves no partial file behind."""
    async with process(tmp_path, "abcdef", "hang in fetch") as other:
        assert await read_line(other) == "fetching"
        assert await eventually(lambda: rest(tmp_path, "partials"))
        await use(FileCache(tmp_path, LARGE), b"one", repository)
        assert len(rest(tmp_path, "partials")) == 1  # it is still at work
    await use(FileCache(tmp_path, LARGE), b"two", repository)

    assert rest(tmp_path, "partials") == []
    assert {path.name for path in rest(tmp_path, "pins")} == {f"{BIZ}.{name(each)}" for each in (b"one", b"two")}


async def test_what_a_killed_process_left_is_removed_before_the_next_fetch(tmp_path: Path) -> None:
    """It may fill the disk, and then no fetch would succeed behind which it is removed."""
    left = tmp_path / ".cache" / "partials" / f"{BIZ}.{name(b'other')}.0"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")

    async def fetch(path: Path) -> None:
        if left.exists():
            raise OSError(errno.ENOSPC, "no space left")
        path.write_bytes(b"one")

    async with FileCache(tmp_path, LARGE).provide_pinned(BIZ, name(b"one"), fetch) as path:
        assert path.read_bytes() == b"one"


async def test_pins_of_other_processes_hold_and_die_with_them(tmp_path: Path, repository: Repository) -> None:
    """A full cache keeps what another process uses; when that is killed, the file may go."""
    cache = FileCache(tmp_path, 6)
    async with process(tmp_path, "abcdef", "hang pinned") as other:
        assert await read_line(other) == "fetching"
        assert await read_line(other) == "pinned abcdef"
        await use(cache, b"two", repository)
        assert name(b"abcdef") in files(tmp_path)
    await use(cache, b"three", repository)

    assert files(tmp_path) == {name(b"three")}


async def test_the_least_recently_used_file_goes_first(tmp_path: Path, repository: Repository) -> None:
    """Hot files stay, however long ago they were fetched."""
    cache = FileCache(tmp_path, 6)
    for content in (b"one", b"two", b"one", b"new"):
        await use(cache, content, repository)
        _age(tmp_path)

    assert files(tmp_path) == {name(b"one"), name(b"new")}


def _age(folder: Path) -> None:
    """Set the last use of every file back by an hour."""
    for pin in rest(folder, "pins"):
        status = pin.stat()
        os.utime(pin, ns=(status.st_atime_ns, status.st_mtime_ns - 3_600 * 10**9))


@pytest.fixture(scope="module")
def folders() -> Iterator[Path]:
    """A folder for the many examples of a property."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@settings(deadline=None, max_examples=60)
@given(
    limit=st.integers(1, 40),
    steps=st.lists(st.tuples(st.sampled_from(["use", "hold", "release"]), st.integers(0, 7)), max_size=25),
)
async def test_eviction(folders: Path, limit: int, steps: list[tuple[str, int]]) -> None:
    """Whatever is used in whatever order: held files are whole and there, and beyond them the limit holds."""
    repository, folder = Repository(), Path(tempfile.mkdtemp(dir=folders))
    cache, held = FileCache(folder, limit), dict[bytes, AsyncExitStack]()
    for deed, number in steps:
        content = bytes([number]) * (number + 1)
        if deed == "release" and content in held:
            await held.pop(content).aclose()
        elif deed == "hold" and content not in held:
            held[content] = AsyncExitStack()
            await held[content].enter_async_context(cache.provide_pinned(BIZ, name(content), repository.of(content)))
        else:
            assert await use(cache, content, repository) == content
        for each in held:
            assert (folder / str(BIZ) / name(each)).read_bytes() == each

    for stack in held.values():
        await stack.aclose()
    await use(cache, b"the last", repository)
    assert sum(path.stat().st_size for path in folder.glob("[0-9]*/*")) <= max(limit, len(b"the last"))


@pytest.mark.parametrize("wrong", ["", "../../etc/passwd", "A" * 64, "a" * 63])
async def test_names_that_are_no_sha256_are_refused(tmp_path: Path, repository: Repository, wrong: str) -> None:
    """A name becomes a path: only digits of a hash may."""
    with pytest.raises(ValueError, match="is no SHA-256"):
        async with FileCache(tmp_path, LARGE).provide_pinned(BIZ, wrong, repository.of(b"one")):
            pytest.fail("it was taken")

"""Files from the object store: under which key they are, and which of them are not fetched."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import pytest

from activities.transfers.repository import FileRepositoryClient, RepositoryUnavailable
from domain.faults import SourceFault
from domain.transfers.models import FileByBizAppAndPath
from infra.settings import TransferSettings
from services.services import Services
from tests.support.waiting import PATIENCE_SECONDS, eventually

FILE = FileByBizAppAndPath(biz_id=2, app_id=7, path="/etc/my conf/50%.ini")


class OneObjectStore:
    """A store with one object; `size` is what it says of it, `pause_seconds` what it takes to bring it."""

    def __init__(self, key: str, content: bytes, *, size: int = 0, pause_seconds: float = 0) -> None:
        self.key, self.content, self.size, self.pause_seconds = key, content, size, pause_seconds
        self.streamed = 0

    async def head(self, key: str) -> SimpleNamespace | None:
        """As the store does."""
        return SimpleNamespace(size=self.size or len(self.content)) if key == self.key else None

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        """As the store does."""
        assert key == self.key
        self.streamed += 1
        await asyncio.sleep(self.pause_seconds)
        yield self.content


async def write_file(store: OneObjectStore, path: Path, **settings: Any) -> None:
    """Write the file from the store to a path."""
    transfers = TransferSettings(repository="store:files/{path}", **settings)
    services = SimpleNamespace(http=None, objects=store, settings=SimpleNamespace(transfers=transfers))
    await FileRepositoryClient(cast("Services", services)).build_file_writer(FILE, "0" * 64)(path)


async def test_a_path_is_in_a_key_of_the_store_as_it_was_sent(tmp_path: Path) -> None:
    """Only URLs quote it."""
    await write_file(OneObjectStore("files/etc/my conf/50%.ini", b"content"), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"


async def test_a_larger_file_is_not_fetched(tmp_path: Path) -> None:
    """It would fill the disk of the cache before its digest is known."""
    store = OneObjectStore("files/etc/my conf/50%.ini", b"content", size=1_001)
    with pytest.raises(SourceFault, match=r"more than 1,000 bytes.*HAULAGE_TRANSFERS__FILE_MAX_BYTES"):
        await write_file(store, tmp_path / "file", file_max_bytes=1_000)
    assert store.streamed == 0


async def test_a_store_that_does_not_bring_a_file_in_time_is_asked_again(tmp_path: Path) -> None:
    """As a repository over HTTP is."""
    store = OneObjectStore("files/etc/my conf/50%.ini", b"content", pause_seconds=60)
    with pytest.raises(RepositoryUnavailable, match=r"within 0\.05 seconds"):
        await write_file(store, tmp_path / "file", fetch_timeout_seconds=0.05)


@pytest.mark.parametrize("is_removed", [False, True])
async def test_a_fetch_that_is_cancelled_while_a_file_is_opened_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_removed: bool
) -> None:
    """Its thread goes on: the file that it had opened was closed by none, and is not made anew once it was removed."""
    opened, cancelled, open_file = threading.Event(), threading.Event(), Path.open
    files: list[IO[Any]] = []

    def open_slowly(path: Path, *arguments: Any, **options: Any) -> IO[Any]:
        opened.set()
        cancelled.wait(PATIENCE_SECONDS)
        files.append(open_file(path, *arguments, **options))
        return files[-1]

    path = tmp_path / "file"
    monkeypatch.setattr(Path, "open", open_slowly)
    store = OneObjectStore("files/etc/my conf/50%.ini", b"content")
    fetching = asyncio.create_task(write_file(store, path))
    await asyncio.to_thread(opened.wait, PATIENCE_SECONDS)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    if is_removed:
        path.unlink()
    cancelled.set()

    if is_removed:
        await asyncio.sleep(0.2)
        assert not path.exists()
    else:
        await eventually(lambda: [each.closed for each in files] == [True])

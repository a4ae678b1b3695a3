"""The journal of GSE tasks: an id is found after the death of the process that received it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from activities.transfers.journal import RETENTION, GseTaskJournal
from tests.support.pace import measure_pace
from tests.support.waiting import eventually

PATIENCE_SECONDS = 0.3
BEGIN = """
import sys, time
from pathlib import Path
from activities.transfers.journal import GseTaskJournal
with GseTaskJournal(Path(sys.argv[1])).create_and_lock_entry("key") as entry:
    if len(sys.argv) > 2:
        entry.write_task_id(sys.argv[2])
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def journal(tmp_path: Path) -> GseTaskJournal:
    """A journal without entries."""
    return GseTaskJournal(tmp_path / "journal")


async def test_what_was_told_is_found_until_it_is_discarded(journal: GseTaskJournal) -> None:
    """At once, also while the process that received it lives."""
    with journal.create_and_lock_entry("key") as entry:
        entry.write_task_id("GSE:1")
        found = await journal.read_task_or_wait_while_locked("key", 60)
    assert found is not None
    assert found.task_id == "GSE:1"
    assert await journal.read_task_or_wait_while_locked("key", 0) == found

    journal.delete_entry("key")
    assert await journal.read_task_or_wait_while_locked("key", 60) is None


async def test_nothing_is_found_where_nothing_was_told(journal: GseTaskJournal) -> None:
    """Neither for an entry of another host, nor for an abandoned one; and without waiting."""
    with journal.create_and_lock_entry("given-up"):
        pass
    began = time.monotonic()
    found = [await journal.read_task_or_wait_while_locked(key, 60) for key in ("given-up", "elsewhere")]
    assert found == [None, None]
    assert time.monotonic() - began < 30


async def test_a_living_process_is_waited_for(journal: GseTaskJournal) -> None:
    """It may still receive an answer; the wait has a limit."""
    with journal.create_and_lock_entry("key") as entry:
        assert await journal.read_task_or_wait_while_locked("key", PATIENCE_SECONDS) is None
        finding = asyncio.create_task(journal.read_task_or_wait_while_locked("key", 60 * measure_pace()))
        await asyncio.sleep(0)
        assert not finding.done()
        entry.write_task_id("GSE:2")
    found = await finding
    assert found is not None
    assert found.task_id == "GSE:2"


@pytest.mark.parametrize("told", ["", "GSE:3"])
async def test_a_killed_process_is_not_waited_for(journal: GseTaskJournal, tmp_path: Path, told: str) -> None:
    """What it had noted is there, and its lock is gone with it."""
    arguments = [sys.executable, "-c", BEGIN, str(tmp_path / "journal"), *filter(None, [told])]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    assert await process.stdout.readline() == b"begun\n"
    if not told:
        assert (
            await journal.read_task_or_wait_while_locked("key", PATIENCE_SECONDS) is None
        )  # it lives: waited for in vain
    process.kill()
    await process.wait()

    began = time.monotonic()
    found = await journal.read_task_or_wait_while_locked("key", 600)
    assert (found.task_id if found else "") == told
    assert time.monotonic() - began < 300


async def test_a_full_disk_does_not_lose_the_id(journal: GseTaskJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database may still save the id, so that no error is raised."""

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with journal.create_and_lock_entry("key") as entry:
        monkeypatch.setattr(os, "write", refuse)
        entry.write_task_id("GSE:4")
    assert await journal.read_task_or_wait_while_locked("key", 0) is None


async def test_a_damaged_entry_is_no_answer(journal: GseTaskJournal, tmp_path: Path) -> None:
    """Its shard is sent all the same."""
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "key").write_bytes(b"\0\0\0\n")
    assert await journal.read_task_or_wait_while_locked("key", 0) is None


async def test_an_id_is_written_whole(journal: GseTaskJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the disk takes a part at a time; a part alone would read as not answered."""
    write = os.write
    with journal.create_and_lock_entry("key") as entry:
        monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:5]))
        entry.write_task_id("GSE:5")
    found = await journal.read_task_or_wait_while_locked("key", 0)
    assert found is not None
    assert found.task_id == "GSE:5"


async def test_a_folder_in_the_journal_is_left_alone(journal: GseTaskJournal, tmp_path: Path) -> None:
    """A worker starts all the same."""
    folder = tmp_path / "journal" / "lost+found"
    folder.mkdir(parents=True)
    os.utime(folder, (0, 0))
    journal.delete_expired_entries()
    assert folder.is_dir()


async def test_old_entries_are_swept(journal: GseTaskJournal, tmp_path: Path) -> None:
    """Those of shards that another host took over; what is younger stays."""
    journal.delete_expired_entries()
    for key in ("old", "young"):
        with journal.create_and_lock_entry(key) as entry:
            entry.write_task_id(key)
    before = time.time() - RETENTION.total_seconds() - 60
    os.utime(tmp_path / "journal" / "old", (before, before))
    journal.delete_expired_entries()
    assert await eventually(lambda: [path.name for path in (tmp_path / "journal").glob("*")]) == ["young"]

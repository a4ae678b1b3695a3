"""Kills of tests count only if they hit something, and a test that does not count what came of them fails."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from tests.support.kills import Killer, KillRecord, summarize
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]


class Sleepers:
    """Processes that do nothing, and come back when they have ended."""

    def __init__(self) -> None:
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.started = 0

    @property
    def pids(self) -> dict[str, int]:
        for name in ("one", "other"):
            if name not in self.running or self.running[name].poll() is not None:
                self.running[name] = subprocess.Popen(["sleep", "600"])  # noqa: S607 - wherever it is
                self.started += 1
        return {name: process.pid for name, process in self.running.items()}

    def kill(self, name: str, /) -> None:
        self.running[name].kill()
        self.running[name].wait()

    async def ready(self, name: str, /) -> None:
        assert self.pids[name]

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def sleepers() -> Iterator[Sleepers]:
    """Two processes."""
    sleepers = Sleepers()
    yield sleepers
    sleepers.end()


@pytest.fixture
def counted(sleepers: Sleepers) -> Killer:
    """What kills them and keeps count."""
    return Killer(KillRecord("a test"), sleepers)


async def test_a_kill_that_hits_counts(sleepers: Sleepers, counted: Killer) -> None:
    """Others serve in the place of those that were killed."""
    assert await counted.try_kill("one", "other", under_way=lambda: True)
    assert (counted.record.kills, counted.record.wasted, sleepers.started) == (2, 0, 4)


async def test_a_kill_that_hits_nothing_is_made_again(sleepers: Sleepers, counted: Killer) -> None:
    """As soon as there is something to hit, and until it is hit."""
    under_way = iter([True, False, True, True])
    await counted.kill("one", under_way=lambda: next(under_way))
    assert (counted.record.kills, counted.record.wasted, sleepers.started) == (1, 1, 4)


async def test_nothing_to_hit_fails_the_test(counted: Killer) -> None:
    """Instead of being taken for a test of kills."""
    answers = iter(range(1_000))
    with pytest.raises(AssertionError, match="8 kills of one found nothing under way"):
        await counted.kill("one", under_way=lambda: next(answers) % 2 == 0)
    assert counted.record.problem


async def test_a_kill_that_kills_nothing_fails_the_test(
    sleepers: Sleepers, counted: Killer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same process serves before and after it."""
    monkeypatch.setattr(sleepers, "kill", lambda _: None)
    with pytest.raises(AssertionError, match="one goes on as if nothing had been done to it"):
        await counted.try_kill("one", under_way=lambda: True)


async def test_a_stop_waits_until_the_process_has_gone(sleepers: Sleepers, counted: Killer) -> None:
    """It is counted beside the kills."""
    before = sleepers.pids["one"]
    assert await counted.try_stop("one", under_way=lambda: True)
    assert (counted.record.kills, counted.record.stops) == (0, 1)
    assert not psutil.pid_exists(before)


@pytest.mark.parametrize("hit", [True, False])
async def test_a_hang_lasts_as_long_as_its_block(sleepers: Sleepers, counted: Killer, hit: bool) -> None:
    """It counts if the process held something when it was stopped."""
    process = psutil.Process(sleepers.pids["one"])
    async with counted.hang("one", under_way=lambda: hit) as told:
        assert process.status() == psutil.STATUS_STOPPED
    await eventually(lambda: process.status() != psutil.STATUS_STOPPED)
    assert (told, counted.record.hangs, counted.record.wasted) == (hit, int(hit), int(not hit))


def test_the_counts_of_a_run_are_added_up() -> None:
    """What a test that broke off did not count is named."""
    whole = KillRecord("whole", kills=2, hangs=1, lost=0, doubled=1, recovery_seconds=3.0)
    broken = KillRecord("broken", stops=1, wasted=4)
    summary = summarize([asdict(whole), asdict(broken)])
    assert (summary["kills"], summary["stops"], summary["hangs"], summary["wasted"]) == (2, 1, 1, 4)
    assert (summary["lost"], summary["doubled"]) == (0, 1)
    assert (summary["not_counted"], summary["recovery_seconds_max"]) == (["broken"], 3.0)


TESTS = """
import pytest
from tests.support.kills import RECORD, KillRecord

@pytest.fixture
def record(request):
    record = request.node.stash[RECORD] = KillRecord(request.node.nodeid)
    return record

def test_whole(record):
    record.kills, record.lost, record.doubled = 1, 0, 0

def test_that_hits_nothing(record):
    record.lost, record.doubled = 0, 0

def test_that_counts_nothing(record):
    record.kills = 1
"""


def test_a_test_that_kills_without_counting_fails(tmp_path: Path) -> None:
    """It is printed all the same, and kept."""
    (tmp_path / "test_small.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.support.reporting", "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "nothing was hit" in done.stdout
    assert "call killer.close" in done.stdout
    assert "2 kills, lost 0, doubled 0" in done.stdout
    assert (tmp_path / ".pytest_cache" / "kills.json").exists()

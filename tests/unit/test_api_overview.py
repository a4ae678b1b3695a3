"""Cached reads, sums of workloads, and links to the engine's pages."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

import pytest

from api import batching, pauses
from api.batching import CachedRead
from domain.workload import (
    ConcernKind,
    ConcernKindSubjectAndCause,
    CountAndOldestTime,
    CountsAndConcerns,
    merge_workloads,
    parse_concerns,
    parse_uncounted_concerns,
    sum_workloads,
)
from infra import temporal
from stores.pauses import PauseRecord
from systems import System

if TYPE_CHECKING:
    from infra.database import Database

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        """Return the time that was set."""
        return self.seconds


class SlowReader:
    """Returns how often it has read; each read takes `takes` seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.reads = 0
        self.takes = 0.0
        self.fails = False

    async def read(self) -> int:
        """Return the number of this read."""
        self.reads += 1
        await asyncio.sleep(0)
        self.clock.seconds += self.takes
        if self.fails:
            raise ConnectionError("unreachable")
        return self.reads

    async def read_pauses(self) -> dict[str, PauseRecord]:
        """Return the pauses: none at the first read."""
        return {"downloads": PauseRecord(NOW, "ann", "it moves")} if await self.read() > 1 else {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of cached reads."""
    clock = Clock()
    monkeypatch.setattr(batching, "time", clock)
    return clock


async def test_callers_within_two_seconds_get_the_same_result(clock: Clock) -> None:
    """Also those who come during a read; after that there is a new read."""
    reader = SlowReader(clock)
    cached = CachedRead(reader.read)
    assert await asyncio.gather(*(cached.get_fresh_or_read() for _ in range(100))) == [1] * 100
    clock.seconds += 1.9
    assert await cached.get_fresh_or_read() == 1
    clock.seconds += 0.2
    assert await cached.get_fresh_or_read() == 2


async def test_the_result_of_a_long_read_is_kept_for_longer(clock: Clock) -> None:
    """Counting a million messages takes no more than a twentieth of the time."""
    reader = SlowReader(clock)
    cached = CachedRead(reader.read)
    reader.takes = 1.0
    assert await cached.get_fresh_or_read() == 1
    clock.seconds += 19.0
    assert await cached.get_fresh_or_read() == 1
    clock.seconds += 1.1
    assert await cached.get_fresh_or_read() == 2


async def test_a_failed_read_fails_for_all_and_is_repeated_later(clock: Clock) -> None:
    """It is not repeated for every caller."""
    reader = SlowReader(clock)
    cached = CachedRead(reader.read)
    reader.fails = True
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await cached.get_fresh_or_read()
    assert reader.reads == 1
    reader.fails = False
    clock.seconds += 2.1
    assert await cached.get_fresh_or_read() == 2


@pytest.mark.parametrize("fails", [True, False])
async def test_what_a_component_that_hung_held_up_is_not_kept_for_long(clock: Clock, *, fails: bool) -> None:
    """A failure not at all; a result for a minute, not for twenty times as long as the component hung."""
    reader = SlowReader(clock)
    cached = CachedRead(reader.read)
    reader.takes, reader.fails = 35.0, fails
    if fails:
        with pytest.raises(ConnectionError):
            await cached.get_fresh_or_read()
    else:
        assert await cached.get_fresh_or_read() == 1
        clock.seconds += batching.KEPT_MAX_SECONDS + 0.1
    reader.takes, reader.fails = 0.0, False
    assert await cached.get_fresh_or_read() == 2


async def test_a_pause_holds_within_its_time_though_the_database_is_slow(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other API processes began work for twenty times as long as the read took, a minute at most."""
    reader = SlowReader(clock)
    monkeypatch.setattr("stores.pauses.list_pauses_by_subject", lambda _database: reader.read_pauses())
    cached = pauses.CachedPauseCheckBySystem(cast("Database", None))
    reader.takes = 3.0
    assert await cached.find_pause("downloads") is None
    clock.seconds += pauses.CACHE_SECONDS + 0.1
    assert await cached.find_pause("downloads") is not None


async def test_a_cancelled_caller_does_not_cancel_the_read_of_others(clock: Clock) -> None:
    """A browser that disconnects leaves the read to the others."""
    cached = CachedRead(SlowReader(clock).read)
    leaving, staying = asyncio.create_task(cached.get_fresh_or_read()), asyncio.create_task(cached.get_fresh_or_read())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 1


def test_item_counts_add_up_and_keep_the_oldest_time() -> None:
    """No item has no age."""
    old, new = CountAndOldestTime(2, NOW - timedelta(hours=1)), CountAndOldestTime(3, NOW)
    assert old + new == CountAndOldestTime(5, NOW - timedelta(hours=1))
    assert (
        old.compute_age_of_oldest(NOW),
        (CountAndOldestTime() + CountAndOldestTime()).compute_age_of_oldest(NOW),
    ) == (3_600.0, None)
    assert new.compute_age_of_oldest(NOW - timedelta(seconds=1)) == 0.0


def test_workloads_of_the_same_projects_are_merged() -> None:
    """Those of one project add up to one, and those of all projects to another."""
    paused = CountsAndConcerns(concerns=Counter({ConcernKind.PAUSED: 1}))
    seen = merge_workloads({"a": CountsAndConcerns(running=CountAndOldestTime(1, NOW))}, {"a": paused, "b": paused})
    assert seen == {
        "a": CountsAndConcerns(running=CountAndOldestTime(1, NOW), concerns=Counter({ConcernKind.PAUSED: 1})),
        "b": paused,
    }
    assert sum_workloads(seen.values()).concerns == {ConcernKind.PAUSED: 2}


def test_a_concern_has_its_subjects_and_causes() -> None:
    """Rows of one project add up; what is zero is no concern; details alone count nothing."""
    rows = [
        {"project_id": "a", "subject": "shop-1", "cause": "x", "count": 2},
        {"project_id": "a", "subject": "shop-2", "cause": "y", "count": 1},
        {"project_id": "b", "subject": "shop-3", "cause": "", "count": 0},
    ]
    details = Counter(
        {
            ConcernKindSubjectAndCause(ConcernKind.STALE, "shop-1", "x"): 2,
            ConcernKindSubjectAndCause(ConcernKind.STALE, "shop-2", "y"): 1,
        }
    )
    seen = parse_concerns(ConcernKind.STALE, rows)
    assert seen["a"] == CountsAndConcerns(concerns=Counter({ConcernKind.STALE: 3}), details=details)
    assert seen["b"] == CountsAndConcerns()
    assert parse_uncounted_concerns(ConcernKind.STALE, rows)["a"] == CountsAndConcerns(details=details)


@pytest.mark.parametrize(
    ("system", "project_id", "query"),
    [
        ("tasks", None, "ExecutionStatus%3D%22Running%22%20AND%20HaulageSystem%3D%22tasks%22"),
        (
            "downloads",
            "prj_1",
            "ExecutionStatus%3D%22Running%22%20AND%20HaulageSystem%3D%22downloads%22%20AND%20HaulageProject%3D%22prj_1%22",
        ),
        ("addresses", None, "ExecutionStatus%3D%22Running%22%20AND%20HaulageSystem%3D%22addresses%22"),
    ],
)
def test_a_system_links_to_its_running_workflows(system: System, project_id: str | None, query: str) -> None:
    """All of them, or those of one project."""
    url = temporal.build_running_workflows_url("http://temporal.example.com/", "name space", system, project_id)
    assert url == f"http://temporal.example.com/namespaces/name%20space/workflows?query={query}"

"""Reads that are shared, and how workloads add up."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from api import shared_reads
from api.overview import engine
from api.shared_reads import CachedRead
from domain.workload import ConcernKind, ItemCount, Workload, merge_workloads, sum_workloads
from systems.names import System

NOW = datetime(2026, 11, 20, tzinfo=UTC)


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def monotonic(self) -> float:
        """The time."""
        return self.seconds


class Watcher:
    """Counts how often it looked; each look takes so long."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.looks = 0
        self.takes = 0.0
        self.fails = False

    async def see(self) -> int:
        """A look."""
        self.looks += 1
        await asyncio.sleep(0)
        self.clock.seconds += self.takes
        if self.fails:
            raise ConnectionError("nothing to see")
        return self.looks


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that looks go by."""
    clock = Clock()
    monkeypatch.setattr(shared_reads, "time", clock)
    return clock


async def test_everybody_who_asks_within_two_seconds_sees_the_same(clock: Clock) -> None:
    """Also those who come while somebody looks; after that there is a new look."""
    watcher = Watcher(clock)
    look = CachedRead(watcher.see)
    assert await asyncio.gather(*(look.get() for _ in range(100))) == [1] * 100
    clock.seconds += 1.9
    assert await look.get() == 1
    clock.seconds += 0.2
    assert await look.get() == 2


async def test_a_look_that_took_long_is_good_for_longer(clock: Clock) -> None:
    """So that counting a million messages takes no more than a twentieth of the time."""
    watcher = Watcher(clock)
    look = CachedRead(watcher.see)
    watcher.takes = 1.0
    assert await look.get() == 1
    clock.seconds += 19.0
    assert await look.get() == 1
    clock.seconds += 1.1
    assert await look.get() == 2


async def test_an_outage_is_told_to_all_and_ends(clock: Clock) -> None:
    """It is not asked again for every caller while it lasts."""
    watcher = Watcher(clock)
    look = CachedRead(watcher.see)
    watcher.fails = True
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await look.get()
    assert watcher.looks == 1
    watcher.fails = False
    clock.seconds += 2.1
    assert await look.get() == 2


async def test_who_stops_waiting_does_not_stop_the_others(clock: Clock) -> None:
    """A browser that leaves takes nothing away from those that stay."""
    look = CachedRead(Watcher(clock).see)
    leaver, stayer = asyncio.create_task(look.get()), asyncio.create_task(look.get())
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == 1


def test_piles_add_up_and_keep_the_oldest() -> None:
    """Of nothing there is no oldest."""
    old, new = ItemCount(2, NOW - timedelta(hours=1)), ItemCount(3, NOW)
    assert old + new == ItemCount(5, NOW - timedelta(hours=1))
    assert (old.seconds(NOW), (ItemCount() + ItemCount()).seconds(NOW)) == (3_600.0, None)
    assert new.seconds(NOW - timedelta(seconds=1)) == 0.0


def test_workloads_of_the_same_projects_are_merged() -> None:
    """What several counts say of a project is one workload, and all projects are one more."""
    paused = Workload(concerns=Counter({ConcernKind.PAUSED: 1}))
    seen = merge_workloads({"a": Workload(running=ItemCount(1, NOW))}, {"a": paused, "b": paused})
    assert seen == {"a": Workload(running=ItemCount(1, NOW), concerns=Counter({ConcernKind.PAUSED: 1})), "b": paused}
    assert sum_workloads(seen.values()).concerns == {ConcernKind.PAUSED: 2}


@pytest.mark.parametrize(
    ("room", "project_id", "wanted"),
    [
        ("tasks", None, "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22tasks%22"),
        (
            "downloads",
            "prj_1",
            "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22downloads%22%20AND%20HaulageProject%3D%22prj_1%22",
        ),
        ("addresses", None, "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22addresses%22"),
    ],
)
def test_rooms_lead_to_the_engine_s_own_pages(room: System, project_id: str | None, wanted: str) -> None:
    """What runs there, and of a project what is its own."""
    url = engine.url("http://temporal.example.com/", "name space", room, project_id)
    assert url == f"http://temporal.example.com/namespaces/name%20space/workflows?query={wanted}"

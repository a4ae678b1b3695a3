"""The board's looks, and how standings add up."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from api.overview import board, engine
from api.overview.answers import Room, Trouble
from api.overview.board import Look
from api.overview.standing import Pile, Standing, merged, together

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
    monkeypatch.setattr(board, "time", clock)
    return clock


async def test_everybody_who_asks_within_two_seconds_sees_the_same(clock: Clock) -> None:
    """Also those who come while somebody looks; after that there is a new look."""
    watcher = Watcher(clock)
    look = Look(watcher.see)
    assert await asyncio.gather(*(look.seen() for _ in range(100))) == [1] * 100
    clock.seconds += 1.9
    assert await look.seen() == 1
    clock.seconds += 0.2
    assert await look.seen() == 2


async def test_a_look_that_took_long_is_good_for_longer(clock: Clock) -> None:
    """So that counting a million messages takes no more than a twentieth of the time."""
    watcher = Watcher(clock)
    look = Look(watcher.see)
    watcher.takes = 1.0
    assert await look.seen() == 1
    clock.seconds += 19.0
    assert await look.seen() == 1
    clock.seconds += 1.1
    assert await look.seen() == 2


async def test_an_outage_is_told_to_all_and_ends(clock: Clock) -> None:
    """It is not asked again for every caller while it lasts."""
    watcher = Watcher(clock)
    look = Look(watcher.see)
    watcher.fails = True
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await look.seen()
    assert watcher.looks == 1
    watcher.fails = False
    clock.seconds += 2.1
    assert await look.seen() == 2


async def test_who_stops_waiting_does_not_stop_the_others(clock: Clock) -> None:
    """A browser that leaves takes nothing away from those that stay."""
    look = Look(Watcher(clock).see)
    leaver, stayer = asyncio.create_task(look.seen()), asyncio.create_task(look.seen())
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == 1


def test_piles_add_up_and_keep_the_oldest() -> None:
    """Of nothing there is no oldest."""
    old, new = Pile(2, NOW - timedelta(hours=1)), Pile(3, NOW)
    assert old + new == Pile(5, NOW - timedelta(hours=1))
    assert (old.seconds(NOW), (Pile() + Pile()).seconds(NOW)) == (3_600.0, None)
    assert new.seconds(NOW - timedelta(seconds=1)) == 0.0


def test_looks_at_the_same_projects_are_merged() -> None:
    """What several looks saw of a project is one standing, and all projects are one more."""
    paused = Standing(concerns=Counter({Trouble.PAUSED: 1}))
    seen = merged({"a": Standing(running=Pile(1, NOW))}, {"a": paused, "b": paused})
    assert seen == {"a": Standing(running=Pile(1, NOW), concerns=Counter({Trouble.PAUSED: 1})), "b": paused}
    assert together(seen.values()).concerns == {Trouble.PAUSED: 2}


@pytest.mark.parametrize(
    ("room", "project_id", "wanted"),
    [
        (Room.TASKS, None, "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22tasks%22"),
        (
            Room.DOWNLOADS,
            "prj_1",
            "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22downloads%22%20AND%20HaulageProject%3D%22prj_1%22",
        ),
        (Room.ADDRESSES, "prj_1", "ExecutionStatus%3D%22Running%22%20AND%20HaulageRoom%3D%22addresses%22"),
    ],
)
def test_rooms_lead_to_the_engine_s_own_pages(room: Room, project_id: str | None, wanted: str) -> None:
    """What runs there, and of a project what is its own."""
    url = engine.url("http://temporal.example.com/", "name space", room, project_id)
    assert url == f"http://temporal.example.com/namespaces/name%20space/workflows?query={wanted}"

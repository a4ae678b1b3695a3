"""Cache of idle lanes: tasks are read once, and never returned after a change."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tasks import lane_caches
from api.tasks.lane_caches import IDLE_LANES_MAX, UNCHANGED_READS, IdleLaneTaskCache, LaneHeadCache
from domain.tasks.lane import Lane
from domain.tasks.messages import (
    CreateOperation,
    HoldOperation,
    LaneBatch,
    LaneHead,
    Task,
    TaskSearch,
    TaskSearchReply,
    TaskTypeRules,
)
from domain.tasks.names import LaneName
from infra.database import Database
from workflows.tasks.handle import HistoryPosition

LANE = ("video", 1)
MANY = 5_000


@dataclass
class OneLaneEngine:
    """One lane, as it is reached from outside; each group is a step of its history."""

    lane: Lane = field(default_factory=lambda: Lane(TaskTypeRules(lane_max_tasks=2 * MANY)))
    steps: int = 0
    marks: int = 0
    searches: int = 0
    acts_after: int = -1
    """A group comes in between, after this number of further searches."""

    def act(self, **operations: object) -> None:
        """Apply a batch of another sender."""
        self.steps += 1
        self.lane.apply_batch(LaneBatch(sender="other", number=self.steps, **operations), 1_000 * self.steps)  # type: ignore[arg-type]

    def create(self, tasks: int) -> None:
        """Create tasks."""
        self.act(creates=[CreateOperation(secrets.token_hex(16), "", "") for _ in range(tasks)])

    async def mark(self, _: LaneName) -> HistoryPosition:
        """How long its history is."""
        self.marks += 1
        return "run", self.steps

    async def search(self, _: LaneName, search: TaskSearch) -> TaskSearchReply:
        """Some of its tasks."""
        self.searches += 1
        found = self.lane.search_tasks(search)
        if self.searches == self.acts_after:
            self.act(holds=[HoldOperation(1)])
        return found

    def look(self, known: IdleLaneTaskCache) -> None:
        """Record a read of the lane."""
        known.count_read_of_idle_lane(LANE, self.lane.state.build_head().number)

    @property
    def tasks(self) -> dict[str, Task]:
        """What is in it."""
        return self.lane.state.tasks


async def make_idle_cache(engine: OneLaneEngine) -> IdleLaneTaskCache:
    """What is known of a lane that was looked at until it rests, and then read by the way."""
    known = IdleLaneTaskCache(engine.mark, engine.search)
    for _ in range(UNCHANGED_READS + 1):
        engine.look(known)
    # The loop is the session's: other tasks that run in it do not end, or are cancelled in time.
    others = asyncio.all_tasks()
    assert await known.get_current_tasks(LANE) is None
    (reading,) = asyncio.all_tasks() - others
    await reading
    return known


async def test_a_lane_is_read_once_while_nothing_happens() -> None:
    """All of it, in as many pages as it takes; then only the mark is asked for."""
    engine = OneLaneEngine()
    for _ in range(5):
        engine.create(MANY // 5)
    known = await make_idle_cache(engine)
    assert await known.get_current_tasks(LANE) == engine.tasks
    pages = engine.searches
    assert pages > 1
    for _ in range(3):
        assert await known.get_current_tasks(LANE) == engine.tasks
    assert (engine.searches, engine.marks) == (pages, 5)


async def test_a_lane_is_looked_at_some_times_before_it_rests() -> None:
    """Reading it all is dear, and in vain where something happens between two reads."""
    engine = OneLaneEngine()
    engine.create(3)
    known = IdleLaneTaskCache(engine.mark, engine.search)
    for _ in range(3 * UNCHANGED_READS):
        engine.look(known)
        engine.create(1)
        assert await known.get_current_tasks(LANE) is None
    assert (engine.searches, engine.marks) == (0, 0)


@given(changes=st.lists(st.booleans(), min_size=1, max_size=30), acts_after=st.integers(-1, 6))
async def test_what_is_told_is_how_the_lane_is(changes: list[bool], acts_after: int) -> None:
    """Whenever something happens, also while it is being read."""
    engine = OneLaneEngine(acts_after=acts_after)
    engine.create(7)
    known = await make_idle_cache(engine)
    for is_changed in changes:
        if is_changed:
            engine.act(holds=[HoldOperation(1)])
        before = engine.steps
        told = await known.get_current_tasks(LANE)
        if told is None:
            engine.look(known)
            await asyncio.sleep(0)
        elif engine.steps == before:
            assert told == engine.tasks


async def test_no_more_lanes_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was asked longest ago is forgotten first."""
    monkeypatch.setattr(lane_caches, "PROTECTED_SECONDS", 0.0)
    engine = OneLaneEngine()
    known = await make_idle_cache(engine)
    for pos in range(2, IDLE_LANES_MAX + 2):
        known.count_read_of_idle_lane(("video", pos), 1)
    assert await known.get_current_tasks(LANE) is None


async def test_lanes_that_take_turns_do_not_drive_each_other_out() -> None:
    """One that was asked a moment ago stays, however many others come."""
    engine = OneLaneEngine()
    engine.create(3)
    known = await make_idle_cache(engine)
    for pos in range(2, 2 * IDLE_LANES_MAX):
        known.count_read_of_idle_lane(("video", pos), 1)
    assert known.is_cached(LANE)
    assert await known.get_current_tasks(LANE) == engine.tasks
    assert not known.is_cached(("video", 2))


def test_a_lane_with_due_tasks_is_found_by_a_host_whose_clock_is_behind() -> None:
    """The lane reckons by the engine's clock. Holds came back empty until this host's clock had caught up."""
    heads = LaneHeadCache(cast("Database", None))
    soon = lane_caches.get_now_ms() + 60_000
    heads.update_and_wake_if_newer(("video", 1), LaneHead(number=1, next_order_time=soon, pending=1))
    assert heads.find_lane_with_unreserved_due_task("video", ()) is None
    heads.update_and_wake_if_newer(("video", 2), LaneHead(number=1, next_order_time=soon + 1, pending=1, due=1))
    assert heads.find_lane_with_unreserved_due_task("video", ()) == 2

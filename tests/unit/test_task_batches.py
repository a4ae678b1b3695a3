"""How an API process groups what it asks a lane: together those who come together, and at the same time as others."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client

from api.tasks.lanes import LaneClient, compute_tick_delay
from domain.tasks.messages import (
    CreateOperation,
    LaneBatch,
    LaneBatchReply,
    LaneHead,
    OperationCode,
    SetOperation,
    TaskFlags,
    TaskTypeRules,
)
from domain.tasks.names import LaneName
from workflows.tasks import handle

LANE = ("video", 1)
CALLERS, ROUNDS = 20, 5


class RecordedLanes:
    """Lanes whose groups are noted and answered at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[LaneBatch] = []
        self.under_way = 0
        self.is_under_way = asyncio.Event()
        monkeypatch.setattr(handle, "apply_batch", self._apply_batch)
        self.lanes = LaneClient(cast("Client", None), lambda *_: None)

    async def set(self) -> str:
        """What becomes of a set."""
        return await self.lanes.change_task(LANE, TaskTypeRules(version=1), SetOperation("a" * 32, 3))

    async def create(self, refs: TaskFlags = TaskFlags.NONE) -> str:
        """What becomes of a create."""
        return await self.lanes.create_task(
            LANE, TaskTypeRules(version=1), CreateOperation("b" * 32, "", "", flags=refs)
        )

    async def _apply_batch(self, _engine: Client, _lane: LaneName, batch: LaneBatch) -> LaneBatchReply:
        self.under_way += 1
        self.is_under_way.set()
        assert self.under_way == 1
        await asyncio.sleep(0)
        self.under_way -= 1
        self.groups.append(batch)
        if not batch.creates:
            return LaneBatchReply(head=LaneHead(), now=0, version=1, sets="0" * len(batch.sets))
        codes = OperationCode.OK + OperationCode.FULL * (len(batch.creates) - 1)
        return LaneBatchReply(head=LaneHead(full=True), now=0, version=1, creates=codes)


async def test_callers_who_come_again_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group leaves without those whom the one before has answered, as long as they come in time."""
    lanes = RecordedLanes(monkeypatch)
    monkeypatch.setattr("api.tasks.lanes.RETURN_SECONDS", 60.0)

    async def call() -> None:
        for _ in range(ROUNDS):
            assert await lanes.set() == "0"

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    assert [len(group.sets) for group in lanes.groups] == [CALLERS] * ROUNDS


async def test_a_group_waits_no_longer_than_it_must_for_those_who_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many comes again, and is answered although the others do not."""
    lanes = RecordedLanes(monkeypatch)
    await asyncio.gather(*(lanes.set() for _ in range(CALLERS)))
    assert await lanes.set() == "0"
    assert [len(group.sets) for group in lanes.groups] == [CALLERS, 1]


async def test_a_request_that_finds_a_lane_idle_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come while it is under way wait for each other and are one group."""
    lanes = RecordedLanes(monkeypatch)
    monkeypatch.setattr("api.tasks.lanes.WAIT_SECONDS", 60.0)
    for _ in range(3):
        async with asyncio.timeout(30.0):
            assert await lanes.set() == "0"

    monkeypatch.setattr("api.tasks.lanes.WAIT_SECONDS", 0.002)
    lanes.is_under_way.clear()
    first = asyncio.create_task(lanes.set())
    await lanes.is_under_way.wait()
    await asyncio.gather(first, *(lanes.set() for _ in range(CALLERS)))
    assert [len(group.sets) for group in lanes.groups] == [1, 1, 1, 1, CALLERS]


async def test_the_newest_rules_go_with_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a request that has read older ones joins it: a type was paused, and its lane went on."""
    lanes = RecordedLanes(monkeypatch)
    rules = [
        lanes.lanes.send_rules_and_wait_until_applied(LANE, TaskTypeRules(version=version)) for version in (1, 4, 2)
    ]
    await asyncio.gather(*rules)
    assert [group.rules and group.rules.version for group in lanes.groups] == [4]


async def test_a_lane_that_is_full_is_not_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it may have the task already."""
    lanes = RecordedLanes(monkeypatch)
    assert await asyncio.gather(*(lanes.create() for _ in range(3))) == [
        OperationCode.OK,
        OperationCode.FULL,
        OperationCode.FULL,
    ]
    assert await asyncio.gather(*(lanes.create() for _ in range(3))) == [OperationCode.FULL] * 3
    assert await lanes.create(TaskFlags.KEYED) == OperationCode.OK
    assert [len(group.creates) for group in lanes.groups] == [3, 1]


@given(
    now=st.floats(1.7e9, 1.8e9),
    later=st.floats(0.0, 0.02),
    spacing=st.sampled_from([0.01, 0.04, 0.06]),
    offset=st.integers(0, 9).map(lambda pos: pos * 0.01),
)
def test_processes_keep_the_same_beat(now: float, later: float, spacing: float, offset: float) -> None:
    """A batch that begins to wait between two ticks leaves at the second one, never earlier and never later."""
    wait = compute_tick_delay(now, later, spacing, offset)
    beats = (now + wait - offset) / spacing
    assert later <= wait <= later + spacing
    assert beats == pytest.approx(round(beats), abs=1e-4, rel=0)

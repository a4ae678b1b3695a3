"""How an API process groups what it asks a lane: together those who come together, and at the same time as others."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.client import Client

from api.tasks import calls, grouping
from api.tasks.grouping import until_beat
from api.tasks.lanes import Lanes
from domain.tasks.messages import Code, Group, GroupReply, Head, NewTask, Refs, Rules, Setting

LANE = ("video", 1)
CALLERS, ROUNDS = 20, 5


class Told:
    """Lanes whose groups are noted and answered at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[Group] = []
        self.under_way = 0
        monkeypatch.setattr(calls, "update", self._update)
        self.lanes = Lanes(cast("Client", None), lambda *_: None)

    async def set(self) -> str:
        """What becomes of a set."""
        return await self.lanes.change(LANE, Rules(version=1), Setting("a" * 32, 3))

    async def create(self, refs: Refs = Refs.NONE) -> str:
        """What becomes of a create."""
        return await self.lanes.create(LANE, Rules(version=1), NewTask("b" * 32, "", "", refs=refs))

    async def _update(
        self, _engine: Client, _id: str, _name: str, _update: str, group: Group, _reply: Any
    ) -> GroupReply:
        self.under_way += 1
        assert self.under_way == 1
        await asyncio.sleep(0)
        self.under_way -= 1
        self.groups.append(group)
        if not group.creates:
            return GroupReply(head=Head(), now=0, version=1, sets="0" * len(group.sets))
        codes = Code.OK + Code.FULL * (len(group.creates) - 1)
        return GroupReply(head=Head(full=True), now=0, version=1, creates=codes)


async def test_callers_who_come_again_are_asked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group leaves without those whom the one before has answered, as long as they come in time."""
    told = Told(monkeypatch)
    monkeypatch.setattr(grouping, "RETURN_SECONDS", 60.0)

    async def call() -> None:
        for _ in range(ROUNDS):
            assert await told.set() == "0"

    await asyncio.gather(*(call() for _ in range(CALLERS)))
    assert [len(group.sets) for group in told.groups] == [CALLERS] * ROUNDS


async def test_a_group_waits_no_longer_than_it_must_for_those_who_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many comes again, and is answered although the others do not."""
    told = Told(monkeypatch)
    await asyncio.gather(*(told.set() for _ in range(CALLERS)))
    assert await told.set() == "0"
    assert [len(group.sets) for group in told.groups] == [CALLERS, 1]


async def test_a_lane_that_is_full_is_not_asked_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it may have the task already."""
    told = Told(monkeypatch)
    assert await asyncio.gather(*(told.create() for _ in range(3))) == [Code.OK, Code.FULL, Code.FULL]
    assert await asyncio.gather(*(told.create() for _ in range(3))) == [Code.FULL] * 3
    assert await told.create(Refs.KEYED) == Code.OK
    assert [len(group.creates) for group in told.groups] == [3, 1]


@given(
    now=st.floats(1.7e9, 1.8e9),
    later=st.floats(0.0, 0.02),
    spacing=st.sampled_from([0.01, 0.04, 0.06]),
    offset=st.integers(0, 9).map(lambda pos: pos * 0.01),
)
def test_processes_keep_the_same_beat(now: float, later: float, spacing: float, offset: float) -> None:
    """Whoever starts to wait between two beats leaves at the second, never too early and never one later."""
    wait = until_beat(now, later, spacing, offset)
    beats = (now + wait - offset) / spacing
    assert later <= wait <= later + spacing
    assert beats == pytest.approx(round(beats), abs=1e-4, rel=0)

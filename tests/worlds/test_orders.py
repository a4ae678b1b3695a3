"""Worlds of orders: the store below `complete_to` equals the platform, or a hole says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from infra.settings import Settings
from tests.worlds.orders.flaws import KINDS
from tests.worlds.orders.playing import running_stage
from tests.worlds.orders.world import Family, World, draw_world, list_smaller
from tests.worlds.playing import System
from tests.worlds.suite import WorldTests
from tests.worlds.verdict import Ending, Verdict

NUMBERED = {"paging": "number", "field": "modified", "rows_max": "none", "rows_of_a_slice": "10000"}

FAMILIES = {
    "leaves": Family(flaws=("leaves",), options={**NUMBERED, "total": "in_pages"}, orders=20),
    "redo": Family(
        flaws=("slow", "detail_other"),
        options={**NUMBERED, "detail": "call", "operator": "redo_open", "retries": "0", "timeout": "60"},
        orders=9,
    ),
    "starttime": Family(flaws=("late",), options={"operator": "other_starttime"}),
    "backfill": Family(flaws=(), options={"operator": "backfill_broken", "retries": "0"}, orders=4),
    "rows_stop": Family(
        flaws=("rows_stop",),
        options={"total": "none", "field": "modified", "sort": "newest_first", "rows_max": "none"},
        orders=30,
    ),
    "details": Family(flaws=("detail_older",), options={"field": "modified", "detail": "call"}, orders=4),
}

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """API, worker and platforms."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, is_for_want_of_time=_is_for_want_of_time)


class TestWorlds(WorldTests[World]):
    """Each world ends as its truth, or with holes that have a right cause, in bounded time."""

    name = "orders"
    world = World
    kinds = KINDS
    families = FAMILIES
    count = 6
    family_count = 12

    def draw_family(self, seed: int, family: str) -> World:
        """See base class."""
        return draw_world(seed, FAMILIES[family])

    def check_fired(self, family: str, fired: set[str]) -> None:
        """See base class. Every flaw of a family fires."""
        assert fired >= set(FAMILIES[family].flaws)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Return whether a slice ran out of its world's time, or all of it took too long beside the others."""
    if verdict.ending is Ending.LATE:
        return True
    is_needless = verdict.ending in (Ending.NEEDLESS, Ending.WRONG_CAUSE)
    return is_needless and verdict.why.startswith("slice_timeout")

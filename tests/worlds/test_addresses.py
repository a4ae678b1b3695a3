"""Worlds of addresses: each message ends as four modules show, and they are alike, or it says why not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from infra.settings import Settings
from tests.worlds.addresses.flaws import KINDS
from tests.worlds.addresses.world import World, draw_world, list_smaller
from tests.worlds.addresses.world_run import running_stack
from tests.worlds.playing import System
from tests.worlds.suite import WorldTests
from tests.worlds.verdict import Ending, Verdict

AT_ONCE = 25

FAMILIES = {
    "swaps": ("side_comes_later",),
    "queues": ("hopeless_swap",),
    "module_faults": ("module_fails", "module_says_503", "module_resets"),
}

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """API, worker and modules."""
    async with running_stack(settings) as stack:

        async def check_drift() -> None:
            reported, actual = await stack.count_drift()
            assert reported == actual

        yield System(draw_world, stack.run_world, list_smaller, AT_ONCE, _is_for_want_of_time, check_drift)


class TestWorlds(WorldTests[World]):
    """Each message of each world ends as the modules show, or for a right cause, in bounded time."""

    name = "addresses"
    world = World
    kinds = KINDS
    families = FAMILIES
    count = 8
    family_count = 24

    def draw_family(self, seed: int, family: str) -> World:
        """See base class."""
        return draw_world(seed, FAMILIES[family])


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Return whether messages had not come to an end while others were played."""
    return verdict.ending is Ending.LATE

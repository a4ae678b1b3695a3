"""Worlds of transfers: what is reported of each target is what its host has, or a sentence says why it is not."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from infra.settings import Settings
from tests.worlds.playing import System
from tests.worlds.suite import WorldTests
from tests.worlds.transfers.flaws import KINDS
from tests.worlds.transfers.playing import running_stage
from tests.worlds.transfers.world import SUITE_WORLDS, TransferWorld, draw_round, draw_world, list_smaller
from tests.worlds.verdict import Verdict

OF_A_FAMILY_IN_THE_SUITE = 2
AT_ONCE = 6
"""Windows are two seconds long here. With 16 worlds at once the suite's six processes left so little of two cores that
each join found its window closed and began another job, and the next one was no quicker: that never ended."""

FAMILIES = {
    "room": ("many_wishes",),
    "causes": ("fails_then_runs_for_ever", "fails_for_now", "upload_fails", "never_reported", "runs_for_ever"),
    "once": ("create_lost", "flaps", "asked_twice", "results_hang", "task_forgotten", "upload_fails"),
    "polls": ("results_down",),
}

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[TransferWorld]]:
    """API, worker, repositories, GSEs and hosts."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, AT_ONCE, _is_for_want_of_time)


class TestTransferWorlds(WorldTests[TransferWorld]):
    """Each target of each world ends as its host shows, or for a right cause, in bounded time."""

    name = "transfers"
    world = TransferWorld
    kinds = KINDS
    families = FAMILIES
    count = 0
    family_count = 20

    def draw_family(self, seed: int, family: str) -> TransferWorld:
        """See base class."""
        return draw_world(seed, FAMILIES[family])

    def choose_worlds(self, system: System[TransferWorld], first: int) -> tuple[System[TransferWorld], Sequence[int]]:
        """See base class. The suite plays a round in which each flaw comes once, and some worlds of each family."""
        if "WORLDS" in os.environ:
            return super().choose_worlds(system, first)
        forced = enumerate(draw_round(first, SUITE_WORLDS), start=first)
        worlds = {seed: draw_world(seed, forced=flaws) for seed, flaws in forced}
        families = [family for family in FAMILIES.values() for _ in range(OF_A_FAMILY_IN_THE_SUITE)]
        worlds |= {seed: draw_world(seed, family) for seed, family in enumerate(families, start=first + SUITE_WORLDS)}
        return replace(system, draw=worlds.__getitem__), list(worlds)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Return whether a target ran out of time in a world in which something else should have ended it."""
    return verdict.ending.is_defect and verdict.why.startswith("Timeout/deadline/")

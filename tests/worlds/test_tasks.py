"""Worlds of tasks: what becomes of each task follows from what was done to it, and no two workers hold one task."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from infra.settings import Settings
from tests.worlds.playing import System
from tests.worlds.suite import WorldTests
from tests.worlds.tasks.flaws import KINDS
from tests.worlds.tasks.judging import WAITED
from tests.worlds.tasks.playing import running_stage
from tests.worlds.tasks.world import TaskWorld, draw_world, list_smaller
from tests.worlds.verdict import Ending, Verdict

AT_ONCE = 8
"""Leases last two seconds here: on two cores more worlds at once would let them expire."""

FAMILIES = {
    "leases": (
        "slow_worker",
        "worker_dies",
        "beats_late",
        "ends_with_its_lease",
        "clock_behind",
        "workers_die_always",
    ),
    "once": ("create_lost", "report_lost", "report_twice", "hold_lost", "daisy_chain"),
    "stale": ("stale_report", "cancelled", "put_back", "clock_behind"),
    "retries": ("fails_often", "fails_to_the_end", "delayed_retry_first", "config_changed", "workers_die_always"),
}

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[TaskWorld]]:
    """Two APIs and a worker."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, AT_ONCE, _is_for_want_of_time)


class TestTaskWorlds(WorldTests[TaskWorld]):
    """Each task of each world ends as its history demands, and every refusal has a right cause."""

    name = "tasks"
    world = TaskWorld
    kinds = KINDS
    families = FAMILIES
    count = 12
    family_count = 20

    def draw_family(self, seed: int, family: str) -> TaskWorld:
        """See base class."""
        return draw_world(seed, FAMILIES[family])


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Return whether a busy machine may have kept a worker waiting, which is no loss and no doubling."""
    has_waited = verdict.ending is Ending.SILENT and verdict.why.startswith(f"a hold {WAITED}")
    return has_waited or verdict.ending is Ending.LATE

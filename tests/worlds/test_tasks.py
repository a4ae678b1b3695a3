"""Worlds of tasks: what becomes of each task follows from what was done to it, and nobody gets what another one holds.

`make worlds SYSTEM=tasks N=1000 SEED=7` plays many; the suite plays those that are kept, and some new ones.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.worlds import coverage
from tests.worlds.playing import Noted, System, choose_notes, play_all, play_one, shrink
from tests.worlds.tasks.flaws import KINDS
from tests.worlds.tasks.judging import WAITED
from tests.worlds.tasks.playing import running_stage
from tests.worlds.tasks.world import World, draw_world, list_smaller
from tests.worlds.verdict import Ending, Verdict

COUNT = int(os.environ.get("WORLDS", "20"))
FAMILIES = {
    "leases": ("slow_worker", "worker_dies", "beats_late", "ends_with_its_lease", "clock_behind", "workers_die_always"),
    "once": ("create_lost", "report_lost", "report_twice", "hold_lost", "daisy_chain"),
    "stale": ("stale_report", "cancelled", "put_back", "clock_behind"),
    "retries": ("fails_often", "fails_to_the_end", "delayed_retry_first", "config_changed", "workers_die_always"),
}
"""Flaws that show the same promise; of each family so many more worlds are played."""
OF_A_FAMILY = 20
AT_ONCE = 8
"""Leases last two seconds here: on two cores more worlds at once would let them run out."""
KEPT = sorted((Path(__file__).parent / "tasks" / "kept").glob("*.json"))
SEEDS_APART = 1_000_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """Two APIs and a worker."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, AT_ONCE, _is_for_want_of_time)


async def test_nothing_differs_in_silence(system: System[World], request: pytest.FixtureRequest) -> None:
    """Each task of each world ends as its history demands, and every refusal has a right cause."""
    seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
    notes = choose_notes("tasks", seed)
    first = seed % SEEDS_APART * SEEDS_APART
    noted = await play_all(system, range(first, first + COUNT), notes)
    defects = [each for each in noted if each.ending.is_defect]
    for each in [each for each in defects if each.ending is not Ending.LATE][:3]:
        small = await shrink(system, World.model_validate_json(each.world), each.ending)
        sys.stderr.write(f"\n{each.ending}: {each.why}\n  {small.model_dump_json() if small else 'not again'}\n")
    if notes is not None:
        notes.with_name("tasks.md").write_text(coverage.table(noted, KINDS))
        assert coverage.never_fired(noted, KINDS) == []
    assert [_describe(each) for each in defects] == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
async def test_nothing_of_a_family_differs_in_silence(
    system: System[World], request: pytest.FixtureRequest, family: str
) -> None:
    """Flaws that are rare among all come often enough to be sure."""
    seed = request.config.getoption("randomly_seed") % SEEDS_APART * SEEDS_APART
    drawn = replace(system, draw=_drawing(FAMILIES[family]))
    noted = await play_all(drawn, range(seed, seed + OF_A_FAMILY))
    assert [_describe(each) for each in noted if each.ending.is_defect] == []
    assert {flaw for each in noted for flaw in each.fired} & set(FAMILIES[family])


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_worlds_that_once_went_wrong(system: System[World], path: Path) -> None:
    """The smallest world of each defect that was found, so that it does not come back."""
    noted = await play_one(system, World.model_validate(json.loads(path.read_text())))
    assert not noted.ending.is_defect, _describe(noted)


def _drawing(flaws: tuple[str, ...]) -> Callable[[int], World]:
    return lambda seed: draw_world(seed, flaws)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Whether a busy machine may have kept somebody waiting, which is no loss and no doubling."""
    has_waited = verdict.ending is Ending.SILENT and verdict.why.startswith(f"a hold {WAITED}")
    return has_waited or verdict.ending is Ending.LATE


def _describe(noted: Noted) -> str:
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

"""Worlds of orders: what is stored below `complete_to` is what the platform has, or a hole with its cause says why not.

`make worlds SYSTEM=orders N=1000 SEED=7` plays many; the suite plays those that are kept, and some new ones.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.settings import Settings
from tests.worlds import coverage
from tests.worlds.orders.flaws import KINDS
from tests.worlds.orders.playing import running_stage
from tests.worlds.orders.world import Family, World, draw_world, list_smaller
from tests.worlds.playing import Noted, System, choose_notes, play_all, play_one, shrink
from tests.worlds.verdict import Ending, Verdict

COUNT = int(os.environ.get("WORLDS", "6"))
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
"""Flaws and options that show the same promise; of each family so many more worlds are played."""
OF_A_FAMILY = 12
KEPT = sorted((Path(__file__).parent / "orders" / "kept").glob("*.json"))
SEEDS_APART = 1_000_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """API, worker and platforms."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, is_for_want_of_time=_is_for_want_of_time)


async def test_nothing_differs_in_silence(system: System[World], request: pytest.FixtureRequest) -> None:
    """Each world ends as its truth, or with holes that have a right cause, in bounded time."""
    seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
    notes = choose_notes("orders", seed)
    first = seed % SEEDS_APART * SEEDS_APART
    noted = await play_all(system, range(first, first + COUNT), notes)
    defects = [each for each in noted if each.ending.is_defect]
    for each in [each for each in defects if each.ending is not Ending.LATE][:3]:
        small = await shrink(system, World.model_validate_json(each.world), each.ending)
        sys.stderr.write(f"\n{each.ending}: {each.why}\n  {small.model_dump_json() if small else 'not again'}\n")
    if notes is not None:
        notes.with_name("orders.md").write_text(coverage.table(noted, KINDS))
        assert coverage.never_fired(noted, KINDS) == []
    assert [_describe(each) for each in defects] == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
async def test_nothing_of_a_family_differs_in_silence(
    system: System[World], request: pytest.FixtureRequest, family: str
) -> None:
    """Flaws that are rare among all come often enough to be sure."""
    seed = request.config.getoption("randomly_seed") % SEEDS_APART * SEEDS_APART
    drawn = replace(system, draw=lambda number: draw_world(number, FAMILIES[family]))
    noted = await play_all(drawn, range(seed, seed + OF_A_FAMILY))
    assert [_describe(each) for each in noted if each.ending.is_defect] == []
    assert {flaw for each in noted for flaw in each.fired} >= set(FAMILIES[family].flaws)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_worlds_that_once_went_wrong(system: System[World], path: Path) -> None:
    """The smallest world of each defect that was found, so that it does not come back."""
    noted = await play_one(system, World.model_validate(json.loads(path.read_text())))
    assert not noted.ending.is_defect, _describe(noted)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Whether a slice ran out of time that the world gives it, or all of it took too long beside the others."""
    if verdict.ending is Ending.LATE:
        return True
    is_needless = verdict.ending in (Ending.NEEDLESS, Ending.WRONG_CAUSE)
    return is_needless and verdict.why.startswith("slice_timeout")


def _describe(noted: Noted) -> str:
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

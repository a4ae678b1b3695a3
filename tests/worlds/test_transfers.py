"""Worlds of transfers: what is told of each target is what its host has, or a sentence says why it is not.

`make worlds SYSTEM=transfers N=1000 SEED=7` plays many; the suite plays those that are kept, and some new ones.
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
from tests.worlds.transfers.flaws import KINDS
from tests.worlds.transfers.playing import running_stage
from tests.worlds.transfers.world import SUITE_WORLDS, World, draw_round, draw_world, list_smaller
from tests.worlds.verdict import Ending, Verdict

COUNT = int(os.environ.get("WORLDS", "0"))
"""Of a run by hand; the suite plays a round of all flaws, and some worlds of each family."""
FAMILIES = {
    "room": ("many_wishes",),
    "causes": ("fails_then_runs_for_ever", "fails_for_now", "upload_fails", "never_told", "runs_for_ever"),
    "once": ("create_lost", "flaps", "asked_twice", "results_hang", "task_forgotten", "upload_fails"),
    "polls": ("results_down",),
}
"""Flaws that show the same promise; of each family so many more worlds are played."""
OF_A_FAMILY, OF_A_FAMILY_IN_THE_SUITE = 20, 2
AT_ONCE = 16
"""Windows are two seconds long here: on two cores more joins at once would find them closed."""
KEPT = sorted((Path(__file__).parent / "transfers" / "kept").glob("*.json"))
SEEDS_APART = 1_000_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """API, worker, repositories, GSEs and hosts."""
    async with running_stage(settings) as stage:
        yield System(draw_world, stage.play, list_smaller, AT_ONCE, _is_for_want_of_time)


async def test_nothing_differs_in_silence(system: System[World], request: pytest.FixtureRequest) -> None:
    """Each target of each world ends as its host shows, or for a right cause, in bounded time."""
    seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
    notes = choose_notes("transfers", seed)
    first = seed % SEEDS_APART * SEEDS_APART
    suite = _draw_suite(first)
    drawn = system if COUNT else replace(system, draw=suite.__getitem__)
    noted = await play_all(drawn, range(first, first + COUNT) if COUNT else list(suite), notes)
    defects = [each for each in noted if each.ending.is_defect]
    for each in [each for each in defects if each.ending is not Ending.LATE][:3]:
        small = await shrink(system, World.model_validate_json(each.world), each.ending)
        sys.stderr.write(f"\n{each.ending}: {each.why}\n  {small.model_dump_json() if small else 'not again'}\n")
    if notes is not None:
        notes.with_name("transfers.md").write_text(coverage.table(noted, KINDS))
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


def _draw_suite(first: int) -> dict[int, World]:
    """Return by their seeds worlds that hold each flaw once, and after them some of each family."""
    forced = enumerate(draw_round(first, SUITE_WORLDS), start=first)
    worlds = {seed: draw_world(seed, forced=flaws) for seed, flaws in forced}
    families = [family for family in FAMILIES.values() for _ in range(OF_A_FAMILY_IN_THE_SUITE)]
    return worlds | {seed: draw_world(seed, family) for seed, family in enumerate(families, start=first + SUITE_WORLDS)}


def _drawing(flaws: tuple[str, ...]) -> Callable[[int], World]:
    return lambda seed: draw_world(seed, flaws)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Whether a target ran out of time in a world in which something else should have ended it."""
    return verdict.ending.is_defect and verdict.why.startswith("Timeout/deadline/")


def _describe(noted: Noted) -> str:
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

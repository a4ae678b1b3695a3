"""Worlds of addresses: what is told of each message is what four modules did, and they are alike or it says why not.

`make worlds SYSTEM=addresses N=1000 SEED=7` plays many; the suite plays those that are kept, and some new ones.
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
from tests.worlds.addresses.flaws import KINDS
from tests.worlds.addresses.playing import Stage, running_stage
from tests.worlds.addresses.world import World, draw_world, list_smaller
from tests.worlds.playing import Noted, System, choose_notes, play_all, play_one, shrink
from tests.worlds.verdict import Ending, Verdict

COUNT = int(os.environ.get("WORLDS", "8"))
FAMILIES = {
    "swaps": ("side_comes_later",),
    "queues": ("hopeless_swap",),
    "weather": ("module_fails", "module_says_503", "module_resets"),
}
"""Flaws that show the same promise; of each family so many more worlds are played."""
OF_A_FAMILY = 24
AT_ONCE = 25
KEPT = sorted((Path(__file__).parent / "addresses" / "kept").glob("*.json"))
SEEDS_APART = 1_000_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(14_400)]


@pytest.fixture
async def stage(settings: Settings) -> AsyncIterator[Stage]:
    """API, worker and modules."""
    async with running_stage(settings) as stage:
        yield stage


@pytest.fixture
def system(stage: Stage) -> System[World]:
    """How worlds are made, played and made smaller."""
    return System(draw_world, stage.play, list_smaller, AT_ONCE, _is_for_want_of_time)


async def test_nothing_differs_in_silence(
    stage: Stage, system: System[World], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Each message of each world ends as the modules show, or for a right cause, in bounded time."""
    seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
    notes = choose_notes("addresses", seed)
    first = seed % SEEDS_APART * SEEDS_APART
    noted = await play_all(system, range(first, first + COUNT), notes)
    defects = [each for each in noted if each.ending.is_defect]
    for each in [each for each in defects if each.ending is not Ending.LATE][:3]:
        small = await shrink(system, World.model_validate_json(each.world), each.ending)
        sys.stderr.write(f"\n{each.ending}: {each.why}\n  {small.model_dump_json() if small else 'not again'}\n")
    if notes is not None:
        notes.with_name("addresses.md").write_text(coverage.table(noted, KINDS))
        assert coverage.never_fired(noted, KINDS) == []
    assert [_describe(each) for each in defects] == []
    told, true = await stage.count_drift()
    assert told == true


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
    """Whether messages had not come to rest while others were played."""
    return verdict.ending is Ending.LATE


def _describe(noted: Noted) -> str:
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

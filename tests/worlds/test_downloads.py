"""Worlds of downloads: what comes out is the truth, or a sentence says why it is not.

`make worlds SYSTEM=downloads N=1000 SEED=7` plays many; the suite plays those that are kept, and some new ones.
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
from tests.worlds.downloads import world as worlds
from tests.worlds.downloads.flaws import KINDS
from tests.worlds.downloads.playing import running_stage
from tests.worlds.downloads.world import World
from tests.worlds.playing import Noted, System, choose_notes, play_all, play_one, shrink
from tests.worlds.verdict import Ending, Verdict

COUNT = int(os.environ.get("WORLDS", "64"))
OF_SEVERAL_TABLES = 9
FAMILIES: dict[str, tuple[str, ...]] = {
    "ends": ("filtered", "cap", "cap_with_stride", "goes_on_for_ever", "says_it_ends", "deep_error"),
    "repeats": ("counts_from_1", "clamped", "page_ignored", "cached"),
    "cuts": ("cut_json", "cut_body", "cut_chunks", "gzip_cut"),
}
"""Flaws that show the same promise; of each family so many more worlds are played."""
OF_A_FAMILY = 20
KEPT = sorted((Path(__file__).parent / "downloads" / "kept").glob("*.json"))
SEEDS_APART = 1_000_000

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3_600)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[World]]:
    """API, worker and sources."""
    async with running_stage(settings) as stage:
        yield System(worlds.drawn, stage.play, worlds.smaller, is_for_want_of_time=_is_for_want_of_time)


async def test_nothing_differs_in_silence(system: System[World], request: pytest.FixtureRequest) -> None:
    """Each world ends as its truth, or in a right sentence, in bounded time."""
    seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
    notes = choose_notes("downloads", seed)
    seeds = [seed % SEEDS_APART * SEEDS_APART + number for number in range(COUNT)]
    noted = await play_all(system, seeds, notes)
    defects = [each for each in noted if each.ending.is_defect]
    for each in [each for each in defects if each.ending is not Ending.LATE][:3]:
        small = await shrink(system, World.model_validate_json(each.world), each.ending)
        sys.stderr.write(f"\n{each.ending}: {each.why}\n  {small.model_dump_json() if small else 'not again'}\n")
    if notes is not None:
        notes.with_name("downloads.md").write_text(coverage.table(noted, KINDS))
        assert coverage.never_fired(noted, KINDS) == []
    assert [_told(each) for each in defects] == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
async def test_nothing_of_a_family_differs_in_silence(
    system: System[World], request: pytest.FixtureRequest, family: str
) -> None:
    """Flaws that are rare among all come often enough to be sure."""
    seed = request.config.getoption("randomly_seed") % SEEDS_APART * SEEDS_APART
    drawn = replace(system, draw=lambda number: worlds.drawn(number, FAMILIES[family]))
    noted = await play_all(drawn, range(seed, seed + OF_A_FAMILY))
    assert [_told(each) for each in noted if each.ending.is_defect] == []


async def test_headers_go_to_their_own_source(system: System[World], request: pytest.FixtureRequest) -> None:
    """Each source of a book with several tables is sent its own headers and no others, whatever else goes wrong."""
    seed = request.config.getoption("randomly_seed") % SEEDS_APART * SEEDS_APART
    noted = await play_all(replace(system, draw=worlds.with_headers), range(seed, seed + OF_SEVERAL_TABLES))
    assert {each.choices["rows_from"][2:] for each in noted} == {"as sheets", "as lists", f"as {worlds.SHARED}"}
    assert [_told(each) for each in noted if each.ending.is_defect] == []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_worlds_that_once_went_wrong(system: System[World], path: Path) -> None:
    """The smallest world of each defect that was found, so that it does not come back."""
    noted = await play_one(system, World.model_validate(json.loads(path.read_text())))
    assert not noted.ending.is_defect, _told(noted)


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Whether it did not end, or an answer took too long that was given at once."""
    is_slow = verdict.ending in (Ending.NEEDLESS, Ending.WRONG_CAUSE) and verdict.why.startswith("source_timeout")
    return verdict.ending is Ending.LATE or is_slow


def _told(noted: Noted) -> str:
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

"""Worlds of downloads: what comes out is the truth, or a sentence says why it is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from infra.settings import Settings
from tests.worlds.downloads import world as worlds
from tests.worlds.downloads.flaws import KINDS
from tests.worlds.downloads.playing import running_stage
from tests.worlds.downloads.world import DownloadWorld
from tests.worlds.playing import System, play_all
from tests.worlds.suite import SEEDS_PER_RUN, WorldTests, describe
from tests.worlds.verdict import Ending, Verdict

OF_SEVERAL_TABLES = 9

FAMILIES = {
    "ends": ("filtered", "cap", "cap_with_stride", "goes_on_for_ever", "says_it_ends", "deep_error"),
    "repeats": ("counts_from_1", "clamped", "page_ignored", "cached"),
    "cuts": ("cut_json", "cut_body", "cut_chunks", "gzip_cut"),
}

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3_600)]


@pytest.fixture
async def system(settings: Settings) -> AsyncIterator[System[DownloadWorld]]:
    """API, worker and sources."""
    async with running_stage(settings) as stage:
        yield System(worlds.draw_world, stage.play, worlds.shrink_world, is_for_want_of_time=_is_for_want_of_time)


class TestDownloadWorlds(WorldTests[DownloadWorld]):
    """Each world ends as its truth, or in a right sentence, in bounded time."""

    name = "downloads"
    world = DownloadWorld
    kinds = KINDS
    families = FAMILIES
    count = 24
    family_count = 20

    def draw_family(self, seed: int, family: str) -> DownloadWorld:
        """See base class."""
        return worlds.draw_world(seed, FAMILIES[family])


@pytest.mark.long
async def test_headers_go_to_their_own_source(system: System[DownloadWorld], request: pytest.FixtureRequest) -> None:
    """Each source of a workbook with several tables gets its own headers and no others, whatever else goes wrong."""
    seed = request.config.getoption("randomly_seed") % SEEDS_PER_RUN * SEEDS_PER_RUN
    noted = await play_all(replace(system, draw=worlds.draw_with_headers), range(seed, seed + OF_SEVERAL_TABLES))
    assert {each.choices["rows_from"][2:] for each in noted} == {"as sheets", "as lists", f"as {worlds.SHARED}"}
    assert [describe(each) for each in noted if each.ending.is_defect] == []


def _is_for_want_of_time(verdict: Verdict) -> bool:
    """Return whether a world did not end, or an answer that was sent at once took too long."""
    is_slow = verdict.ending in (Ending.NEEDLESS, Ending.WRONG_CAUSE) and verdict.why.startswith("source_timeout")
    return verdict.ending is Ending.LATE or is_slow

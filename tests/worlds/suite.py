"""The tests of worlds that every system has: `tests/worlds/test_<system>.py` subclasses `WorldTests`.

`make worlds SYSTEM=… N=1000 SEED=7` plays many new worlds; the suite plays those that are kept, and some new ones.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from pydantic import BaseModel

from tests.worlds import coverage
from tests.worlds.flaws import Kind
from tests.worlds.playing import Noted, System, choose_notes, play_all, play_one, shrink
from tests.worlds.verdict import Ending

World = TypeVar("World", bound=Any)

FOLDER = Path(__file__).parent
SEEDS_PER_RUN = 1_000_000
"""The worlds of one seed of a run have seeds that no other run has."""
SHRUNK_MAX = 3
ALL_FLAWS_FROM = 1_000
"""So many worlds draw each flaw of a system at least once, fewer may miss a rare one."""


class WorldTests(Generic[World]):
    """Play worlds of a system. The module of a subclass has a fixture `system`."""

    name: ClassVar[str]
    world: ClassVar[type[BaseModel]]
    kinds: ClassVar[Mapping[str, Kind]]
    families: ClassVar[Mapping[str, Any]]
    """Flaws that show the same promise; a soak plays `family_count` more worlds of each family."""
    count: ClassVar[int]
    """How many new worlds the suite plays; `make worlds` names another number."""
    family_count: ClassVar[int]

    def draw_family(self, seed: int, family: str) -> World:
        """Draw a world of a family."""
        raise NotImplementedError

    def check_fired(self, family: str, fired: set[str]) -> None:
        """Assert that worlds of a family showed what they are for: by default, one of its flaws."""
        assert fired & set(self.families[family])

    def choose_worlds(self, system: System[World], first: int) -> tuple[System[World], Sequence[int]]:
        """Choose the seeds of new worlds from a first seed on, and the system that draws them."""
        count = int(os.environ.get("WORLDS", self.count))
        return system, range(first, first + count)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Repeat tests for each family, and for each world that is kept."""
        if "family" in metafunc.fixturenames:
            metafunc.parametrize("family", self.families)
        if "path" in metafunc.fixturenames:
            paths = sorted((FOLDER / self.name / "kept").glob("*.json"))
            metafunc.parametrize("path", paths, ids=[path.stem for path in paths])

    async def test_nothing_differs_in_silence(self, system: System[World], request: pytest.FixtureRequest) -> None:
        """Each world ends as its truth, or says why it does not, in bounded time."""
        seed = int(os.environ.get("WORLDS_SEED") or request.config.getoption("randomly_seed"))
        notes = choose_notes(self.name, seed)
        chosen, seeds = self.choose_worlds(system, seed % SEEDS_PER_RUN * SEEDS_PER_RUN)
        noted = await play_all(chosen, seeds, notes)
        defects = [each for each in noted if each.ending.is_defect]
        for each in [each for each in defects if each.ending is not Ending.LATE][:SHRUNK_MAX]:
            small = await shrink(system, self.world.model_validate_json(each.world), each.ending)
            sys.stderr.write(f"\n{describe(each)}\n  {small.model_dump_json() if small else 'not again'}\n")
        if notes is not None:
            notes.with_name(f"{self.name}.md").write_text(coverage.table(noted, self.kinds))
            assert len(noted) < ALL_FLAWS_FROM or coverage.never_fired(noted, self.kinds) == []
        assert not defects, "\n".join(map(describe, defects))
        await system.check_all()

    @pytest.mark.soak
    async def test_nothing_of_a_family_differs_in_silence(
        self, system: System[World], request: pytest.FixtureRequest, family: str
    ) -> None:
        """Flaws that are rare among all come often enough to be sure."""
        seed = request.config.getoption("randomly_seed") % SEEDS_PER_RUN * SEEDS_PER_RUN
        drawn = replace(system, draw=lambda number: self.draw_family(number, family))
        noted = await play_all(drawn, range(seed, seed + self.family_count))
        defects = [each for each in noted if each.ending.is_defect]
        assert not defects, "\n".join(map(describe, defects))
        self.check_fired(family, {flaw for each in noted for flaw in each.fired})

    @pytest.mark.long
    async def test_worlds_that_once_went_wrong(self, system: System[World], path: Path) -> None:
        """The smallest world of each defect that was found does not go wrong again."""
        noted = await play_one(system, self.world.model_validate_json(path.read_text()))
        assert not noted.ending.is_defect, describe(noted)


def describe(noted: Noted) -> str:
    """Describe a world that ended wrongly."""
    return f"{noted.ending}, seed {noted.seed}: {noted.why} {noted.world}"

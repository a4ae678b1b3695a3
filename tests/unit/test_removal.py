"""Removals in batches: they go on until nothing is past its time, and end within the time of an activity."""

from __future__ import annotations

import pytest
from temporalio.testing import ActivityEnvironment

from infra import housekeeping
from infra.housekeeping import remove_in_batches_within_time


class Shelf:
    """So many things are past their time."""

    def __init__(self, past: int) -> None:
        self.past = past
        self.limits: list[int] = []

    async def remove(self, limit: int) -> int:
        """Remove some."""
        self.limits.append(limit)
        removed = min(limit, self.past)
        self.past -= removed
        return removed


@pytest.fixture
def beats() -> list[object]:
    """What the activity has told of itself."""
    return []


@pytest.fixture
def environment(beats: list[object]) -> ActivityEnvironment:
    """An activity under way."""
    made = ActivityEnvironment()
    made.on_heartbeat = lambda *_: beats.append(None)
    return made


@pytest.mark.parametrize(("past", "batches"), [(0, 1), (2, 1), (3, 2), (7, 3)])
async def test_all_that_is_past_its_time_goes(
    environment: ActivityEnvironment, beats: list[object], past: int, batches: int
) -> None:
    """A batch that is not full is the last; after each the activity says that it goes on."""
    shelf = Shelf(past)

    assert await environment.run(remove_in_batches_within_time, shelf.remove, 3) == past
    assert shelf.past == 0
    assert shelf.limits == [3] * batches
    assert len(beats) == batches


async def test_a_removal_that_takes_too_long_leaves_the_rest_to_the_next(
    environment: ActivityEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after a batch, well before the activity's time-out, and what it removed counts."""
    monkeypatch.setattr(housekeeping, "LONGEST_SECONDS", 0.0)
    shelf = Shelf(7)

    assert await environment.run(remove_in_batches_within_time, shelf.remove, 3) == 3
    assert shelf.past == 4

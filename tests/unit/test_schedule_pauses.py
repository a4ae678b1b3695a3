"""Pausing a schedule while others steer it, too: the engine heeds the last of several patches that come at once."""

from __future__ import annotations

from typing import cast

import pytest
from temporalio.client import Schedule, ScheduleActionStartWorkflow, ScheduleDescription, ScheduleHandle, ScheduleSpec

from infra import starts


class SteeredByOthers:
    """A schedule whose first patches are overtaken by somebody's trigger."""

    def __init__(self, *, overtaken: int, is_paused: bool) -> None:
        self.notes: list[str] = []
        self._overtaken = overtaken
        self._is_paused = is_paused

    async def pause(self, *, note: str) -> None:
        """Pause it, unless that is overtaken."""
        self._patch(note, is_paused=True)

    async def unpause(self, *, note: str) -> None:
        """Unpause it, unless that is overtaken."""
        self._patch(note, is_paused=False)

    async def describe(self) -> ScheduleDescription:
        """Return what it is."""
        action = ScheduleActionStartWorkflow("Cycle", id="cycle", task_queue="orders")
        described = object.__new__(ScheduleDescription)
        described.schedule = Schedule(action=action, spec=ScheduleSpec())
        described.schedule.state.paused = self._is_paused
        return described

    def _patch(self, note: str, *, is_paused: bool) -> None:
        self.notes.append(note)
        if len(self.notes) > self._overtaken:
            self._is_paused = is_paused


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize(("overtaken", "sent"), [(0, 1), (2, 3)])
async def test_a_patch_that_was_overtaken_is_sent_again(is_paused: bool, overtaken: int, sent: int) -> None:
    """Who pauses or resumes is told what has come of it."""
    schedule = SteeredByOthers(overtaken=overtaken, is_paused=not is_paused)
    described = await starts.set_schedule_paused(cast("ScheduleHandle", schedule), "ann: test", is_paused=is_paused)

    assert described.schedule.state.paused is is_paused
    assert schedule.notes == ["ann: test"] * sent


async def test_one_that_others_steer_all_the_time_is_shown_as_it_is() -> None:
    """It is not tried for ever."""
    schedule = SteeredByOthers(overtaken=99, is_paused=False)
    described = await starts.set_schedule_paused(cast("ScheduleHandle", schedule), "ann: test", is_paused=True)

    assert described.schedule.state.paused is False

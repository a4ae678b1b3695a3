"""Housekeeping: each system removes on its own queue what is past its retention, in batches."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue
from temporalio import activity

WORKFLOW: Final = "HousekeepingWorkflow"
LONGEST_SECONDS: Final = 180.0
"""After this a removal ends, and the next run of the schedule goes on."""


class HousekeepingActivityNamesInput(BaseModel):
    """The activities that a run of housekeeping calls."""

    model_config = ConfigDict(frozen=True)

    activities: tuple[str, ...]
    """Their registered names; they run one after the other."""


class HousekeepingResultsByActivity(BaseModel):
    """What a run of housekeeping removed."""

    removed: dict[str, JsonValue]
    """The result of each activity, by its name."""


def build_schedule_id(system: str) -> str:
    """Return the id of a system's housekeeping schedule; the ids of its runs begin with it."""
    return f"{system}-housekeeping"


async def remove_in_batches_within_time(remove: Callable[[int], Awaitable[int]], batch: int) -> int:
    """Remove in batches until none is left or `LONGEST_SECONDS` are over; return how many were removed.

    Args:
        remove: Removes up to the given number in its own transaction, and returns how many it removed; fewer than
            the given number mean that none is left.
        batch: The number for each call.
    """
    until = time.monotonic() + LONGEST_SECONDS
    removed = 0
    while True:
        count = await remove(batch)
        activity.heartbeat()
        removed += count
        if count < batch or time.monotonic() >= until:
            return removed

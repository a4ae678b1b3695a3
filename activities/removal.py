"""Removing what is past its time, in every system: a batch at a time, and within the time of an activity."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio import activity

LONGEST_SECONDS: Final = 180.0
"""After this a removal ends, and the next run of the schedule goes on: one that outlasts its time-out is lost work."""


async def remove_in_batches(remove: Callable[[int], Awaitable[int]], batch: int) -> int:
    """Remove until nothing is past its time, or the time of one removal is over; returns how many were removed.

    Args:
        remove: Removes at most so many, in a transaction of its own, and says how many it removed; fewer mean that
            no more are past their time.
        batch: How many at a time.
    """
    until = time.monotonic() + LONGEST_SECONDS
    removed = 0
    while True:
        count = await remove(batch)
        activity.heartbeat()
        removed += count
        if count < batch or time.monotonic() >= until:
            return removed

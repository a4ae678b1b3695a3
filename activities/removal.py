"""Removal of rows past their retention, in batches and within the timeout of an activity."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from temporalio import activity

LONGEST_SECONDS: Final = 180.0
"""After this a removal ends, and the next run of the schedule goes on."""


async def remove_in_batches(remove: Callable[[int], Awaitable[int]], batch: int) -> int:
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

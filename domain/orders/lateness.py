"""Lateness: what a second, delayed reading says about how long orders take to show up."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

MARGIN: Final = 1.5
GRAIN_SECONDS: Final = 10
REMEMBERED: Final = timedelta(days=7)
"""What was late longer ago proposes nothing any more."""


def seconds(modified_at: datetime, read_at: datetime) -> float:
    """How old an order was, by the platform's clock, when the first reading still missed it."""
    return max(0.0, (read_at - modified_at).total_seconds())


def proposal(settle_lag_seconds: int, oldest: float | None) -> int | None:
    """A settle_lag that would have caught what was late, with a margin; none where the one in force does.

    Args:
        settle_lag_seconds: The lag in force.
        oldest: How old the oldest order was that had not shown up in time; None where all had.
    """
    if oldest is None or oldest < settle_lag_seconds:
        return None
    wanted = max(oldest * MARGIN, settle_lag_seconds + GRAIN_SECONDS)
    return math.ceil(wanted / GRAIN_SECONDS) * GRAIN_SECONDS

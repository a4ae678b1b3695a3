"""Lateness: what a second, delayed reading says about how long orders take to show up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Final

MARGIN: Final = 1.5
GRAIN_SECONDS: Final = 10


def seconds(modified_at: datetime, read_at: datetime) -> float:
    """How old an order was, by the platform's clock, when the first reading still missed it."""
    return max(0.0, (read_at - modified_at).total_seconds())


def proposal(settle_lag_seconds: int, missed: Iterable[float]) -> int | None:
    """A settle_lag that would have caught what was missed, with a margin; none where nothing was."""
    oldest = max(missed, default=0.0)
    if not oldest:
        return None
    wanted = max(oldest * MARGIN, settle_lag_seconds + GRAIN_SECONDS)
    return math.ceil(wanted / GRAIN_SECONDS) * GRAIN_SECONDS

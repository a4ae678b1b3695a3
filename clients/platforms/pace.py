"""The time of one attempt: how long it may wait for its turn, and when it is over."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final, Self

from clients.platforms.permits import PATIENCE_SECONDS

WAITING_SHARE: Final = 0.5
READING_SHARE: Final = 0.9
"""After so much of its time an attempt stops by itself: what it was told is kept, and the next one goes on there."""


@dataclass(slots=True)
class Pace:
    """What is left.

    Args:
        patience_seconds: What to wait here at most, all in all; a longer wait is told, so that it is a timer elsewhere.
        until: When to stop, by the clock of the event loop.
    """

    patience_seconds: float = PATIENCE_SECONDS
    until: float = math.inf

    @classmethod
    def within(cls, timeout_seconds: float) -> Self:
        """For an attempt that is ended after so long."""
        now = asyncio.get_running_loop().time()
        return cls(timeout_seconds * WAITING_SHARE, now + timeout_seconds * READING_SHARE)

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return asyncio.get_running_loop().time() >= self.until

    def spend(self, seconds: float) -> None:
        """Note that so long was waited."""
        self.patience_seconds = max(0.0, self.patience_seconds - seconds)

"""The time of one attempt: how long it may wait for its turn, and when it is over."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Final, Self

from clients.platforms.permits import PATIENCE_SECONDS

WAITING_SHARE: Final = 0.5
READING_SHARE: Final = 0.9
"""Share of its time after which an attempt stops by itself: its answers are stored, and the next one continues."""


@dataclass(slots=True)
class Pace:
    """The time budget of an attempt.

    Args:
        patience_seconds: Limit of all waits together; a longer one is left to a timer of the workflow.
        until: When to stop, by the clock of the event loop.
    """

    patience_seconds: float = PATIENCE_SECONDS
    until: float = math.inf

    @classmethod
    def within(cls, timeout_seconds: float) -> Self:
        """Build the budget of an attempt with this timeout."""
        now = asyncio.get_running_loop().time()
        return cls(timeout_seconds * WAITING_SHARE, now + timeout_seconds * READING_SHARE)

    @property
    def is_over(self) -> bool:
        """Whether it is time to stop."""
        return asyncio.get_running_loop().time() >= self.until

    def spend(self, seconds: float) -> None:
        """Subtract a wait from the patience."""
        self.patience_seconds = max(0.0, self.patience_seconds - seconds)

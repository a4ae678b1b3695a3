"""The platform's clock: it stops, runs at any speed, or follows the real one at a distance."""

from __future__ import annotations

import time
from typing import Final

MICRO: Final = 1_000_000


class Clock:
    """Microseconds since 1970, virtual."""

    def __init__(self, start_us: int, speed: float) -> None:
        self._zero = time.monotonic()
        self._start_us = start_us
        self._speed = speed

    def now_us(self) -> int:
        """The time."""
        return self._start_us + int((time.monotonic() - self._zero) * self._speed * MICRO)

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._start_us += int(seconds * MICRO)

    def run(self, speed: float) -> None:
        """Go on at another speed."""
        self._start_us, self._zero, self._speed = self.now_us(), time.monotonic(), speed

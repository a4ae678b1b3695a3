"""What is checked before a platform answers: its rate, by a real clock, its tokens, and the faults it was asked for."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from sims.platforms.scenario import Limits, PlatformFaults

DAY_SECONDS: Final = 86_400.0


class Mishap(Enum):
    """What goes wrong with an answer."""

    ERROR = auto()
    RESET = auto()
    BUSY = auto()


class Throttle:
    """Lets through `burst + per_second × t` requests in any t seconds, and not one more."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._full_at = 0.0
        self._day: list[float] = []
        self.times: list[float] = []
        """When each request came that counted, in seconds of a monotonic clock."""
        self.refused = 0

    def wait_seconds(self) -> float:
        """0 where a request may pass, which counts it; else when the next one may."""
        now, rate = time.monotonic(), self._limits.per_second
        self.times.append(now)
        wait = 0.0
        if self._limits.per_day is not None:
            self._day = [each for each in self._day if each > now - DAY_SECONDS]
            if len(self._day) >= self._limits.per_day:
                wait = self._day[0] + DAY_SECONDS - now
        if not wait and rate is not None:
            full_at = max(now, self._full_at) + 1 / rate
            # Rounded: what floats lose must not refuse the first of all.
            wait = round(max(0.0, full_at - now - self._limits.burst / rate), 6)
            if not wait:
                self._full_at = full_at
        if wait:
            self.refused += 1
        else:
            self._day.append(now)
        return wait


@dataclass(slots=True)
class Tokens:
    """The account's tokens: each is valid for a number of requests."""

    faults: PlatformFaults
    issues: bool = False
    """Whether those alone are good that its token end point has given out."""
    generation: int = 1
    used: int = 0
    issued: dict[str, float] = field(default_factory=dict)
    """Until when each is good, by a monotonic clock."""

    def issue(self) -> str:
        """Another one, beside those given out before."""
        token = f"access-{len(self.issued) + 1}-{random.SystemRandom().randrange(10**9)}"
        self.issued[token] = time.monotonic() + (self.faults.token_seconds or math.inf)
        return token

    @property
    def good(self) -> str:
        """The one that is good now."""
        return f"token-of-this-shop-{self.generation}"

    def admits(self, token: str) -> bool:
        """Whether a request with this token passes, which uses it."""
        is_good = self.issued.get(token, 0.0) > time.monotonic() if self.issues else token == self.good
        if self.faults.token_dead or not is_good:
            return False
        self.used += 1
        if self.faults.token_requests is not None and self.used > self.faults.token_requests:
            self.generation, self.used = self.generation + 1, 0
            self.issued.pop(token, None)
            return False
        return True


class Mishaps:
    """Which answers go wrong, by seed."""

    def __init__(self, seed: int, faults: PlatformFaults) -> None:
        self._chance = random.Random(f"mishaps {seed}")
        self._faults = faults
        self.happened = 0

    def draw(self) -> Mishap | None:
        """What goes wrong with the next answer."""
        faults, at = self._faults, self._chance.random()
        if faults.only_first is not None and self.happened >= faults.only_first:
            return None
        for share, mishap in ((faults.errors, Mishap.ERROR), (faults.resets, Mishap.RESET), (faults.busy, Mishap.BUSY)):
            if at < share:
                self.happened += 1
                return mishap
            at -= share
        return None

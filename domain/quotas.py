"""Quotas: whether a window takes more and whether a slot is free, judged from what was taken before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

GRAINS: Final = 60
"""In how many steps what was spent in a window comes back: so many rows a bucket has at most."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def returns_at(now: datetime, window_seconds: float) -> datetime:
    """When what is spent now comes back: never early, and late by a grain at most."""
    window = timedelta(seconds=window_seconds)
    grain = max(window // GRAINS, timedelta.resolution)
    grains = -((_EPOCH - now) // grain)
    return _EPOCH + grains * grain + window


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a demand was met, and what is left.

    `reset_seconds` tells a refused one when it would be met if nobody takes anything meanwhile, and an allowed one for
    how long no more than `remaining` is there.
    """

    allowed: bool
    remaining: int
    reset_seconds: float


@dataclass(frozen=True, slots=True)
class Spent:
    """An amount that is gone until a moment."""

    amount: int
    returns_at: datetime


@dataclass(frozen=True, slots=True)
class Booking:
    """An amount that is gone whatever the limit, because its size showed only afterwards."""

    bucket: str
    amount: int
    window_seconds: float


@dataclass(frozen=True, slots=True)
class Held:
    """A slot that somebody holds."""

    holder: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Rate:
    """An amount out of a bucket that gets everything back one window after it was spent.

    So that no window whatever, wherever it begins, sees more than `limit`: a bucket that refills steadily would let
    twice as much through. An amount of 0 spends nothing and asks whether anything is left.
    """

    bucket: str
    amount: int
    limit: int
    window_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.amount <= self.limit or self.limit < 1:
            raise ValueError(f"{self.amount} out of {self.bucket}, which holds {self.limit}: it would never be met")

    def fits(self, before: Sequence[Spent]) -> bool:
        """Whether it can be spent now, after what has not come back yet."""
        return self._used(before) + max(self.amount, 1) <= self.limit

    def verdict(self, now: datetime, spent: Sequence[Spent], *, allowed: bool) -> Verdict:
        """What to tell about it; `spent` counts its own amount when it was taken."""
        return Verdict(
            allowed=allowed,
            remaining=max(0, self.limit - self._used(spent)),
            reset_seconds=self._return_seconds(now, spent) if allowed else self._wait_seconds(now, spent),
        )

    def _return_seconds(self, now: datetime, spent: Sequence[Spent]) -> float:
        first = min((each.returns_at for each in spent), default=None)
        return self.window_seconds if first is None else (first - now).total_seconds()

    def _wait_seconds(self, now: datetime, spent: Sequence[Spent]) -> float:
        rest = sorted(spent, key=lambda each: each.returns_at)
        fits_at = now
        while not self.fits(rest):
            fits_at, rest = rest[0].returns_at, rest[1:]
        return (fits_at - now).total_seconds()

    @staticmethod
    def _used(spent: Sequence[Spent]) -> int:
        return sum(each.amount for each in spent)


@dataclass(frozen=True, slots=True)
class Slot:
    """One of a number of slots, for a holder; who holds one already gets no second."""

    key: str
    holder: str
    limit: int
    ttl_seconds: float

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"{self.limit} slots of {self.key}: nobody would ever get one")

    def is_held(self, before: Sequence[Held]) -> bool:
        """Whether the holder has its slot already."""
        return any(each.holder == self.holder for each in before)

    def fits(self, before: Sequence[Held]) -> bool:
        """Whether the holder may have a slot beside those who hold one now."""
        return self.is_held(before) or len(before) < self.limit

    def verdict(self, now: datetime, held: Sequence[Held], *, allowed: bool) -> Verdict:
        """What to tell about it: slots come back when their holders end, at the latest when they expire."""
        first = min((each.expires_at for each in held), default=now)
        return Verdict(
            allowed=allowed,
            remaining=max(0, self.limit - len(held)),
            reset_seconds=(first - now).total_seconds(),
        )

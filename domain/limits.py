"""Limits: whether a window of time takes more, whether a slot is free, and how processes share permits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, auto
from typing import Final

WINDOW_STEPS: Final = 60
"""The number of steps in which spent amounts return to a window; also the most rows that a bucket has."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compute_time_when_spent_amount_returns(now: datetime, window_seconds: float) -> datetime:
    """Return when an amount that is spent now is available again: never early, and late by one step at most."""
    window = timedelta(seconds=window_seconds)
    step = max(window // WINDOW_STEPS, timedelta.resolution)
    steps = -((_EPOCH - now) // step)
    return _EPOCH + steps * step + window


@dataclass(frozen=True, slots=True)
class LimitDecision:
    """Whether a demand was met, and what is left.

    `reset_seconds` says of a refused demand when it would be met if no one else takes anything, and of an allowed one
    for how long there is no more than `remaining`.
    """

    allowed: bool
    remaining: int
    reset_seconds: float
    used: int = 0
    """More than the limit where it was lowered, or where a size was known only afterwards."""
    newly_held_until: datetime | None = None
    """When the slot that the holder got by this demand expires; None if it had the slot before, or got none."""


@dataclass(frozen=True, slots=True)
class SpentAmount:
    """An amount that is unavailable until a time."""

    amount: int
    returns_at: datetime


@dataclass(frozen=True, slots=True)
class UncheckedSpending:
    """An amount that is spent even beyond the limit, because its size was only known afterwards."""

    bucket: str
    amount: int
    window_seconds: float


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot and who holds it until when."""

    holder: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class RateDemand:
    """A demand for an amount from a bucket, where each amount returns one window after it was spent.

    So no window, wherever it begins, sees more than `limit`; a bucket that refills steadily would let twice as much
    through. An amount of 0 spends nothing and asks whether anything is left.
    """

    bucket: str
    amount: int
    limit: int
    window_seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.amount <= self.limit or self.limit < 1:
            raise ValueError(f"{self.amount} out of {self.bucket}, which holds {self.limit}: it would never be met")

    def fits(self, spent: Sequence[SpentAmount]) -> bool:
        """Return whether the demand can be met beside what is spent."""
        return self._sum_amounts(spent) + max(self.amount, 1) <= self.limit

    def build_decision(self, now: datetime, spent: Sequence[SpentAmount], *, allowed: bool) -> LimitDecision:
        """Return the decision for the caller; `spent` includes its own amount if that was taken."""
        return LimitDecision(
            allowed=allowed,
            remaining=max(0, self.limit - self._sum_amounts(spent)),
            used=self._sum_amounts(spent),
            reset_seconds=self._compute_seconds_until_first_return(now, spent)
            if allowed
            else self._compute_seconds_until_fit(now, spent),
        )

    def _compute_seconds_until_first_return(self, now: datetime, spent: Sequence[SpentAmount]) -> float:
        first = min((each.returns_at for each in spent), default=None)
        return self.window_seconds if first is None else (first - now).total_seconds()

    def _compute_seconds_until_fit(self, now: datetime, spent: Sequence[SpentAmount]) -> float:
        rest = sorted(spent, key=lambda each: each.returns_at)
        fits_at = now
        while not self.fits(rest):
            fits_at, rest = rest[0].returns_at, rest[1:]
        return (fits_at - now).total_seconds()

    @staticmethod
    def _sum_amounts(spent: Sequence[SpentAmount]) -> int:
        return sum(each.amount for each in spent)


@dataclass(frozen=True, slots=True)
class SlotDemand:
    """A demand for one of a number of slots; a holder that has one already gets no second."""

    key: str
    holder: str
    limit: int
    ttl_seconds: float

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"{self.limit} slots of {self.key}: the demand would never be met")

    def is_held(self, held: Sequence[HeldSlot]) -> bool:
        """Return whether the holder has a slot already."""
        return any(each.holder == self.holder for each in held)

    def fits(self, held: Sequence[HeldSlot]) -> bool:
        """Return whether the holder may have a slot beside the present holders."""
        return self.is_held(held) or len(held) < self.limit

    def compute_expiry(self, now: datetime) -> datetime:
        """Return when a slot that is taken now expires."""
        return now + timedelta(seconds=self.ttl_seconds)

    def build_decision(self, now: datetime, held: Sequence[HeldSlot], *, allowed: bool) -> LimitDecision:
        """Return the decision for the caller: a slot is free when its holder releases it, or when it expires."""
        first = min((each.expires_at for each in held), default=now)
        return LimitDecision(
            allowed=allowed,
            remaining=max(0, self.limit - len(held)),
            used=len(held),
            reset_seconds=(first - now).total_seconds(),
        )


@dataclass(frozen=True, slots=True)
class PermitClaim:
    """What a process holds, how much it could use, and since when it has held something, or nothing."""

    holder: str
    permits: int
    demand: int
    since: datetime

    def with_permits(self, permits: int, now: datetime) -> PermitClaim:
        """Return the claim of the same process with another number of permits."""
        changes = (self.permits > 0) != (permits > 0)
        return PermitClaim(self.holder, permits, self.demand, now if changes else self.since)


@dataclass(frozen=True, slots=True)
class UsableAndHeldPermits:
    """What a process may use from now on, and what it holds until its present use falls to that."""

    usable: int
    permits: int


@dataclass(frozen=True, slots=True)
class FairPermitAllocation:
    """Divide a number of permits among processes, so that each gets its part and none waits for ever.

    Args:
        limit: The number of permits.
        turn: How long a process keeps a permit before it is taken for one that has none.
        now: The time.
    """

    limit: int
    turn: timedelta
    now: datetime

    def compute_share(self, own: PermitClaim, others: Sequence[PermitClaim]) -> UsableAndHeldPermits:
        """Return the share of one process; `own.permits` is what it may be using at this moment and so keeps.

        Free permits go in order to the processes that have less than their part, so that none takes what another waits
        for. While more permits are in use than there are, nothing new begins.
        """
        claims = [own, *others]
        fair = self.divide_fairly(claims)
        free = self.limit - sum(claim.permits for claim in claims)
        lacking = {claim.holder: fair[claim.holder] - claim.permits for claim in claims}
        gain = self._deal_permits_in_rounds(claims, lacking, free)[own.holder] if free > 0 else free
        usable = max(0, min(fair[own.holder], own.permits + gain))
        return UsableAndHeldPermits(usable=usable, permits=max(usable, own.permits))

    def divide_fairly(self, claims: Sequence[PermitClaim]) -> dict[str, int]:
        """Divide all permits into equal parts; what one process does not need goes to the others.

        With fewer permits than processes, the processes take turns.
        """
        return self._deal_permits_in_rounds(claims, {claim.holder: claim.demand for claim in claims}, self.limit)

    def _deal_permits_in_rounds(
        self, claims: Sequence[PermitClaim], demands: Mapping[str, int], amount: int
    ) -> dict[str, int]:
        """Deal one permit to each process that needs another, round after round."""
        dealt = dict.fromkeys(demands, 0)
        order = [claim.holder for claim in sorted(claims, key=self._compute_rank)]
        while needing := [holder for holder in order if dealt[holder] < demands[holder]][:amount]:
            for holder in needing:
                dealt[holder] += 1
            amount -= len(needing)
        return dealt

    def _compute_rank(self, claim: PermitClaim) -> tuple[_PermitPriority, float, str]:
        """The longest waiting process gets a permit first; the one that holds permits longest loses one first."""
        seconds = claim.since.timestamp()
        if not claim.permits:
            return (_PermitPriority.WAITING, seconds, claim.holder)
        rank = _PermitPriority.IN_TURN if self.now - claim.since < self.turn else _PermitPriority.TURN_OVER
        return (rank, -seconds, claim.holder)


class _PermitPriority(IntEnum):
    IN_TURN = auto()
    WAITING = auto()
    TURN_OVER = auto()

"""Sharing: how processes divide a limited number of permits, so that each gets its part and none waits for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum, auto


@dataclass(frozen=True, slots=True)
class Claim:
    """What a process holds, what it could use, and since when it has held something, or nothing."""

    holder: str
    permits: int
    demand: int
    since: datetime

    def holding(self, permits: int, now: datetime) -> Claim:
        """The same process with so many permits."""
        flips = (self.permits > 0) != (permits > 0)
        return Claim(self.holder, permits, self.demand, now if flips else self.since)


@dataclass(frozen=True, slots=True)
class Share:
    """What a process may use from now on, and what stays written down as its own until it has no more in use."""

    usable: int
    permits: int


@dataclass(frozen=True, slots=True)
class Table:
    """Where permits are divided.

    Args:
        limit: How many there are.
        turn: How long who got one keeps it before others that have none.
        now: The time.
    """

    limit: int
    turn: timedelta
    now: datetime

    def share(self, mine: Claim, others: Sequence[Claim]) -> Share:
        """My share. `mine.permits` is what I may have in use at this moment, which nobody can take from me.

        What is free goes to those who lack some of their part, in order, so that nobody takes what another waits for.
        Should more be in use than there is, nothing new begins.
        """
        claims = [mine, *others]
        fair = self.divide(claims)
        free = self.limit - sum(claim.permits for claim in claims)
        lacking = {claim.holder: fair[claim.holder] - claim.permits for claim in claims}
        gain = self._deal(claims, lacking, free)[mine.holder] if free > 0 else free
        usable = max(0, min(fair[mine.holder], mine.permits + gain))
        return Share(usable=usable, permits=max(usable, mine.permits))

    def divide(self, claims: Sequence[Claim]) -> dict[str, int]:
        """Equal parts, and what one does not need goes to the others.

        Where there are fewer permits than processes, these take turns.
        """
        return self._deal(claims, {claim.holder: claim.demand for claim in claims}, self.limit)

    def _deal(self, claims: Sequence[Claim], wanted: Mapping[str, int], amount: int) -> dict[str, int]:
        """One permit to each who wants another, round after round."""
        dealt = dict.fromkeys(wanted, 0)
        order = [claim.holder for claim in sorted(claims, key=self._place)]
        while hungry := [holder for holder in order if dealt[holder] < wanted[holder]][:amount]:
            for holder in hungry:
                dealt[holder] += 1
            amount -= len(hungry)
        return dealt

    def _place(self, claim: Claim) -> tuple[_Rank, float, str]:
        """Who waits longest is the first to get something, and who holds longest the first to lose it."""
        seconds = claim.since.timestamp()
        if not claim.permits:
            return (_Rank.WAITING, seconds, claim.holder)
        rank = _Rank.IN_TURN if self.now - claim.since < self.turn else _Rank.TURN_OVER
        return (rank, -seconds, claim.holder)


class _Rank(IntEnum):
    IN_TURN = auto()
    WAITING = auto()
    TURN_OVER = auto()

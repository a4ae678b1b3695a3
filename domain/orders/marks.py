"""Marks: how far a platform is claimed, up to where it is complete, and the holes between.

History and present are claimed side by side, so that a platform that begins three months ago is up to date at once:

    starts_at ── history_to ┄┄ unclaimed ┄┄ live_from ── claimed_to

Whatever is claimed is open until it is read and confirmed, or skipped with a reason. The first open slice holds
`complete_to` back, and since slices are never forgotten, no later success can hide it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.orders import windows
from domain.orders.windows import Window


class Track(StrEnum):
    """Which way a slice was claimed."""

    LIVE = "live"
    HISTORY = "history"


class Claim(BaseModel):
    """One slice that was claimed."""

    model_config = ConfigDict(frozen=True)

    window: Window
    track: Track


class Marks(BaseModel):
    """How far a platform is claimed. `claimed_to` and `complete_to` only ever grow."""

    model_config = ConfigDict(frozen=True)

    starts_at: AwareDatetime
    history_to: AwareDatetime
    live_from: AwareDatetime
    claimed_to: AwareDatetime
    complete_to: AwareDatetime

    @classmethod
    def first(cls, starts_at: datetime, horizon: datetime, interval_seconds: int) -> Self:
        """Where claiming begins: at the newest whole interval, and at the beginning."""
        intervals = max(0, (horizon - starts_at) // timedelta(seconds=interval_seconds) - 1)
        live_from = starts_at + intervals * timedelta(seconds=interval_seconds)
        return cls(
            starts_at=starts_at,
            history_to=starts_at,
            live_from=live_from,
            claimed_to=live_from,
            complete_to=starts_at,
        )

    @property
    def unclaimed(self) -> Window | None:
        """History that nobody has claimed yet."""
        if self.history_to >= self.live_from:
            return None
        return Window(start=self.history_to, end=self.live_from)

    def claim(self, horizon: datetime, interval_seconds: int, most: Mapping[Track, int]) -> tuple[Self, list[Claim]]:
        """The next slices, those of the present first, and the marks after that.

        Args:
            horizon: Up to when the platform's orders have settled, by its own clock.
            interval_seconds: The length of a slice.
            most: How many slices of each track at most, so that history that waits does not keep the present out.
        """
        live = windows.consecutive(self.claimed_to, horizon, interval_seconds, most[Track.LIVE])
        history = windows.clipped(self.history_to, self.live_from, interval_seconds, most[Track.HISTORY])
        moved = self.model_copy(
            update={
                "claimed_to": live[-1].end if live else self.claimed_to,
                "history_to": history[-1].end if history else self.history_to,
            }
        )
        claims = [Claim(window=window, track=Track.LIVE) for window in live]
        return moved, claims + [Claim(window=window, track=Track.HISTORY) for window in history]

    def completed(self, first_open: datetime | None) -> Self:
        """The marks when *first_open* is where the first open slice begins."""
        limit = self.claimed_to if self.unclaimed is None else self.history_to
        reached = limit if first_open is None else min(first_open, limit)
        return self.model_copy(update={"complete_to": max(self.complete_to, reached)})


def holes(marks: Marks, unfinished: Iterable[Window]) -> list[Window]:
    """What lies between `complete_to` and `claimed_to` and is not read: joined where it touches, oldest first."""
    unclaimed = [marks.unclaimed] if marks.unclaimed else []
    found: list[Window] = []
    for window in sorted(chain(unfinished, unclaimed), key=lambda each: each.start):
        if found and window.start <= found[-1].end:
            found[-1] = Window(start=found[-1].start, end=max(found[-1].end, window.end))
        else:
            found.append(window)
    return found

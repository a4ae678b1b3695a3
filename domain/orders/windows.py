"""Windows of time: slices that follow each other without a gap, what is requested beyond their edges, and watermarks.

History and present are claimed side by side, so that a platform that begins three months ago is up to date at once:

    starts_at ── history_to ┄┄ unclaimed ┄┄ live_from ── claimed_to

Whatever is claimed is open until it is read and confirmed, or skipped with a reason. The first open slice holds
`complete_to` back, and since slices are never deleted, no later success can hide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

SECOND: Final = timedelta(seconds=1)
_STAMP: Final = "%Y%m%dT%H%M%SZ"


class TimeWindow(BaseModel):
    """A time of whole seconds; its start is included, its end is not."""

    model_config = ConfigDict(frozen=True)

    start: AwareDatetime
    end: AwareDatetime

    @model_validator(mode="after")
    def _require_nonempty_whole_seconds(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"a window from {self.start} to {self.end} holds no time; its end must be later")
        if self.start.microsecond or self.end.microsecond:
            raise ValueError(f"a window from {self.start} to {self.end} begins or ends within a second")
        return self

    def __str__(self) -> str:
        return f"{format_time_in_id(self.start)}:{format_time_in_id(self.end)}"

    @property
    def duration(self) -> timedelta:
        """Its duration."""
        return self.end - self.start

    def contains(self, moment: datetime) -> bool:
        """Return whether a moment lies within the window."""
        return self.start <= moment < self.end

    def with_overlap(
        self, overlap_seconds: int, longest_seconds: float | None = None, least_seconds: float = 1
    ) -> TimeWindow:
        """Return the window that is requested: it repeats the end of the one before, at most its own length of it.

        Where the platform limits the length of a query, a window that was claimed before the overlap was made longer
        repeats only as much as the limit leaves. One that is shorter than the platform takes repeats as much as it
        lacks.
        """
        earlier = min(timedelta(seconds=overlap_seconds), self.duration)
        earlier = max(earlier, timedelta(seconds=math.ceil(least_seconds)) - self.duration)
        if longest_seconds is not None:
            room = timedelta(seconds=longest_seconds) - self.duration
            earlier = max(timedelta(), min(earlier, room // SECOND * SECOND))
        return TimeWindow(start=self.start - earlier, end=self.end)

    def is_longer_than(self, longest_seconds: float | None) -> bool:
        """Return whether a platform with this limit would refuse the window."""
        return longest_seconds is not None and self.duration > timedelta(seconds=longest_seconds)

    def split_in_halves(self, least_seconds: float = 1) -> tuple[TimeWindow, TimeWindow] | None:
        """Return the two halves of the window; None where they would be too short to be requested."""
        middle = self.start + timedelta(seconds=self.duration // SECOND // 2)
        if min(middle - self.start, self.end - middle) < max(SECOND, timedelta(seconds=least_seconds)):
            return None
        return TimeWindow(start=self.start, end=middle), TimeWindow(start=middle, end=self.end)


def format_time_in_id(moment: datetime) -> str:
    """Format a moment as in the ids of slices."""
    return moment.astimezone(UTC).strftime(_STAMP)


def parse_slice_id(slice_id: str) -> TimeWindow:
    """Parse a slice's id; raises ValueError with a message for users."""
    start, _, end = slice_id.partition(":")
    try:
        first, last = (datetime.strptime(each, _STAMP).replace(tzinfo=UTC) for each in (start, end))
    except ValueError:
        raise ValueError(
            f"“{slice_id[:60]}” is no slice's id; send its start and end in UTC, "
            "like 20261120T100000Z:20261120T101000Z."
        ) from None
    if first >= last:
        raise ValueError(
            f"“{slice_id[:60]}” is no slice's id, because its end is not after its start; send a later end."
        )
    return TimeWindow(start=first, end=last)


def floor_to_second(moment: datetime) -> datetime:
    """Return the start of the second that a moment lies in."""
    return moment.astimezone(UTC).replace(microsecond=0)


def split_into_whole_slices(start: datetime, until: datetime, interval_seconds: int, most: int) -> list[TimeWindow]:
    """Return the next slices after a moment, each of the whole interval, none ending after *until*."""
    interval = timedelta(seconds=interval_seconds)
    found: list[TimeWindow] = []
    while len(found) < most and start + interval <= until:
        found.append(TimeWindow(start=start, end=start + interval))
        start += interval
    return found


def split_into_slices(start: datetime, until: datetime, interval_seconds: int, most: int) -> list[TimeWindow]:
    """Return the next slices up to *until*; the last one may be shorter."""
    found = split_into_whole_slices(start, until, interval_seconds, most)
    rest = found[-1].end if found else start
    if len(found) < most and rest < until:
        found.append(TimeWindow(start=rest, end=until))
    return found


FEW_SLICES: Final = 8
"""Up to as many waiting slices are read one by one."""
_SLICES_PER_READING_MAX: Final = 16
_ORDERS_PER_READING: Final = 10_000


class SlicesPerReadingAndReadingsMax(NamedTuple):
    """How many slices one reading takes, and how many readings are begun."""

    slices: int
    readings_max: int | None = None


def plan_slices_per_reading(waiting: int, sizes: Sequence[int], threads: int) -> SlicesPerReadingAndReadingsMax:
    """Return how many of the waiting slices one reading takes.

    A workflow of its own costs more than to read a few hundred orders. Of the first slices of a platform only some are
    begun: they show how many orders the others may have. There are enough readings for two workers.

    Args:
        sizes: Orders of the slices that were read last.
        threads: How many slices each worker reads at a time.
    """
    if waiting <= FEW_SLICES:
        return SlicesPerReadingAndReadingsMax(1)
    if not sizes:
        return SlicesPerReadingAndReadingsMax(1, max(FEW_SLICES // 2, 2 * threads))
    slices = min(_SLICES_PER_READING_MAX, _ORDERS_PER_READING // max(1, *sizes), -(-waiting // (2 * threads)))
    return SlicesPerReadingAndReadingsMax(max(1, slices))


class LiveOrHistory(StrEnum):
    """Whether a slice was claimed as new orders came, or on the way back through the history."""

    LIVE = "live"
    HISTORY = "history"


class SliceClaim(BaseModel):
    """One slice that was claimed."""

    model_config = ConfigDict(frozen=True)

    window: TimeWindow
    track: LiveOrHistory


class Watermarks(BaseModel):
    """How far a platform is claimed and complete; `claimed_to` and `complete_to` never decrease."""

    model_config = ConfigDict(frozen=True)

    starts_at: AwareDatetime
    history_to: AwareDatetime
    live_from: AwareDatetime
    claimed_to: AwareDatetime
    complete_to: AwareDatetime

    @classmethod
    def create_first(cls, starts_at: datetime, horizon: datetime, interval_seconds: int) -> Self:
        """Return the watermarks before the first claim: live slices begin at the newest whole interval."""
        # The newest whole interval is the first live slice, so history is made of whole intervals, too.
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
    def unclaimed_history(self) -> TimeWindow | None:
        """The part of history that is not claimed yet."""
        if self.history_to >= self.live_from:
            return None
        return TimeWindow(start=self.history_to, end=self.live_from)

    def claim_next_slices(
        self, horizon: datetime, interval_seconds: int, most: Mapping[LiveOrHistory, int]
    ) -> tuple[Self, list[SliceClaim]]:
        """Return the watermarks after the next claim, and the slices that it claims, live ones first.

        Args:
            horizon: Up to when the platform's orders have settled, by its own clock.
            interval_seconds: The length of a slice.
            most: Limit of slices by track, so that waiting history does not keep the present out.
        """
        live = split_into_whole_slices(self.claimed_to, horizon, interval_seconds, most[LiveOrHistory.LIVE])
        history = split_into_slices(self.history_to, self.live_from, interval_seconds, most[LiveOrHistory.HISTORY])
        moved = self.model_copy(
            update={
                "claimed_to": live[-1].end if live else self.claimed_to,
                "history_to": history[-1].end if history else self.history_to,
            }
        )
        claims = [SliceClaim(window=window, track=LiveOrHistory.LIVE) for window in live]
        return moved, claims + [SliceClaim(window=window, track=LiveOrHistory.HISTORY) for window in history]

    def with_complete_to_before_first_unfinished(self, first_unfinished: datetime | None) -> Self:
        """Return the watermarks when the first unfinished slice begins at *first_unfinished*."""
        limit = self.claimed_to if self.unclaimed_history is None else self.history_to
        reached = limit if first_unfinished is None else min(first_unfinished, limit)
        return self.model_copy(update={"complete_to": max(self.complete_to, reached)})


def find_incomplete_windows(marks: Watermarks, unfinished: Iterable[TimeWindow]) -> list[TimeWindow]:
    """Return the windows between `complete_to` and `claimed_to` that are not read, merged and oldest first."""
    unclaimed = [marks.unclaimed_history] if marks.unclaimed_history else []
    found: list[TimeWindow] = []
    for window in sorted(chain(unfinished, unclaimed), key=lambda each: each.start):
        if found and window.start <= found[-1].end:
            found[-1] = TimeWindow(start=found[-1].start, end=max(found[-1].end, window.end))
        else:
            found.append(window)
    return found

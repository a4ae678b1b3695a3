"""Windows of time: slices that follow each other without a gap, and what is requested beyond their edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, model_validator

SECOND: Final = timedelta(seconds=1)
_STAMP: Final = "%Y%m%dT%H%M%SZ"


class TimeWindow(BaseModel):
    """A time of whole seconds; its start is included, its end is not."""

    model_config = ConfigDict(frozen=True)

    start: AwareDatetime
    end: AwareDatetime

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.start >= self.end:
            raise ValueError(f"a window from {self.start} to {self.end} holds no time; its end must be later")
        if self.start.microsecond or self.end.microsecond:
            raise ValueError(f"a window from {self.start} to {self.end} begins or ends within a second")
        return self

    def __str__(self) -> str:
        return f"{format_stamp(self.start)}:{format_stamp(self.end)}"

    @property
    def length(self) -> timedelta:
        """Its duration."""
        return self.end - self.start

    def contains(self, moment: datetime) -> bool:
        """Return whether a moment lies within the window."""
        return self.start <= moment < self.end

    def with_overlap(self, overlap_seconds: int, longest_seconds: float | None = None) -> TimeWindow:
        """Return the window that is requested: it repeats the end of the one before, at most its own length of it.

        Where the platform limits the length of a query, a window that was claimed before the overlap was made longer
        repeats only as much as the limit leaves.
        """
        earlier = min(timedelta(seconds=overlap_seconds), self.length)
        if longest_seconds is not None:
            room = timedelta(seconds=longest_seconds) - self.length
            earlier = max(timedelta(), min(earlier, room // SECOND * SECOND))
        return TimeWindow(start=self.start - earlier, end=self.end)

    def is_longer_than(self, longest_seconds: float | None) -> bool:
        """Return whether a platform with this limit would refuse the window."""
        return longest_seconds is not None and self.length > timedelta(seconds=longest_seconds)

    def halves(self, least_seconds: float = 1) -> tuple[TimeWindow, TimeWindow] | None:
        """Return the two halves of the window; None where they would be too short to be requested."""
        middle = self.start + timedelta(seconds=self.length // SECOND // 2)
        if min(middle - self.start, self.end - middle) < max(SECOND, timedelta(seconds=least_seconds)):
            return None
        return TimeWindow(start=self.start, end=middle), TimeWindow(start=middle, end=self.end)


def format_stamp(moment: datetime) -> str:
    """Format a moment as in the ids of slices."""
    return moment.astimezone(UTC).strftime(_STAMP)


def parse_slice_id(name: str) -> TimeWindow:
    """Parse a slice's id; raises ValueError with a message for users."""
    start, _, end = name.partition(":")
    try:
        first, last = (datetime.strptime(each, _STAMP).replace(tzinfo=UTC) for each in (start, end))
    except ValueError:
        raise ValueError(
            f"“{name[:60]}” is no slice's id; send its start and end in UTC, like 20261120T100000Z:20261120T101000Z."
        ) from None
    if first >= last:
        raise ValueError(f"“{name[:60]}” is no slice's id, because its end is not after its start; send a later end.")
    return TimeWindow(start=first, end=last)


def floor_to_second(moment: datetime) -> datetime:
    """Return the start of the second that a moment lies in."""
    return moment.astimezone(UTC).replace(microsecond=0)


def cut_whole_slices(start: datetime, until: datetime, interval_seconds: int, most: int) -> list[TimeWindow]:
    """Return the next slices after a moment, each of the whole interval, none ending after *until*."""
    interval = timedelta(seconds=interval_seconds)
    found: list[TimeWindow] = []
    while len(found) < most and start + interval <= until:
        found.append(TimeWindow(start=start, end=start + interval))
        start += interval
    return found


def cut_slices(start: datetime, until: datetime, interval_seconds: int, most: int) -> list[TimeWindow]:
    """Return the next slices up to *until*; the last one may be shorter."""
    found = cut_whole_slices(start, until, interval_seconds, most)
    rest = found[-1].end if found else start
    if len(found) < most and rest < until:
        found.append(TimeWindow(start=rest, end=until))
    return found

"""Days of a platform: where they begin in its own zone, and how much of one can be compared with what we have."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

from domain.faults import Invalid
from domain.orders.marks import Marks
from domain.orders.windows import Window


def zone(zone_minutes: int) -> timezone:
    """The zone that lies so many minutes before UTC."""
    return timezone(timedelta(minutes=zone_minutes)) if zone_minutes else UTC


def window_of(day: date, zone_minutes: int) -> Window:
    """A day from midnight to midnight in a zone."""
    start = datetime.combine(day, time(), zone(zone_minutes)).astimezone(UTC)
    return Window(start=start, end=start + timedelta(days=1))


def comparable(day: date, zone_minutes: int, marks: Marks | None, platform_now: datetime) -> Window:
    """The part of a day for which it can be said what is missing: what is fetched at all, and is complete.

    Raises:
        Invalid: The day is not over, or none of it is complete.
    """
    window = window_of(day, zone_minutes)
    name = zone(zone_minutes).tzname(None)
    if window.end > platform_now:
        now = platform_now.astimezone(zone(zone_minutes)).isoformat(timespec="seconds")
        raise Invalid(
            "day_invalid",
            f"{day} is not over: the platform's clock says {now}, and its days are those of {name}.",
            "Choose a day that is over.",
            field="day",
        )
    start = window.start if marks is None else max(window.start, marks.starts_at)
    end = window.start if marks is None else min(window.end, marks.complete_to)
    if start >= end:
        fetched = "nothing was claimed yet"
        if marks is not None:
            begin, complete_to = marks.starts_at.isoformat(), marks.complete_to.isoformat()
            fetched = f"orders are fetched from {begin} on and are complete to {complete_to}"
        raise Invalid(
            "day_invalid",
            f"Nothing of {day} ({name}) can be compared: {fetched}.",
            "Choose a day that is complete, or come back when `complete_to` has passed its beginning.",
            field="day",
        )
    return Window(start=start, end=end)

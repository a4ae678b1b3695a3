"""Days in a platform's zone, and which part of one can be compared."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone

from domain.faults import Invalid
from domain.orders.windows import TimeWindow, Watermarks


def build_timezone(zone_minutes: int) -> timezone:
    """Return the time zone of an offset from UTC."""
    return timezone(timedelta(minutes=zone_minutes)) if zone_minutes else UTC


def build_day_window(day: date, zone_minutes: int) -> TimeWindow:
    """Return a day from midnight to midnight in a zone."""
    start = datetime.combine(day, time(), build_timezone(zone_minutes)).astimezone(UTC)
    return TimeWindow(start=start, end=start + timedelta(days=1))


def find_comparable_part_of_day(
    day: date, zone_minutes: int, marks: Watermarks | None, platform_now: datetime
) -> TimeWindow:
    """Return the part of a day that can be compared: what is fetched at all, and complete.

    Raises:
        Invalid: The day is not over, or none of it is complete.
    """
    name = build_timezone(zone_minutes).tzname(None)
    try:
        window = build_day_window(day, zone_minutes)
    except OverflowError:
        raise Invalid(
            "day_invalid",
            f"{day} ({name}) is at the end of the calendar, and no platform has orders of it.",
            "Choose a day that is over.",
            field="day",
        ) from None
    if window.end > platform_now:
        now = platform_now.astimezone(build_timezone(zone_minutes)).isoformat(timespec="seconds")
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
    return TimeWindow(start=start, end=end)

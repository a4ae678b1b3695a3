"""Days of platforms: their own midnight, over by their own clock, and compared only where they are complete."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from domain.faults import Invalid
from domain.orders import days, known_platforms
from domain.orders.declarations import TimeFormat, TimeNotation
from domain.orders.windows import TimeWindow, Watermarks
from sims.platforms.dialects.plain import PLAIN

DAY = date(2026, 3, 1)
BEIJING = 480
LATER = datetime(2026, 3, 9, tzinfo=UTC)


def marks(start: datetime, complete_to: datetime) -> Watermarks:
    """A platform that is complete from a moment to another."""
    return Watermarks(starts_at=start, history_to=start, live_from=start, claimed_to=LATER, complete_to=complete_to)


ALL = marks(datetime(2026, 1, 1, tzinfo=UTC), LATER)


@pytest.mark.parametrize(
    ("zone_minutes", "start"),
    [
        (0, datetime(2026, 3, 1, tzinfo=UTC)),
        (BEIJING, datetime(2026, 2, 28, 16, tzinfo=UTC)),
        (-330, datetime(2026, 3, 1, 5, 30, tzinfo=UTC)),
    ],
)
def test_a_day_is_that_of_the_zone(zone_minutes: int, start: datetime) -> None:
    """From midnight to midnight there."""
    assert days.build_day_window(DAY, zone_minutes) == TimeWindow(start=start, end=start + timedelta(days=1))


def test_the_zone_is_that_in_which_the_platform_writes_its_times() -> None:
    """Of its rows, else of its queries; UTC where it writes them with their own."""
    zones = {kind: record.compute_zone_minutes(DAY) for kind, record in known_platforms.KNOWN_PLATFORMS.items()}
    assert zones == {"taobao": BEIJING, "pinduoduo": BEIJING, "shopify": 0, "woocommerce": 0, "amazon": 0}


@pytest.mark.parametrize(("month", "zone_minutes"), [(3, 60), (7, 120)])
def test_a_zone_whose_clocks_change_is_that_of_the_day(month: int, zone_minutes: int) -> None:
    """As it is at the day's beginning."""
    time_format = TimeFormat(form=TimeNotation.NAIVE, zone="Europe/Berlin")
    rows = PLAIN.rows.model_copy(update={"time_format": time_format})
    assert PLAIN.model_copy(update={"rows": rows}).compute_zone_minutes(date(2026, month, 1)) == zone_minutes


@pytest.mark.parametrize(("day", "zone_minutes"), [(date.min, BEIJING), (date.max, 0)])
def test_a_day_at_the_end_of_the_calendar_is_refused(day: date, zone_minutes: int) -> None:
    """With a sentence, like each day of which nothing can be compared."""
    with pytest.raises(Invalid, match="end of the calendar"):
        days.find_comparable_part_of_day(day, zone_minutes, ALL, LATER)


@pytest.mark.parametrize(("hour", "over"), [(15, False), (16, True)])
def test_a_day_is_over_by_the_platform_s_clock(hour: int, over: bool) -> None:
    """In Beijing that is eight hours before it is in Greenwich."""
    now = datetime(2026, 3, 1, hour, tzinfo=UTC)
    if over:
        assert days.find_comparable_part_of_day(DAY, BEIJING, ALL, now) == days.build_day_window(DAY, BEIJING)
    else:
        with pytest.raises(Invalid, match="is not over") as refusal:
            days.find_comparable_part_of_day(DAY, BEIJING, ALL, now)
        assert refusal.value.field == "day"
        assert "+08:00" in str(refusal.value)


def test_only_what_is_complete_is_compared() -> None:
    """From where orders are fetched, up to `complete_to`."""
    noon, evening = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 20, tzinfo=UTC)
    assert days.find_comparable_part_of_day(DAY, 0, marks(noon, evening), LATER) == TimeWindow(start=noon, end=evening)


@pytest.mark.parametrize(
    "known",
    [
        None,
        marks(datetime(2026, 3, 2, tzinfo=UTC), LATER),
        marks(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)),
    ],
)
def test_a_day_of_which_nothing_is_complete_is_refused(known: Watermarks | None) -> None:
    """Nothing was claimed yet, it lies before the beginning, or behind `complete_to`."""
    with pytest.raises(Invalid, match="can be compared"):
        days.find_comparable_part_of_day(DAY, 0, known, LATER)

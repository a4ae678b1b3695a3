"""Dates in texts become Excel's serial numbers, on the clock of the task's zone, exact to the millisecond."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from excel.moments import (
    LocalTimeConverter,
    detect_moments,
    format_as_serial_numbers,
    format_serial_numbers_as_dates,
    to_local_clipping_far_times,
)

ZONES = (
    *("UTC", "Asia/Shanghai", "America/New_York", "Europe/Dublin", "Australia/Lord_Howe", "Africa/Casablanca"),
    *("Pacific/Apia", "Asia/Kathmandu", "Antarctica/Troll", "Africa/Monrovia"),
)
EPOCH = datetime(1899, 12, 30)  # noqa: DTZ001
FULL = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def read_serials(texts: Sequence[str | None], zone: str = "UTC", *, zoned_only: bool = True) -> list[str | None]:
    """The serial number of each text that is a date."""
    read = detect_moments(pa.array(texts, pa.string()), LocalTimeConverter(zone), zoned_only=zoned_only)
    if read is None:
        return [None] * len(texts)
    serials = iter(format_as_serial_numbers(read.ms).to_pylist())
    return [next(serials) if is_found else None for is_found in read.found]


def to_displayed_moment(serial: str) -> datetime:
    """What Excel shows, to the millisecond."""
    return EPOCH + timedelta(milliseconds=round(float(serial) * 86_400_000))


def read_clock(text: str, zone: str) -> datetime | None:
    """What the clock shows at a date-time of RFC 3339, by Python's own library; None where it is none for Excel."""
    parts = FULL.fullmatch(text)
    if parts is None:
        return None
    date, time, fraction, offset = parts.groups()
    try:
        instant = datetime.fromisoformat(f"{date}T{time}{offset.upper().replace('Z', '+00:00')}")
        instant += timedelta(milliseconds=(int((fraction or ".")[1:].ljust(4, "0")[:4]) + 5) // 10)
        local = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    return local if local >= datetime(1900, 3, 1) else None  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "serial"),
    [
        ("1970-01-01T00:00:00Z", "25569"),
        ("1900-03-01T00:00:00Z", "61"),
        ("1900-02-28T23:59:59Z", None),
        ("9999-12-31T23:59:59Z", "2958465.9999884260"),
        ("2024-02-29T12:00:00Z", "45351.5000000000"),
        ("2024-02-29T12:00:00.001Z", "45351.5000000116"),
        ("2024-02-29t12:00:00z", "45351.5000000000"),
        ("2024-02-29 12:00:00+00:00", "45351.5000000000"),
        ("2024-02-29T23:30:00+23:30", "45351"),
        ("2023-02-29T12:00:00Z", None),
        ("2024-02-29T24:00:00Z", None),
        ("2024-02-29T12:60:00Z", None),
        ("2024-02-29T12:00:60Z", None),
        ("2024-13-01T12:00:00Z", None),
        ("2024-00-01T12:00:00Z", None),
        ("2024-01-00T12:00:00Z", None),
        ("2024-02-29T12:00:00+24:00", None),
        ("2024-02-29T12:00:00+0100", None),
        ("2024-02-29T12:00:00", None),
        ("2024-02-29T12:00Z", None),
        ("2024-02-29Z", None),
        ("2024-02-29T12:00:00.Z", None),
        ("2024-02-29T12:00:00.0000000001Z", None),
        ("2024-02-29T12:00:0xZ", None),
        ("２０24-02-29T12:00:00Z", None),
        (" 2024-02-29T12:00:00Z", None),
        ("2024-02-29T12:00:00Z ", None),
    ],
)
def test_a_full_date_time_with_a_zone_is_a_date(text: str, serial: str | None) -> None:
    """Alone, among others of its shape, and among others of any."""
    assert read_serials([text]) == [serial]
    assert read_serials([text, None, text]) == [serial, None, serial]
    assert [mixed and to_displayed_moment(mixed) for mixed in read_serials(["x", text, "2024-02-29T12:00:00.5Z"])][
        1
    ] == (serial and to_displayed_moment(serial))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", datetime(2024, 2, 29)),  # noqa: DTZ001
        ("2024-02-29T16:00", datetime(2024, 2, 29, 16)),  # noqa: DTZ001
        ("2024-02-29 16:00:30", datetime(2024, 2, 29, 16, 0, 30)),  # noqa: DTZ001
        ("2024-02-29T16:00:30.25", datetime(2024, 2, 29, 16, 0, 30, 250_000)),  # noqa: DTZ001
        ("2024-02-29T16:00Z", datetime(2024, 3, 1)),  # noqa: DTZ001
        ("2024-02-29T16:00:00-0800", datetime(2024, 3, 1, 8)),  # noqa: DTZ001
        ("2024-02-30", None),
        ("2024-02-29Z", None),
        ("2024-2-29", None),
        ("29.02.2024", None),
    ],
)
def test_a_column_of_dates_takes_those_without_a_zone_too(text: str, expected: datetime | None) -> None:
    """They are what the clock shows, wherever the task is."""
    for texts in ([text], [text, "x"]):
        (serial, *_) = read_serials(texts, "Asia/Shanghai", zoned_only=False)
        assert (serial and to_displayed_moment(serial)) == expected


@pytest.mark.parametrize("zone", ZONES)
@given(instants=st.lists(st.integers(-2_203_891_200_000, 253_402_000_000_000), min_size=1))
@example(instants=[1_711_846_800_000 + step * 1_800_000 for step in range(-4, 5)])
@example(instants=[4_867_200_000_000, 0])
def test_clocks_are_those_of_the_zone(zone: str, instants: list[int]) -> None:
    """At any instant, also beyond 2037, and in any zone."""
    start = datetime(1970, 1, 1, tzinfo=UTC)
    info = ZoneInfo(zone)
    expected = [(start + timedelta(milliseconds=ms)).astimezone(info).replace(tzinfo=None) for ms in instants]
    local = to_local_clipping_far_times(np.array(instants, np.int64), LocalTimeConverter(zone))
    assert [start.replace(tzinfo=None) + timedelta(milliseconds=ms) for ms in local.tolist()] == expected


DATE_TIMES = st.builds(
    lambda moment, offset, places, mark: f"{moment.year:04}-{moment:%m-%d}{mark}{moment:%H:%M:%S}{places}{offset}",
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001
    st.sampled_from(["Z", "z", "+08:00", "-05:30", "+0100", "", "+24:00"]),
    st.sampled_from(["", ".5", ".123", ".9996", ".000000001"]),
    st.sampled_from(["T", "T", "T", "t", " ", "_"]),
)
ODD = st.text(alphabet="0129-:TZ.+ ", min_size=18, max_size=26)


@given(
    st.one_of(st.lists(DATE_TIMES), st.lists(st.one_of(DATE_TIMES, ODD, st.none(), st.text()))),
    st.sampled_from(ZONES),
)
def test_texts_are_read_as_pythons_own_library_reads_them(texts: list[str | None], zone: str) -> None:
    """Whatever shapes one column has."""
    serials = read_serials(texts, zone)
    assert [serial and to_displayed_moment(serial) for serial in serials] == [
        (text and read_clock(text, zone)) or None for text in texts
    ]


@given(st.lists(st.integers(0, 8_000_000 * 1000), min_size=1))
def test_serial_numbers_are_exact_to_the_millisecond(offsets: list[int]) -> None:
    """Whole seconds and parts of them, days of four digits and of five."""
    first = int((datetime(1900, 3, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))
    for step in (1, 1000, 86_400_000 // 100, 86_400_000):
        ms = first + np.array(offsets, np.int64) * step % (8_000 * 365 * 86_400_000)
        expected = [datetime(1970, 1, 1) + timedelta(milliseconds=value) for value in ms.tolist()]  # noqa: DTZ001
        assert [to_displayed_moment(serial) for serial in format_as_serial_numbers(ms).to_pylist()] == expected


def test_a_clock_is_told_from_its_serial_number() -> None:
    """For conditions, which ask dates as texts."""
    serials = pa.array(["45351.6666666667", "45351", None, "61.9999884259"])
    assert format_serial_numbers_as_dates(serials, date_only=False).to_pylist() == [
        "2024-02-29T16:00:00",
        "2024-02-29T00:00:00",
        None,
        "1900-03-01T23:59:59",
    ]
    assert format_serial_numbers_as_dates(serials, date_only=True).to_pylist()[0] == "2024-02-29"


def test_an_unknown_zone_is_an_error_at_once() -> None:
    """Not when the first date comes."""
    with pytest.raises(KeyError, match="Mars/Olympus"):
        LocalTimeConverter("Mars/Olympus")


def test_offsets_of_a_zone_apart_from_its_name() -> None:
    """A fixed offset in a text is honoured whatever the task's zone."""
    moment = datetime(2024, 7, 1, 12, tzinfo=timezone(timedelta(hours=-3)))
    (serial,) = read_serials([moment.isoformat()], "America/New_York")
    assert serial is not None
    assert to_displayed_moment(serial) == datetime(2024, 7, 1, 11)  # noqa: DTZ001

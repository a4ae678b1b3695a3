"""A day of a platform compared with what is stored, and the workbook of it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone

import openpyxl
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.orders import comparison
from activities.orders.comparison import PlatformStoredAndMissingOrderFrames
from domain.orders.activity_models import OrderReportFigures
from domain.orders.windows import TimeWindow
from stores.orders.order_copies import OrderVersion

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

LINES = st.dictionaries(
    st.sampled_from([f"order-{number}" for number in range(6)]),
    st.builds(
        OrderVersion,
        st.sampled_from([NOON, NOON + timedelta(microseconds=1)]),
        st.sampled_from([1, 2**53, 2**53 + 1, 2**63 - 1]),
    ),
)


def compare(
    platform: Mapping[str, OrderVersion], stored: Mapping[str, OrderVersion], newer: Mapping[str, OrderVersion]
) -> PlatformStoredAndMissingOrderFrames:
    """The comparison of three mappings."""
    return comparison.compare_orders(
        *(comparison.build_stored_order_version_frame(side) for side in (platform, stored, newer))
    )


def build_report(listed: int, missing: int) -> OrderReportFigures:
    """A report of a day in Beijing."""
    return OrderReportFigures(
        platform="007",
        day=date(2026, 3, 1),
        made_at=NOON,
        complete_to=NOON,
        window=TimeWindow(start=NOON - timedelta(hours=12), end=NOON),
        zone_minutes=480,
        listed=listed,
        stored=0,
        missing=missing,
        not_listed=0,
        key="k",
    )


@given(platform=LINES, stored=LINES, newer=LINES)
def test_orders_are_missing_where_none_or_an_older_one_is_stored(
    platform: Mapping[str, OrderVersion], stored: Mapping[str, OrderVersion], newer: Mapping[str, OrderVersion]
) -> None:
    """By their time, then by their version to its last digit; what is stored and not listed is none of them."""
    newer = {order_id: line for order_id, line in newer.items() if order_id in platform.keys() - stored.keys()}
    here = {**stored, **newer}
    missing = [
        order_id
        for order_id, line in platform.items()
        if order_id not in here
        or (here[order_id].modified_at, here[order_id].version) < (line.modified_at, line.version)
    ]

    found = compare(platform, stored, newer)

    assert list(found.missing["order_id"]) == missing
    assert list(found.missing["version"]) == [platform[order_id].version for order_id in missing]
    assert list(found.not_listed["order_id"]) == sorted(stored.keys() - platform.keys())
    assert (len(found.platform), len(found.stored)) == (len(platform), len(stored))


def test_of_an_order_in_several_parts_the_last_one_counts() -> None:
    """It was modified while the day was read."""
    later = NOON + timedelta(seconds=1)
    frame = comparison.build_order_version_frame([("a", NOON, 1), ("b", NOON, 1), ("a", later, 2)])

    rows = list(frame.itertuples(index=False, name=None))
    assert rows == [("a", pd.Timestamp(later), 2), ("b", pd.Timestamp(NOON), 1)]


def test_hours_are_those_of_the_platform() -> None:
    """Every hour of the day, also those without orders."""
    platform = {f"order-{number}": OrderVersion(NOON, 1) for number in range(3)}
    found = compare(platform, {"order-0": OrderVersion(NOON - timedelta(hours=1), 1)}, {})

    counts = comparison.count_by_hour(found, timezone(timedelta(hours=8)))

    assert list(counts.columns) == ["hour", "platform", "here", "difference"]
    assert list(counts["hour"]) == list(range(24))
    filled = counts[(counts["platform"] > 0) | (counts["here"] > 0)]
    assert filled.to_numpy().tolist() == [[19, 0, 1, -1], [20, 3, 0, 3]]


def test_ids_beyond_a_sheet_stand_on_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left out, however many there are; a sheet without any has its heads."""
    monkeypatch.setattr(comparison, "SHEET_ROWS", 20)
    told = {f"order-{number}": OrderVersion(NOON, 1) for number in range(45)}
    book = io.BytesIO(comparison.render_workbook(build_report(45, 45), compare(told, {}, {})))
    sheets = pd.read_excel(book, sheet_name=None, engine="openpyxl")

    assert list(sheets) == ["day", "hours", "missing", "missing 2", "missing 3", "not listed"]
    assert [len(sheets[name]) for name in ("missing", "missing 2", "missing 3", "not listed")] == [20, 20, 5, 0]
    ids = [order_id for name, sheet in sheets.items() if "missing" in name for order_id in sheet["order_id"]]
    assert ids == list(told)
    hours = sheets["hours"]
    assert list(hours.loc[hours["platform"] > 0, "hour"]) == [20], "noon in Greenwich is evening in Beijing"
    assert "2026-03-01T20:00:00+08:00" in set(sheets["missing"]["modified_at"])
    assert list(sheets["not listed"].columns) == ["order_id", "modified_at", "version"]


def test_ids_and_times_stay_texts_in_the_workbook() -> None:
    """An id of digits keeps its zeros, a version beyond 15 digits all of them; figures are numbers."""
    told = {"0012": OrderVersion(NOON, 2**53 + 1)}
    book = io.BytesIO(comparison.render_workbook(build_report(1, 1), compare(told, {}, {})))
    sheets = openpyxl.load_workbook(book)

    figures = dict(sheets["day"].iter_rows(min_row=2, values_only=True))
    assert [*sheets["missing"].iter_rows(min_row=2, values_only=True)] == [
        ("0012", "2026-03-01T20:00:00+08:00", str(2**53 + 1))
    ]
    assert (figures["platform"], figures["listed"], figures["missing"], figures["not_listed"]) == ("007", 1, 1, 0)
    assert (figures["made_at"], figures["zone"]) == ("2026-03-01T12:00:00Z", "UTC+08:00")
    assert figures["compared_to"] == "2026-03-01 12:00:00+00:00"

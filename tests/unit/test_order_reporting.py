"""The workbook that compares a day."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta

import pandas as pd
import pytest

from activities.orders import reporting
from domain.orders.steps import Report
from domain.orders.windows import Window
from stores.orders.versions import Line

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_ids_beyond_a_sheet_stand_on_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left out, however many there are; a sheet without any has its heads."""
    monkeypatch.setattr(reporting, "SHEET_ROWS", 20)
    told = {f"order-{number}": Line(NOON, 1) for number in range(45)}
    report = Report(
        platform="7",
        day=date(2026, 3, 1),
        made_at=NOON,
        complete_to=NOON,
        window=Window(start=NOON - timedelta(hours=12), end=NOON),
        zone_minutes=480,
        told=45,
        stored=0,
        missing=45,
        only_here=0,
        key="k",
    )
    book = io.BytesIO(reporting.workbook(report, told, {}, list(told), []))
    sheets = pd.read_excel(book, sheet_name=None, engine="openpyxl")

    assert list(sheets) == ["day", "hours", "missing", "missing 2", "missing 3", "only here"]
    assert [len(sheets[name]) for name in ("missing", "missing 2", "missing 3", "only here")] == [20, 20, 5, 0]
    ids = [order_id for name, sheet in sheets.items() if "missing" in name for order_id in sheet["order_id"]]
    assert ids == list(told)
    hours = sheets["hours"]
    assert list(hours.loc[hours["platform"] > 0, "hour"]) == [20], "noon in Greenwich is evening in Beijing"
    assert "2026-03-01T20:00:00+08:00" in set(sheets["missing"]["modified_at"])
    assert list(sheets["only here"].columns) == ["order_id", "modified_at", "version"]

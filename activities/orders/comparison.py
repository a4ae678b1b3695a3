"""A day's orders as the platform lists them, compared with those stored, and the workbook of the differences.

Loaded by the activity that needs it only: workflows import activities for their signatures and must not pay for pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final

import msgspec

from domain.orders import days
from domain.orders.activity_models import OrderReportFigures
from excel.arrow import pa
from excel.workbook import render_tables
from stores.orders.order_copies import OrderVersions

# isort: split
import pandas as pd  # after PyArrow has looked for it

SHEET_ROWS: Final = 1_000_000
"""Orders on one sheet, which holds hardly more rows; further ones go to the next sheet."""

_COLUMNS: Final = ["order_id", "modified_at", "version"]


@dataclass(frozen=True, slots=True)
class PlatformStoredAndMissingOrderFrames:
    """Frames of orders with the columns `order_id`, `modified_at` and `version`."""

    platform: pd.DataFrame
    stored: pd.DataFrame
    """Modified within the window of the report."""
    missing: pd.DataFrame
    """Listed by the platform, and not stored or only in an older version."""
    not_listed: pd.DataFrame


def build_order_version_frame(rows: Iterable[tuple[str, datetime, int]]) -> pd.DataFrame:
    """Return orders as a frame; of an order that is there repeatedly, the last row."""
    frame = pd.DataFrame(list(rows), columns=_COLUMNS)
    frame["modified_at"] = pd.to_datetime(frame["modified_at"], utc=True)
    # Versions are whole numbers of up to 64 bits: as floats, which a missing value would make them, they lose digits.
    frame["version"] = frame["version"].astype("Int64")
    return frame.groupby("order_id", sort=False, as_index=False).last()


def build_stored_order_version_frame(side: OrderVersions) -> pd.DataFrame:
    """Return stored orders as a frame."""
    return build_order_version_frame((order_id, line.modified_at, line.version) for order_id, line in side.items())


def compare_with_stored_orders(
    platform: pd.DataFrame, stored: OrderVersions, stored_at_other_times: OrderVersions
) -> PlatformStoredAndMissingOrderFrames:
    """Compare what the platform lists with orders that are stored."""
    return compare_orders(platform, *map(build_stored_order_version_frame, (stored, stored_at_other_times)))


def compare_orders(
    platform: pd.DataFrame, stored: pd.DataFrame, stored_at_other_times: pd.DataFrame
) -> PlatformStoredAndMissingOrderFrames:
    """Compare the orders of both sides.

    Args:
        platform: What the platform lists.
        stored: What is stored with a time of modification within the window.
        stored_at_other_times: Orders of `platform` that are stored with another time of modification.
    """
    here = pd.concat([stored, stored_at_other_times])
    both = platform.merge(here, on="order_id", how="left", suffixes=("", "_here"))
    is_older = (both["modified_at_here"] < both["modified_at"]) | (
        (both["modified_at_here"] == both["modified_at"]) & (both["version_here"] < both["version"]).fillna(False)
    )
    missing = both.loc[both["modified_at_here"].isna() | is_older, _COLUMNS]
    not_listed = stored[~stored["order_id"].isin(platform["order_id"])].sort_values("order_id")
    return PlatformStoredAndMissingOrderFrames(platform, stored, missing, not_listed)


def count_by_hour(comparison: PlatformStoredAndMissingOrderFrames, zone: timezone) -> pd.DataFrame:
    """Return how many orders each side has that were modified in each hour of the day."""
    sides = pd.concat([comparison.platform.assign(side="platform"), comparison.stored.assign(side="here")])
    hours = sides["modified_at"].dt.tz_convert(zone).dt.hour
    counts = pd.crosstab(hours, sides["side"]).reindex(index=range(24), columns=["platform", "here"], fill_value=0)
    return counts.assign(difference=counts["platform"] - counts["here"]).rename_axis("hour").reset_index()


def render_workbook(report: OrderReportFigures, comparison: PlatformStoredAndMissingOrderFrames) -> bytes:
    """Return the figures, the counts by hour, and the orders that differ, as a workbook."""
    zone = days.build_timezone(report.zone_minutes)
    hours = pa.table(count_by_hour(comparison, zone).to_dict("list"))
    sheets = {"day": _build_figure_table(report, zone), "hours": hours}
    for heading, orders in (("missing", comparison.missing), ("not listed", comparison.not_listed)):
        texts = orders["modified_at"].dt.tz_convert(zone).map(datetime.isoformat).astype("str")
        table = pa.table(orders.assign(modified_at=texts).to_dict("list"))
        sheets |= dict(_split_sheets(heading, table))
    return render_tables(sheets)


def _build_figure_table(report: OrderReportFigures, zone: timezone) -> pa.Table:
    figures: dict[str, Any] = report.model_dump(mode="json", exclude={"key", "window", "zone_minutes"})
    compared = {"zone": zone, "compared_from": report.window.start, "compared_to": report.window.end}
    figures |= {name: str(value) for name, value in compared.items()}
    return pa.table({"figure": list(figures), "value": [msgspec.json.encode(value) for value in figures.values()]})


def _split_sheets(name: str, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for number, start in enumerate(range(0, max(len(table), 1), SHEET_ROWS), 1):
        yield (name if number == 1 else f"{name} {number}"), table.slice(start, SHEET_ROWS)

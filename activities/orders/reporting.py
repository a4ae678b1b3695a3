"""Reconciliation: a day as the platform tells it, beside the same day as we have it, in a workbook."""

from __future__ import annotations

import asyncio
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from sqlmodel import col, select
from temporalio import activity

from activities.orders import configuration, ledger, troubles
from activities.orders.configuration import Standing
from activities.orders.reading import Reading
from activities.orders.steps import PlatformSteps
from domain.orders import places, windows
from domain.orders.steps import Report, ReportOrder
from domain.orders.windows import Window
from infra.heartbeats import beating
from infra.platforms import Pace
from infra.services import Services
from infra.tables.orders import Order

CONTENT_TYPE: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
SHEET_ROWS: Final = 1_000_000
"""A sheet holds hardly more; what is beyond stands on the next."""
IDS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """An order as one side has it."""

    modified_at: datetime
    version: int


Side = Mapping[str, Line]


class OrderReporting:
    """Compares, where the platform is served."""

    def __init__(self, services: Services, steps: PlatformSteps) -> None:
        self._database = services.database
        self._objects = services.objects
        self._steps = steps

    @activity.defn(name="order_report")
    async def report(self, order: ReportOrder) -> Report:
        """Read a day once more and write down how it differs from what we have."""
        async with beating():
            async with self._database.session() as session:
                here = await configuration.standing(session, order.platform)
            start = datetime.combine(order.day, time(), UTC)
            day = Window(start=start, end=start + timedelta(days=1))
            with troubles.told():
                told = await self._told(here, day)
            stored = await self._stored(order.platform, day)
            # What the platform told may be here with a later time: it was modified since the day was over.
            newer = await self._newer(order.platform, told.keys() - stored.keys())
            return await self._written(order, here, told, stored, newer)

    async def _told(self, here: Standing, day: Window) -> Side:
        lines: dict[str, Line] = {}
        for window in windows.clipped(day.start, day.end, here.settings.interval, 86_400):
            connector = self._steps.connector(here, pace=Pace(patience_seconds=math.inf))
            harvest = await Reading(connector, window, None).once()
            for copy in harvest.copies.values():
                if day.holds(copy.order.modified_at):
                    lines[copy.order.order_id] = Line(copy.order.modified_at, copy.order.version)
        return lines

    async def _stored(self, platform: str, day: Window) -> Side:
        statement = select(Order.order_id, Order.modified_at, Order.version).where(
            Order.platform == platform, col(Order.modified_at) >= day.start, col(Order.modified_at) < day.end
        )
        async with self._database.session() as session:
            return {row[0]: Line(row[1], row[2]) for row in await session.exec(statement)}

    async def _newer(self, platform: str, ids: set[str]) -> Side:
        lines: dict[str, Line] = {}
        async with self._database.session() as session:
            for batch in batches(sorted(ids), IDS_AT_ONCE):
                statement = select(Order.order_id, Order.modified_at, Order.version).where(
                    Order.platform == platform, col(Order.order_id).in_(batch)
                )
                lines |= {row[0]: Line(row[1], row[2]) for row in await session.exec(statement)}
        return lines

    async def _written(self, order: ReportOrder, here: Standing, told: Side, stored: Side, newer: Side) -> Report:
        ours = {**stored, **newer}
        missing = [order_id for order_id, line in told.items() if _is_older(ours.get(order_id), line)]
        only_here = sorted(stored.keys() - told.keys())
        async with self._database.session() as session:
            made_at = await ledger.database_now(session)
        key = places.report_key(order.platform, order.day.isoformat())
        report = Report(
            platform=order.platform,
            day=order.day,
            made_at=made_at,
            complete_to=here.row.complete_to,
            told=len(told),
            stored=len(stored),
            missing=len(missing),
            only_here=len(only_here),
            key=key,
        )
        book = await asyncio.to_thread(workbook, report, told, stored, missing, only_here)
        await self._objects.put(key, book, content_type=CONTENT_TYPE)
        # Last: whoever finds it finds the workbook too.
        await self._objects.put(places.report_manifest(key), report.model_dump_json().encode())
        return report


def _is_older(ours: Line | None, told: Line) -> bool:
    return ours is None or (ours.modified_at, ours.version) < (told.modified_at, told.version)


def workbook(report: Report, told: Side, stored: Side, missing: Sequence[str], only_here: Sequence[str]) -> bytes:
    """The figures, the counts by hour, and the ids that differ."""
    # Workflows import the steps for their signatures, and must not pay for pandas.
    import pandas as pd  # noqa: PLC0415

    figures = report.model_dump(mode="json", exclude={"key"})
    hours = _by_hour(told, stored)
    out = io.BytesIO()
    with pd.ExcelWriter(out, engine="xlsxwriter") as book:
        pd.DataFrame(list(figures.items()), columns=["figure", "value"]).to_excel(book, sheet_name="day", index=False)
        pd.DataFrame(hours).to_excel(book, sheet_name="hours", index=False)
        for heading, ids, side in (("missing", missing, told), ("only here", only_here, stored)):
            for number, batch in enumerate(batches(ids, SHEET_ROWS) or [()], 1):
                name = heading if number == 1 else f"{heading} {number}"
                pd.DataFrame(_rows(batch, side)).to_excel(book, sheet_name=name, index=False)
    return out.getvalue()


def batches(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """The ids, so many at a time."""
    return [ids[start : start + most] for start in range(0, len(ids), most)]


def _by_hour(told: Side, stored: Side) -> Mapping[str, Sequence[int]]:
    theirs, ours = (Counter(line.modified_at.hour for line in side.values()) for side in (told, stored))
    return {
        "hour": list(range(24)),
        "platform": [theirs[hour] for hour in range(24)],
        "here": [ours[hour] for hour in range(24)],
        "difference": [theirs[hour] - ours[hour] for hour in range(24)],
    }


def _rows(ids: Sequence[str], side: Side) -> Mapping[str, Sequence[Any]]:
    return {
        "order_id": ids,
        "modified_at": [side[order_id].modified_at.isoformat() for order_id in ids],
        "version": [side[order_id].version for order_id in ids],
    }

"""Reconciliation: a day as the platform tells it, beside the same day as we have it, in a workbook."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

import msgspec
from temporalio import activity

from activities.orders import troubles
from activities.orders.reading import Reading
from activities.orders.steps import PlatformSteps
from clients.platforms import Pace
from domain.orders import days, names, windows
from domain.orders.capability import QueryField
from domain.orders.names import CONTENT_TYPE
from domain.orders.steps import Report, ReportOrder, ReportPart, ReportStep
from infra.heartbeats import beating
from services.services import Services
from stores.orders import configuration, versions
from stores.orders.configuration import Standing
from stores.orders.versions import Line, Side

SHEET_ROWS: Final = 1_000_000
"""A sheet holds hardly more; what is beyond stands on the next."""
PART_SECONDS: Final = 30.0
"""After so long a part ends, so that a worker that is lost or stopped costs no more than that."""


_Told = tuple[str, datetime, int]
"""An order in a part: its id, and what `Line` says of it."""


class OrderReporting:
    """Compares, where the platform is served."""

    def __init__(self, services: Services, steps: PlatformSteps) -> None:
        self._database = services.database
        self._objects = services.objects
        self._steps = steps

    @activity.defn(name="order_report_read")
    async def read(self, order: ReportStep) -> ReportPart:
        """Read on from where the last part ended, for about half a minute, and keep what the platform tells."""
        window, began = order.order.window, time.monotonic()
        read_to, lines = order.after.read_to, list[_Told]()
        async with beating():
            here = await configuration.read_standing(self._database, order.order.platform)
            with troubles.told():
                while read_to < window.end and time.monotonic() - began < PART_SECONDS:
                    [piece] = windows.clipped(read_to, window.end, here.settings.interval, 1)
                    connector = self._steps.connector(here, pace=Pace(patience_seconds=math.inf))
                    harvest = await Reading(connector, piece, None).once_to_end()
                    copies = [copy.order for copy in harvest.copies.values()]
                    lines += [
                        (each.order_id, each.modified_at, each.version)
                        for each in copies
                        if is_by_creation(here) or window.holds(each.modified_at)
                    ]
                    read_to = piece.end
            await self._objects.put(_part_key(order.folder, order.after.number), msgspec.json.encode(lines))
        return ReportPart(number=order.after.number + 1, read_to=read_to)

    @activity.defn(name="order_report_write")
    async def write(self, order: ReportStep) -> Report:
        """Write down how what the platform told differs from what we have."""
        async with beating():
            parts = [_part_key(order.folder, number) for number in range(order.after.number)]
            told = await self._told(parts)
            here = await configuration.read_standing(self._database, order.order.platform)
            if is_by_creation(here):
                # When an order was created is not kept: which of ours belong to the day, the platform alone knows.
                stored, only_here = await versions.find(self._database, order.order.platform, told.keys()), None
            else:
                stored = await versions.read_window(self._database, order.order.platform, order.order.window)
                only_here = sorted(stored.keys() - told.keys())
            # What the platform told may be here with a later time: it was modified since the day was over.
            newer = await versions.find(self._database, order.order.platform, told.keys() - stored.keys())
            # The parts stay until housekeeping takes them: whoever has to write this again needs them again.
            return await self._written(order.order, told, stored, newer, only_here)

    async def _told(self, parts: Sequence[str]) -> Side:
        """What the platform told in all parts; of an order that is in several, what it told last."""
        lines: dict[str, Line] = {}
        for key in parts:
            told = msgspec.json.decode(await self._objects.get(key), type=list[_Told])
            lines |= {order_id: Line(modified_at, version) for order_id, modified_at, version in told}
        return lines

    async def _written(
        self, order: ReportOrder, told: Side, stored: Side, newer: Side, only_here: Sequence[str] | None
    ) -> Report:
        ours = {**stored, **newer}
        missing = [order_id for order_id, line in told.items() if _is_older(ours.get(order_id), line)]
        made_at = await self._database.now()
        key = names.report_key(order.platform, order.day.isoformat())
        report = Report(
            platform=order.platform,
            day=order.day,
            made_at=made_at,
            complete_to=order.complete_to,
            window=order.window,
            zone_minutes=order.zone_minutes,
            told=len(told),
            stored=len(stored),
            missing=len(missing),
            only_here=None if only_here is None else len(only_here),
            key=key,
        )
        book = await asyncio.to_thread(workbook, report, told, stored, missing, only_here or ())
        await self._objects.put(key, book, content_type=CONTENT_TYPE)
        # Last: whoever finds it finds the workbook too.
        await self._objects.put(names.report_manifest(key), report.model_dump_json().encode())
        return report


def is_by_creation(here: Standing) -> bool:
    """Whether a platform is asked for the orders that were created in a time, whenever they were modified."""
    return here.capability.query.field is QueryField.CREATED


def _part_key(folder: str, number: int) -> str:
    return f"{folder}{number}.json"


def _is_older(ours: Line | None, told: Line) -> bool:
    return ours is None or (ours.modified_at, ours.version) < (told.modified_at, told.version)


def workbook(report: Report, told: Side, stored: Side, missing: Sequence[str], only_here: Sequence[str]) -> bytes:
    """The figures, the counts by hour, and the ids that differ."""
    # Workflows import the steps for their signatures, and must not pay for pandas.
    import pandas as pd  # noqa: PLC0415

    zone = days.zone(report.zone_minutes)
    figures = report.model_dump(mode="json", exclude={"key", "window", "zone_minutes"})
    compared = {"zone": str(zone), "compared_from": report.window.start, "compared_to": report.window.end}
    figures |= {name: str(value) for name, value in compared.items()}
    hours = _by_hour(told, stored, zone)
    out = io.BytesIO()
    with pd.ExcelWriter(out, engine="xlsxwriter") as book:
        pd.DataFrame(list(figures.items()), columns=["figure", "value"]).to_excel(book, sheet_name="day", index=False)
        pd.DataFrame(hours).to_excel(book, sheet_name="hours", index=False)
        for heading, ids, side in (("missing", missing, told), ("only here", only_here, stored)):
            for number, batch in enumerate(batches(ids, SHEET_ROWS) or [()], 1):
                name = heading if number == 1 else f"{heading} {number}"
                pd.DataFrame(_rows(batch, side, zone)).to_excel(book, sheet_name=name, index=False)
    return out.getvalue()


def batches(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """The ids, so many at a time."""
    return [ids[start : start + most] for start in range(0, len(ids), most)]


def _by_hour(told: Side, stored: Side, zone: timezone) -> Mapping[str, Sequence[int]]:
    theirs, ours = (_hours(side, zone) for side in (told, stored))
    return {
        "hour": list(range(24)),
        "platform": [theirs[hour] for hour in range(24)],
        "here": [ours[hour] for hour in range(24)],
        "difference": [theirs[hour] - ours[hour] for hour in range(24)],
    }


def _hours(side: Side, zone: timezone) -> Counter[int]:
    return Counter(line.modified_at.astimezone(zone).hour for line in side.values())


def _rows(ids: Sequence[str], side: Side, zone: timezone) -> Mapping[str, Sequence[Any]]:
    return {
        "order_id": ids,
        "modified_at": [side[order_id].modified_at.astimezone(zone).isoformat() for order_id in ids],
        "version": [side[order_id].version for order_id in ids],
    }

"""Reports: a day as the platform lists it, compared with the stored orders, in a workbook."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec
from temporalio import activity

from activities.orders import slice_attempts
from activities.orders.activities import PlatformActivities
from activities.orders.reading import WindowReader
from clients.platforms import AttemptTimeBudget
from domain.orders import names, windows
from domain.orders.activity_models import NextReportPartInput, OrderReportFigures, ReportInput, ReportReadingProgress
from domain.orders.capability import FilteredTimestamp
from domain.orders.names import CONTENT_TYPE
from infra import log
from infra.heartbeats import send_heartbeats_during_block
from services.services import Services
from stores.orders import order_copies, platforms
from stores.orders.platforms import PlatformWithSettingsInForce

if TYPE_CHECKING:
    from activities.orders.comparison import PlatformStoredAndMissingOrderFrames

PART_SECONDS: Final = 30.0
"""A part of a report ends after this time, which is what a lost worker costs at most."""


_ListedOrder = tuple[str, datetime, int]
"""An order in a part: its id, when it was modified, and its version."""


class ReportActivities:
    """Activities of a report; they run on the workers that serve the platform."""

    def __init__(self, services: Services, steps: PlatformActivities) -> None:
        self._database = services.database
        self._objects = services.objects
        self._steps = steps

    @activity.defn(name="order_report_read")
    async def list_orders_and_store_report_part(self, params: NextReportPartInput) -> ReportReadingProgress:
        """Read on from the end of the last part for about half a minute, and store what the platform lists."""
        window, began = params.order.window, time.monotonic()
        read_to, lines = params.after.read_to, list[_ListedOrder]()
        async with send_heartbeats_during_block():
            state = await platforms.load_platform_with_settings_in_own_transaction(
                self._database, params.order.platform
            )
            with slice_attempts.convert_platform_failures():
                while read_to < window.end and time.monotonic() - began < PART_SECONDS:
                    [piece] = windows.split_into_slices(read_to, window.end, state.settings.interval, 1)
                    connector = self._steps.build_connector(state, budget=AttemptTimeBudget(patience_seconds=math.inf))
                    contents = await WindowReader(connector, piece, None).read_in_one_pass_and_check_end()
                    copies = [copy.order for copy in contents.copies.values()]
                    lines += [
                        (each.order_id, each.modified_at, each.version)
                        for each in copies
                        if is_filtered_by_creation(state) or window.contains(each.modified_at)
                    ]
                    read_to = piece.end
            await self._objects.put(_build_part_key(params.folder, params.after.number), msgspec.json.encode(lines))
        return ReportReadingProgress(number=params.after.number + 1, read_to=read_to)

    @activity.defn(name="order_report_write")
    async def compare_and_write_report(self, params: NextReportPartInput) -> OrderReportFigures:
        """Compare what the platform listed with the stored orders, and write the workbook."""
        # Workflows import activities for their signatures, and must not pay for pandas.
        from activities.orders import comparison  # noqa: PLC0415

        async with send_heartbeats_during_block():
            parts = [_build_part_key(params.folder, number) for number in range(params.after.number)]
            # Frames of a million orders take seconds, in which no slice of this worker would go on.
            rows = await self._load_listed_orders(parts)
            platform = await asyncio.to_thread(comparison.build_order_version_frame, rows)
            state = await platforms.load_platform_with_settings_in_own_transaction(
                self._database, params.order.platform
            )
            ids = set(platform["order_id"])
            if is_filtered_by_creation(state):
                # The creation time of an order is not stored: only the platform knows which orders belong to the day.
                stored = await order_copies.load_versions_of_orders(self._database, params.order.platform, ids)
            else:
                stored = await order_copies.load_versions_in_window(
                    self._database, params.order.platform, params.order.window
                )
            # A listed order may be stored with a later time: it was modified after the day.
            newer = await order_copies.load_versions_of_orders(
                self._database, params.order.platform, ids - stored.keys()
            )
            compared = await asyncio.to_thread(comparison.compare_with_stored_orders, platform, stored, newer)
            not_listed = None if is_filtered_by_creation(state) else len(compared.not_listed)
            report = await self._build_report(params.order, compared, not_listed)
            book = await asyncio.to_thread(comparison.render_workbook, report, compared)
            await self._objects.put(report.key, book, content_type=CONTENT_TYPE)
            # The figures are written last: a reader of them finds the workbook too. The parts stay until housekeeping
            # deletes them, for a retry of this activity.
            await self._objects.put(names.build_report_manifest_key(report.key), report.model_dump_json().encode())
        log.get(__name__).info(
            "order_report_done",
            platform=report.platform,
            day=str(report.day),
            listed=report.listed,
            stored=report.stored,
            missing=report.missing,
        )
        return report

    async def _load_listed_orders(self, parts: Sequence[str]) -> list[_ListedOrder]:
        """Load what the platform listed, part after part."""
        rows: list[_ListedOrder] = []
        for key in parts:
            rows += msgspec.json.decode(await self._objects.get(key), type=list[_ListedOrder])
        return rows

    async def _build_report(
        self, params: ReportInput, compared: PlatformStoredAndMissingOrderFrames, not_listed: int | None
    ) -> OrderReportFigures:
        return OrderReportFigures(
            platform=params.platform,
            day=params.day,
            made_at=await self._database.now(),
            complete_to=params.complete_to,
            window=params.window,
            zone_minutes=params.zone_minutes,
            listed=len(compared.platform),
            stored=len(compared.stored),
            missing=len(compared.missing),
            not_listed=not_listed,
            key=names.build_report_workbook_key(params.platform, params.day.isoformat()),
        )


def is_filtered_by_creation(state: PlatformWithSettingsInForce) -> bool:
    """Return whether the platform's queries filter by creation time."""
    return state.capability.query.field is FilteredTimestamp.CREATED


def _build_part_key(folder: str, number: int) -> str:
    return f"{folder}{number}.json"

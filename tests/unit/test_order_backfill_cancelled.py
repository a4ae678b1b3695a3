"""A backfill that is cancelled while its end is recorded."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow

from activities.orders.activities import BackfillActivities
from domain.faults import FaultRecord
from domain.orders.activity_models import AlarmsToAnnounce, BackfillInput, BackfillSlicesToRead, PlatformAlarm
from domain.orders.slices import BackfillProgress, BackfillState
from domain.orders.windows import TimeWindow
from domain.secrets import SealedText
from workflows.orders import alarms
from workflows.orders.backfill import OrderBackfillWorkflow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = TimeWindow(start=NOON, end=NOON + timedelta(hours=1))
FAILED = FaultRecord(code="platform_failed", message="It lied.")
ALARM = PlatformAlarm(
    platform="7", project_id="prj_1", notify=SealedText(token="sealed"), type="orders.backfill_failed", message=""
)


async def test_the_alarm_of_its_end_is_sent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The activity may have closed the record already, and no other call of it returns the alarm."""
    is_recording, is_recorded = asyncio.Event(), asyncio.Event()
    sent: list[PlatformAlarm] = []

    async def execute(activity: object, *_: object, **__: object) -> Any:
        if activity is not BackfillActivities.close_backfill_and_alarm_if_failed:
            return BackfillSlicesToRead(jobs=[])
        if is_recording.is_set():
            return AlarmsToAnnounce()
        is_recording.set()
        await is_recorded.wait()
        return AlarmsToAnnounce(alarms=[ALARM])

    async def send(found: list[PlatformAlarm]) -> None:
        sent.extend(found)

    monkeypatch.setattr(workflow, "execute_activity_method", execute)
    monkeypatch.setattr(workflow, "upsert_search_attributes", lambda _: None)
    monkeypatch.setattr(workflow, "set_current_details", lambda _: None)
    monkeypatch.setattr(alarms, "start_alarm_deliveries", send)
    progress = BackfillProgress().add_slice(HOUR, FAILED)
    params = BackfillInput(
        platform="7",
        project_id="prj_1",
        backfill_id="b1",
        window=HOUR,
        requested_by="ann",
        requested_at=NOON,
        progress=progress,
    )

    run = asyncio.create_task(OrderBackfillWorkflow(params).run(params))
    await is_recording.wait()
    run.cancel()
    await asyncio.sleep(0)
    is_recorded.set()

    assert (await run).state is BackfillState.FAILED
    assert sent == [ALARM]

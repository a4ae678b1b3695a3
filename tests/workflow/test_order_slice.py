"""The workflow of a slice on a real engine, beside activities that the test answers for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from temporalio import activity
from temporalio.worker import Worker

from domain.orders import names
from domain.orders.activity_models import (
    PlatformInput,
    ReadSliceInput,
    ReadSliceResult,
    SliceInput,
    SliceJob,
)
from domain.orders.config import PlatformSettings
from domain.orders.slices import SliceReadOutcome, SliceResumePoint
from domain.orders.windows import TimeWindow
from infra import temporal
from workflows.orders.handle import build_search_attributes
from workflows.orders.slice import OrderSliceWorkflow

pytestmark = pytest.mark.stack

PLATFORM = "shop-1"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = TimeWindow(start=NOON, end=NOON + timedelta(hours=1))
STORED = SliceResumePoint(key="answers", kept_at=NOON)
SETTINGS = PlatformSettings(
    version=1,
    starttime=NOON.isoformat(),
    interval=3_600,
    timeout=2,
    retries=100,
    retryintv=0,
    threads=1,
    overlap=5,
    settle_lag=60,
    sweep_after=0,
    max_rows_per_slice=10_000,
    requests_per_second=1,
    burst=1,
    daily_quota=None,
    credentials=None,
)


class AttemptsThatHang:
    """Attempts that store their answers, and end only if they begin where another one has stored them."""

    def __init__(self) -> None:
        self.begun_at: list[SliceResumePoint | None] = []

    @activity.defn(name="order_settings")
    async def load_settings(self, params: PlatformInput) -> PlatformSettings:
        """Return settings with a short timeout."""
        return SETTINGS

    @activity.defn(name="order_read")
    async def read_slice(self, params: ReadSliceInput) -> ReadSliceResult:
        """Tell by heartbeat where the answers are, and wait until it is ended."""
        self.begun_at.append(params.resume_point)
        while params.resume_point is None:
            activity.heartbeat(STORED)
            await asyncio.sleep(0.2)
        return ReadSliceResult(ending=SliceReadOutcome.DONE)


async def test_an_attempt_that_is_ended_by_its_timeout_is_continued_where_it_stored_its_answers(namespace: str) -> None:
    """Its last heartbeat said where; it has no other way to leave word."""
    engine, attempts = await temporal.connect(), AttemptsThatHang()
    workflows = Worker(
        engine, task_queue=names.QUEUE, workflows=[OrderSliceWorkflow], activities=[attempts.load_settings]
    )
    reader = Worker(
        engine,
        task_queue=names.build_slice_queue_name(PLATFORM),
        activities=[attempts.read_slice],
        max_heartbeat_throttle_interval=timedelta(seconds=0.2),
        default_heartbeat_throttle_interval=timedelta(seconds=0.2),
    )
    async with workflows, reader:
        result = await engine.execute_workflow(
            OrderSliceWorkflow.run,
            SliceInput(platform=PLATFORM, project_id="prj_1", job=SliceJob(window=HOUR)),
            id="slice",
            task_queue=names.QUEUE,
            search_attributes=build_search_attributes("prj_1"),
        )

    assert result.done
    assert attempts.begun_at[0] is None
    assert attempts.begun_at[-1] == STORED

"""Orders to be recorded: cycles, slices, backfills, a report and a watch, one of each way that they can take."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import (
    ScheduleActionExecutionStartWorkflow,
    ScheduleBackfill,
    ScheduleOverlapPolicy,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import WorkflowIDReusePolicy

from domain.orders import names
from domain.orders.activity_models import (
    OrderReportFigures,
    OrderWatchPatienceInput,
    PlatformAndCycleRunFlags,
    ReportInput,
    SliceInput,
    SliceJob,
)
from domain.orders.slices import SliceReadPurpose
from domain.orders.windows import LiveOrHistory, TimeWindow
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.replay.recorder import Recorder
from tests.support.waiting import eventually
from workflows.orders.alarms import OrderWatchWorkflow
from workflows.orders.backfill import OrderBackfillWorkflow, OrderReportWorkflow
from workflows.orders.cycle import OrderCycleWorkflow
from workflows.orders.handle import build_search_attributes
from workflows.orders.slice import OrderSliceWorkflow

VARIABLES: Mapping[str, str] = {"HAULAGE_ORDERS__SLICES_AHEAD": "4"}
START = datetime(2026, 1, 1, tzinfo=UTC)
SPAN_SECONDS = 7_200
CREDENTIALS = "recorded"
EVENTS_MAX = 20
"""Runs of a few events go on in another, so that the histories of those that do stay short."""


async def record(recorder: Recorder) -> None:
    """Fetch in every way and keep the histories."""
    await _record_cycles(recorder)
    await _record_slices(recorder)
    await _record_backfills(recorder)
    await _record_reports(recorder)
    await _record_watch(recorder)


async def record_continued(recorder: Recorder) -> None:
    """Runs whose history has grown long: the first of each."""
    busy = PlatformFaults(busy=1, only_first=4, busy_seconds=3)
    await _set_up(
        recorder, "waits", PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=busy), interval=3_600
    )
    await _set_up(recorder, "long", PlatformScenario(orders=300, span_seconds=SPAN_SECONDS))
    for number in ("waits", "long"):
        cycle = await recorder.engine.start_workflow(
            OrderCycleWorkflow.run,
            PlatformAndCycleRunFlags(platform=number),
            id=f"{names.build_cycle_schedule_id(number)}-recorded",
            task_queue=names.QUEUE,
            search_attributes=build_search_attributes(recorder.project_id),
        )
        await cycle.result()
    await recorder.keep(cycle.id, OrderCycleWorkflow.__name__, "continued", run_id=cycle.first_execution_run_id)
    # A part of a report takes half a minute.
    slow = PlatformScenario(orders=300, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=1_500))
    await _set_up(recorder, "slow", slow, interval=200)
    slow_report = await _start_report(recorder, "slow")
    await slow_report.result()
    first_run = slow_report.first_execution_run_id
    await recorder.keep(slow_report.id, OrderReportWorkflow.__name__, "continued", run_id=first_run)
    await recorder.keep(slow_report.id, OrderReportWorkflow.__name__, "went-on")
    backfill_id, first_run = await _backfill(recorder, "long", hours=2)
    await recorder.keep(backfill_id, OrderBackfillWorkflow.__name__, "continued", run_id=first_run)
    await recorder.keep(backfill_id, OrderBackfillWorkflow.__name__, "went-on")
    [waited, *_] = await _slices(recorder, "waits", 9)
    workflow_id = names.build_slice_workflow_id("waits", waited)
    runs = [each async for each in recorder.engine.list_workflows(f"WorkflowId = '{workflow_id}'")]
    first = min(runs, key=lambda each: each.start_time)
    await recorder.keep(workflow_id, OrderSliceWorkflow.__name__, "continued", run_id=first.run_id)
    await recorder.keep(workflow_id, OrderSliceWorkflow.__name__, "went-on")


async def _record_cycles(recorder: Recorder) -> None:
    await _set_up(recorder, "good", PlatformScenario(orders=300, span_seconds=SPAN_SECONDS))
    await _cycle(recorder, "good", "claimed")
    await _cycle(recorder, "good", "nothing-left")
    await _reread(recorder, "good")
    broken = PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1))
    await _set_up(recorder, "dead", broken, retries=0)
    await _cycle(recorder, "dead", "slice-after-slice-failed")
    await _set_up(recorder, "clockless", broken, base_url=f"{recorder.platforms.base}/none")
    with suppress(WorkflowFailureError):
        await _cycle(recorder, "clockless", "clock-unread")
    await _record_refused_credentials(recorder)


async def _record_refused_credentials(recorder: Recorder) -> None:
    """A cycle whose slices wait until the platform takes the credentials again."""
    number = "locked"
    refusing = PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(token_dead=True))
    await _set_up(recorder, number, refusing, interval=3_600)
    cycle = asyncio.create_task(_cycle(recorder, number, "credentials-refused"))

    async def is_noted() -> bool:
        told = await _admin(recorder, "GET", f"/v1/platforms/{number}")
        return told["credentials_failed_since"] is not None

    await eventually(is_noted)
    recorder.platforms.by_number[number].set(refusing.model_copy(update={"faults": PlatformFaults()}))
    await cycle


async def _record_slices(recorder: Recorder) -> None:
    [first] = await _slices(recorder, "good", 1)
    await _keep_slice(recorder, "good", first, "", "done")
    for suffix in ("sweep", "again"):
        await _slice(
            recorder,
            "good",
            first,
            suffix,
            SliceReadPurpose.SWEEP if suffix == "sweep" else SliceReadPurpose.AGAIN,
            suffix,
        )
    await _set_up(recorder, "large", PlatformScenario(orders=300, span_seconds=SPAN_SECONDS), max_rows_per_slice=20)
    await _cycle(recorder, "large", "split")
    split = (await _slices(recorder, "large", 200, "split"))[-1]
    await _keep_slice(recorder, "large", split, "", "split")
    [failed] = await _slices(recorder, "dead", 1, "failed")
    await _keep_slice(recorder, "dead", failed, "", "failed")
    await _keep_slice(recorder, "locked", (await _slices(recorder, "locked", 9))[-1], "", "waited-for-credentials")
    flaky = PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(errors=1, only_first=4))
    await _set_up(recorder, "flaky", flaky, interval=3_600)
    await _cycle(recorder, "flaky", "after-retries")
    await _keep_slice(recorder, "flaky", (await _slices(recorder, "flaky", 9))[-1], "", "retried")
    busy = PlatformScenario(
        orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(busy=1, only_first=2, busy_seconds=3)
    )
    await _set_up(recorder, "busy", busy, interval=3_600)
    await _cycle(recorder, "busy", "after-waits")
    await _keep_slice(recorder, "busy", (await _slices(recorder, "busy", 9))[-1], "", "told-to-wait")


async def _record_backfills(recorder: Recorder) -> None:
    succeeded, _ = await _backfill(recorder, "good", hours=1)
    await recorder.keep(succeeded, OrderBackfillWorkflow.__name__, "succeeded")
    platform = recorder.platforms.by_number["good"]
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(errors=1)}))
    failed, _ = await _backfill(recorder, "good", hours=2)
    await recorder.keep(failed, OrderBackfillWorkflow.__name__, "failed")
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=1_000)}))
    cancelled, _ = await _backfill(recorder, "good", hours=1, cancelled=True)
    await recorder.keep(cancelled, OrderBackfillWorkflow.__name__, "cancelled")
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))


async def _backfill(recorder: Recorder, number: str, *, hours: int, cancelled: bool = False) -> tuple[str, str]:
    """Read the first hours of a platform again; the workflow's id, and that of its first run."""
    times = {"start": START.isoformat(), "end": (START + timedelta(hours=hours)).isoformat()}
    record = await _admin(recorder, "POST", f"/v1/platforms/{number}/backfill", times)
    handle = recorder.engine.get_workflow_handle(record["workflow_id"])
    first_run = (await handle.describe()).run_id
    if cancelled:

        async def is_reading() -> bool:
            told = await _admin(recorder, "GET", f"/v1/platforms/{number}/slices?reread=running")
            return bool(told["items"])

        await eventually(is_reading)
        await handle.cancel()

    async def is_over() -> bool:
        told = await _admin(recorder, "GET", f"/v1/platforms/{number}/backfills/{record['backfill_id']}")
        return bool(told["state"] != "running")

    await eventually(is_over)
    with suppress(WorkflowFailureError):
        await handle.result()
    return record["workflow_id"], first_run


async def _record_reports(recorder: Recorder) -> None:
    """One that is made, one whose platform refuses every request, and one that is cancelled while it reads."""
    for number, name in (("good", "compared"), ("clockless", "failed")):
        report = await _start_report(recorder, number)
        await recorder.wait_for_end(report.id)
        await recorder.keep(report.id, OrderReportWorkflow.__name__, name)
    slow = PlatformScenario(orders=30, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=1_500))
    await _set_up(recorder, "unhurried", slow)
    report = await _start_report(recorder, "unhurried")

    async def is_reading() -> bool:
        pending = (await report.describe()).raw_description.pending_activities
        return any(each.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED for each in pending)

    await eventually(is_reading)
    await report.cancel()
    await recorder.wait_for_end(report.id)
    await recorder.keep(report.id, OrderReportWorkflow.__name__, "cancelled")


async def _start_report(recorder: Recorder, number: str) -> WorkflowHandle[OrderReportWorkflow, OrderReportFigures]:
    return await recorder.engine.start_workflow(
        OrderReportWorkflow.run,
        ReportInput(
            platform=number,
            day=START.date(),
            window=TimeWindow(start=START, end=START + timedelta(seconds=SPAN_SECONDS)),
        ),
        id=names.build_report_workflow_id(number, "2026-01-01"),
        task_queue=names.QUEUE,
    )


async def _record_watch(recorder: Recorder) -> None:
    workflow_id = f"{names.WATCH}-recorded"
    await recorder.engine.execute_workflow(
        OrderWatchWorkflow.run, OrderWatchPatienceInput(patience_seconds=5), id=workflow_id, task_queue=names.QUEUE
    )
    await recorder.keep(workflow_id, OrderWatchWorkflow.__name__, "served")


async def _set_up(
    recorder: Recorder, number: str, scenario: PlatformScenario, base_url: str = "", **options: Any
) -> None:
    platform = recorder.platforms.add(number, scenario)
    folder = Path(os.environ["HAULAGE_ORDERS__CREDENTIALS_FOLDER"])
    (folder / f"{CREDENTIALS}.json").write_text(json.dumps(platform.dialect.credentials(platform.tokens.good)))
    body = {
        "project_id": recorder.project_id,
        "kind": "plain",
        "shop": "shop",
        "base_url": base_url or recorder.platforms.url(number),
        "capability": PLAIN.model_dump(mode="json"),
        "notify_url": recorder.receiver.url(tag=number),
    }
    await _admin(recorder, "PUT", f"/v1/platforms/{number}", body)
    await _admin(recorder, "POST", f"/v1/platforms/{number}/pause", {"who": "ann", "reason": "recorded"})
    config = {"starttime": START.isoformat(), "credentials": CREDENTIALS, "retryintv": 0.1, "sweep_after": 0}
    await _admin(recorder, "PUT", f"/v1/platforms/{number}/config", {**config, **options})


async def _cycle(recorder: Recorder, number: str, name: str) -> None:
    workflow_id = f"{names.build_cycle_schedule_id(number)}-recorded"
    try:
        await recorder.engine.execute_workflow(
            OrderCycleWorkflow.run,
            PlatformAndCycleRunFlags(platform=number),
            id=workflow_id,
            task_queue=names.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            search_attributes=build_search_attributes(recorder.project_id),
        )
    finally:
        await recorder.keep(workflow_id, OrderCycleWorkflow.__name__, name)


async def _reread(recorder: Recorder, number: str) -> None:
    """A run whose time is over, as a backfill of the schedule starts it."""
    schedule = recorder.engine.get_schedule_handle(names.build_cycle_schedule_id(number))
    start = START + timedelta(minutes=15)
    await schedule.backfill(
        ScheduleBackfill(start_at=start, end_at=start + timedelta(minutes=1), overlap=ScheduleOverlapPolicy.ALLOW_ALL)
    )

    async def ran() -> str:
        actions = (await schedule.describe()).info.recent_actions
        started = [each.action for each in actions if each.scheduled_at.month == START.month]
        return next(
            (each.workflow_id for each in started if isinstance(each, ScheduleActionExecutionStartWorkflow)), ""
        )

    workflow_id = await eventually(ran)
    await recorder.engine.get_workflow_handle(workflow_id).result()
    await recorder.keep(workflow_id, OrderCycleWorkflow.__name__, "reads-again")


async def _slices(recorder: Recorder, number: str, limit: int, state: str = "done") -> list[TimeWindow]:
    told = await _admin(recorder, "GET", f"/v1/platforms/{number}/slices?limit={limit}&state={state}")
    return [TimeWindow.model_validate(each["window"]) for each in told["items"]]


async def _slice(
    recorder: Recorder, number: str, window: TimeWindow, suffix: str, purpose: SliceReadPurpose, name: str
) -> None:
    job = SliceJob(window=window, track=LiveOrHistory.HISTORY, purpose=purpose, suffix=suffix)
    await recorder.engine.execute_workflow(
        OrderSliceWorkflow.run,
        SliceInput(platform=number, project_id=recorder.project_id, job=job),
        id=names.build_slice_workflow_id(number, window, suffix),
        task_queue=names.QUEUE,
        search_attributes=build_search_attributes(recorder.project_id),
    )
    await _keep_slice(recorder, number, window, suffix, name)


async def _keep_slice(recorder: Recorder, number: str, window: TimeWindow, suffix: str, name: str) -> None:
    await recorder.keep(names.build_slice_workflow_id(number, window, suffix), OrderSliceWorkflow.__name__, name)


async def _admin(recorder: Recorder, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {recorder.running.admin_key}"}
    async with recorder.session.request(method, path, json=body, headers=headers) as answer:
        assert answer.status < 300, await answer.text()
        return await answer.json()

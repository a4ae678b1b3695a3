"""Starting and finding the workflows of orders from outside, and their schedules."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.common import TypedSearchAttributes

from domain.orders import names
from domain.orders.activity_models import BackfillInput, OrderCycleInput, ReportInput, SliceInput, WatchInput
from infra import starts
from infra.settings import Settings
from infra.starts import SameIdPolicy, WorkflowStart

CYCLE_SECONDS: Final = 60
WATCH_SECONDS: Final = 20
_CATCH_UP: Final = timedelta(minutes=2)


async def ensure_platform(client: Client, platform: str, project_id: str, pause_note: str = "") -> ScheduleHandle:
    """Create or update a platform's schedule; a paused one stays paused.

    Args:
        pause_note: If given, the schedule is paused with this note, a new one before its first run.
    """
    schedule = _build_cycle_schedule(platform, project_id)
    schedule.state = ScheduleState(paused=bool(pause_note), note=pause_note or None)
    found = await starts.ensure_schedule(client, names.schedule_id(platform), schedule)
    if pause_note:
        await found.pause(note=pause_note)
    return found


async def find_platform(client: Client, platform: str, project_id: str) -> ScheduleHandle:
    """Return a platform's schedule; create it if the engine has lost it."""
    return await starts.find_schedule(client, names.schedule_id(platform), _build_cycle_schedule(platform, project_id))


async def create_or_update_schedules(client: Client, settings: Settings) -> None:
    """Create or update the schedule of the watch; those of platforms are created with them."""
    await ensure_watch(client)


async def ensure_watch(client: Client) -> ScheduleHandle:
    """Create or update the schedule of the watch."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(names.WATCH_WORKFLOW, WatchInput(), id=names.WATCH, task_queue=names.QUEUE),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=WATCH_SECONDS))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=WATCH_SECONDS)),
    )
    return await starts.ensure_schedule(client, names.WATCH, schedule)


def _build_cycle_schedule(platform: str, project_id: str) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            names.CYCLE_WORKFLOW,
            OrderCycleInput(platform=platform, heeds_pause=True),
            id=names.schedule_id(platform),
            task_queue=names.QUEUE,
            typed_search_attributes=build_attributes(project_id),
            static_summary=f"orders of {platform}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=CYCLE_SECONDS))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )


def build_attributes(project_id: str, state: str = "pending") -> TypedSearchAttributes:
    """Build the search attributes of a workflow of orders."""
    return starts.build_search_attributes(names.SYSTEM, project_id=project_id, state=state)


async def start_backfill(engine: Client, params: BackfillInput) -> bool:
    """Start a backfill; return False where this time is already being read again."""
    backfill = WorkflowStart(
        workflow=names.BACKFILL_WORKFLOW,
        argument=params,
        id=names.backfill_id(params.platform, params.window),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE_WHILE_RUNNING,
        attributes=build_attributes(params.project_id, "running"),
        summary=f"read {params.window} again",
    )
    return await starts.start_workflow(engine, backfill)


async def start_report(engine: Client, project_id: str, params: ReportInput) -> str:
    """Start a report unless it is already being made; return the id of the workflow."""
    report = WorkflowStart(
        workflow=names.REPORT_WORKFLOW,
        argument=params,
        id=names.report_id(params.platform, params.day.isoformat()),
        queue=names.QUEUE,
        same_id=SameIdPolicy.JOIN_WHILE_RUNNING,
        attributes=build_attributes(project_id),
        summary=f"compare {params.day} of {params.platform}",
    )
    await starts.start_workflow(engine, report)
    return report.id


async def redo_slice(engine: Client, params: SliceInput) -> None:
    """Start to read a slice again, unless that is already under way."""
    window = params.job.window
    redo = WorkflowStart(
        workflow=names.SLICE_WORKFLOW,
        argument=params,
        id=names.slice_id(params.platform, window, names.REDO_SUFFIX),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE_WHILE_RUNNING,
        attributes=build_attributes(params.project_id, "running"),
        summary=f"redo {window}",
    )
    await starts.start_workflow(engine, redo)

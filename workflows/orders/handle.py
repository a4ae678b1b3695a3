"""Starting and finding the workflows of orders from outside, and their schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.common import QueryRejectCondition, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from domain.orders import names
from domain.orders.activity_models import (
    BackfillInput,
    OrderWatchPatienceInput,
    PlatformAndCycleRunFlags,
    ReportInput,
    SliceInput,
    SliceStatus,
)
from domain.orders.windows import TimeWindow
from infra import outages, starts
from infra.database import Database
from infra.settings import Settings
from infra.starts import SameIdPolicy, WorkflowStart
from stores.orders import platforms

CYCLE_SECONDS: Final = 60
SETUP_PAUSE_NOTE: Final = "set up paused through the API"
"""Why a schedule is paused that was not paused or resumed since its platform was set up."""
WATCH_SECONDS: Final = 20
_CATCH_UP: Final = timedelta(minutes=2)
_TRIGGERS_AT_A_TIME: Final = 8


async def create_or_update_cycle_schedule(
    engine: Client, platform: str, project_id: str, pause_note: str = ""
) -> ScheduleHandle:
    """Create or update a platform's schedule; a paused one stays paused.

    Args:
        pause_note: If given, the schedule is paused with this note, a new one before its first run.
    """
    schedule = _build_cycle_schedule(platform, project_id)
    schedule.state = ScheduleState(paused=bool(pause_note), note=pause_note or None)
    found = await starts.create_or_update_schedule(engine, names.build_cycle_schedule_id(platform), schedule)
    if pause_note:
        await starts.set_schedule_paused(found, pause_note, is_paused=True)
    return found


async def find_or_create_cycle_schedule(engine: Client, platform: str, project_id: str) -> ScheduleHandle:
    """Return a platform's schedule; create it if the engine has lost it."""
    return await starts.get_or_create_schedule(
        engine, names.build_cycle_schedule_id(platform), _build_cycle_schedule(platform, project_id)
    )


async def trigger_cycles_of_unpaused_platforms(engine: Client, database: Database) -> None:
    """Have each platform that is not paused claim now what has settled; a run that is under way does so anyway."""
    permits = asyncio.Semaphore(_TRIGGERS_AT_A_TIME)

    async def trigger_unless_paused(platform: str) -> None:
        name = names.build_cycle_schedule_id(platform)
        async with permits:
            # A trigger would also start a paused schedule.
            if not await starts.is_schedule_paused(engine, name):
                await starts.trigger_schedule_if_there(engine, name)

    await asyncio.gather(*map(trigger_unless_paused, await platforms.list_platform_numbers(database)))


async def create_or_update_schedules(engine: Client, database: Database, settings: Settings) -> None:
    """Create or update the schedule of the watch, which runs once there is a platform; platforms have their own."""
    await create_or_update_watch_schedule(engine, has_platforms=bool(await platforms.list_platform_numbers(database)))


async def create_or_update_watch_schedule(engine: Client, *, has_platforms: bool = True) -> ScheduleHandle:
    """Create or update the schedule of the watch, without an interval where there is no platform."""
    return await starts.create_or_update_schedule(
        engine, names.WATCH, _build_watch_schedule(has_platforms=has_platforms)
    )


async def set_watch_schedule_intervals_if_none(engine: Client) -> None:
    """Have the watch run from the first platform on, where the installation was prepared; a paused one stays paused."""
    await starts.set_schedule_intervals_if_none(engine, names.WATCH, _build_watch_schedule())


def _build_watch_schedule(*, has_platforms: bool = True) -> Schedule:
    intervals = [ScheduleIntervalSpec(every=timedelta(seconds=WATCH_SECONDS))] if has_platforms else []
    return Schedule(
        action=ScheduleActionStartWorkflow(
            names.WATCH_WORKFLOW,
            OrderWatchPatienceInput(),
            id=names.WATCH,
            task_queue=names.QUEUE,
            typed_search_attributes=starts.build_search_attributes(names.SYSTEM),
            static_summary="watch over all platforms",
        ),
        spec=ScheduleSpec(intervals=intervals),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=WATCH_SECONDS)),
    )


def _build_cycle_schedule(platform: str, project_id: str) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            names.CYCLE_WORKFLOW,
            PlatformAndCycleRunFlags(platform=platform, heeds_pause=True),
            id=names.build_cycle_schedule_id(platform),
            task_queue=names.QUEUE,
            typed_search_attributes=build_search_attributes(project_id),
            static_summary=f"orders of {platform}",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(seconds=CYCLE_SECONDS))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )


def build_search_attributes(project_id: str, state: str = starts.STANDING) -> TypedSearchAttributes:
    return starts.build_search_attributes(names.SYSTEM, project_id=project_id, state=state)


async def start_backfill(engine: Client, params: BackfillInput) -> bool:
    """Start a backfill; return False where this time is already being read again."""
    backfill = WorkflowStart(
        workflow=names.BACKFILL_WORKFLOW,
        argument=params,
        id=names.build_backfill_workflow_id(params.platform, params.window),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE_WHILE_RUNNING,
        attributes=build_search_attributes(params.project_id, "running"),
        summary=f"read {params.window} again",
    )
    return await starts.start_workflow(engine, backfill)


async def start_report(engine: Client, project_id: str, params: ReportInput) -> str:
    """Start a report unless it is already being made; return the id of the workflow."""
    report = WorkflowStart(
        workflow=names.REPORT_WORKFLOW,
        argument=params,
        id=names.build_report_workflow_id(params.platform, params.day.isoformat()),
        queue=names.QUEUE,
        same_id=SameIdPolicy.JOIN_WHILE_RUNNING,
        attributes=build_search_attributes(project_id, "running"),
        summary=f"compare {params.day} of {params.platform}",
    )
    await starts.start_workflow(engine, report)
    return report.id


async def terminate_workflows_and_delete_schedule(
    engine: Client, platform: str, unfinished_windows: Sequence[TimeWindow] = (), workflow_ids: Sequence[str] = ()
) -> bool:
    """Terminate what still runs for a platform that was removed, then delete its schedule; return whether it had one.

    Where that fails midway, the schedule is still there, so that it can be repeated. Whatever waits for its workers has
    to end, as they leave its queues.

    Args:
        unfinished_windows: Slices that may be being read; the engine lists one that has just begun a moment later.
        workflow_ids: Ids of other workflows of the platform, for the same reason.
    """
    schedule = engine.get_schedule_handle(names.build_cycle_schedule_id(platform))
    try:
        actions = (await schedule.describe()).info.running_actions
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        return False
    cycles = [each.workflow_id for each in actions if isinstance(each, ScheduleActionExecutionStartWorkflow)]
    readings = [names.build_slice_workflow_id(platform, window) for window in unfinished_windows]
    query = " OR ".join(f"WorkflowId STARTS_WITH '{each}'" for each in names.list_workflow_id_prefixes(platform))
    found = [each.id async for each in engine.list_workflows(f"ExecutionStatus = 'Running' AND ({query})")]
    # Backfills before the slices that they start.
    for workflow_id in dict.fromkeys([*cycles, *workflow_ids, *readings, *sorted(found)]):
        try:
            await engine.get_workflow_handle(workflow_id).terminate(reason="its platform was removed")
        except RPCError as error:
            # It is not running, or has ended meanwhile.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
    await starts.remove_schedule(engine, names.build_cycle_schedule_id(platform))
    return True


async def query_slice_status(engine: Client, workflow_id: str, timeout: timedelta) -> SliceStatus:
    """Return the status of a slice that is being read."""
    status: SliceStatus = await engine.get_workflow_handle(workflow_id).query(
        names.STATUS, result_type=SliceStatus, reject_condition=QueryRejectCondition.NOT_OPEN, rpc_timeout=timeout
    )
    return status


async def end_pause_of_slice(engine: Client, platform: str, window: TimeWindow) -> bool:
    """Have an open slice make its next attempt now; return False if its workflow is not running."""
    try:
        await engine.get_workflow_handle(names.build_slice_workflow_id(platform, window)).signal(names.END_PAUSE)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def start_slice_reread_unless_running(engine: Client, params: SliceInput) -> None:
    """Start to read a slice again, unless that is already under way."""
    window = params.job.window
    redo = WorkflowStart(
        workflow=names.SLICE_WORKFLOW,
        argument=params,
        id=names.build_slice_workflow_id(params.platform, window, names.REDO_SUFFIX),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE_WHILE_RUNNING,
        attributes=build_search_attributes(params.project_id, "running"),
        summary=f"redo {window}",
    )
    await starts.start_workflow(engine, redo)

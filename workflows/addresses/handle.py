"""Start, find, query and steer the workflows of addresses from outside, and make their schedules."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
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
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import QueryRejectCondition
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError

from clients.modules import ModuleFailure
from domain.addresses import names
from domain.addresses.activity_models import (
    AddressCycleStatus,
    CarriedCycleTotals,
    ComparisonIdInput,
    IntakeTopicAndCarriedCounts,
    PurgeAddressesInput,
)
from domain.addresses.messages import Topic
from domain.faults import FaultRecord
from infra import log, outages, starts
from infra.database import Database
from infra.settings import Settings
from infra.starts import SameIdPolicy, WorkflowStart
from services import addresses
from services.services import Services
from stores.addresses import cycle
from workflows import activity_calls

INTAKE_CHECK_SECONDS: Final = 60.0
"""How often an intake that was terminated is started again."""
_log = log.get(__name__)

_CATCH_UP: Final = timedelta(minutes=2)
_CHECK_CATCH_UP: Final = timedelta(hours=1)
_COMPARE_AGAIN: Final = "Compare the modules again."


async def create_or_update_schedules(engine: Client, database: Database, settings: Settings) -> None:
    """Create or update the schedules of cycles and of checks; a paused one stays paused.

    Cycles run at intervals where something is configured or a message is left; else from the first message on.
    """
    effective = await addresses.load_effective_settings(database, settings.addresses)
    is_used = effective.is_configured or await cycle.has_messages_in_log(database)
    await create_or_update_cycle_schedule(engine, effective.pause_seconds if is_used else None)
    await create_or_update_check_schedule(engine, effective.check_hours)


async def create_or_update_cycle_schedule(engine: Client, pause_seconds: float | None) -> ScheduleHandle:
    """Create or update the schedule of cycles, without an interval if None; a paused one stays paused."""
    return await starts.create_or_update_schedule(engine, names.CYCLE_SCHEDULE, _build_cycle_schedule(pause_seconds))


async def find_or_create_cycle_schedule(engine: Client, pause_seconds: float) -> ScheduleHandle:
    """Return the schedule of cycles, created again if the engine has lost it."""
    return await starts.get_or_create_schedule(engine, names.CYCLE_SCHEDULE, _build_cycle_schedule(pause_seconds))


async def create_or_update_check_schedule(engine: Client, hours: float) -> ScheduleHandle:
    """Create or update the schedule of checks; a paused one stays paused."""
    return await starts.create_or_update_schedule(engine, names.CHECK_SCHEDULE, _build_check_schedule(hours))


async def find_or_create_check_schedule(engine: Client, hours: float) -> ScheduleHandle:
    """Return the schedule of checks, created again if the engine has lost it."""
    return await starts.get_or_create_schedule(engine, names.CHECK_SCHEDULE, _build_check_schedule(hours))


async def update_schedule_intervals(engine: Client, pause_seconds: float, check_hours: float) -> None:
    """Set the intervals of both schedules, where they differ; a paused one stays paused."""
    for name, schedule in (
        (names.CYCLE_SCHEDULE, _build_cycle_schedule(pause_seconds)),
        (names.CHECK_SCHEDULE, _build_check_schedule(check_hours)),
    ):
        found = (await (await starts.get_or_create_schedule(engine, name, schedule)).describe()).schedule.spec.intervals
        if [each.every for each in found] != [each.every for each in schedule.spec.intervals]:
            await starts.create_or_update_schedule(engine, name, schedule)


def _build_cycle_schedule(pause_seconds: float | None) -> Schedule:
    intervals = [] if pause_seconds is None else [ScheduleIntervalSpec(every=timedelta(seconds=pause_seconds))]
    return Schedule(
        action=ScheduleActionStartWorkflow(
            names.CYCLE_WORKFLOW,
            CarriedCycleTotals(),
            id=names.CYCLE_SCHEDULE,
            task_queue=names.QUEUE,
            typed_search_attributes=starts.build_search_attributes(names.SYSTEM),
            static_summary="changes of addresses",
        ),
        spec=ScheduleSpec(intervals=intervals),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CATCH_UP),
    )


def _build_check_schedule(hours: float) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            names.CHECK_WORKFLOW,
            id=names.CHECK_SCHEDULE,
            task_queue=names.QUEUE,
            typed_search_attributes=starts.build_search_attributes(names.SYSTEM),
            static_summary="logical deletes of addresses",
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(hours=hours))]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=_CHECK_CATCH_UP),
    )


async def keep_intakes_running(services: Services, stop: asyncio.Event) -> None:
    """Keep an intake of each topic running until `stop` is set, where this installation pulls."""
    if not services.settings.addresses.pubsub.project:
        return
    while not stop.is_set():
        try:
            await start_intake_workflow_of_each_topic(services.engine)
        except RPCError as error:
            _log.warning("address_intake_start_failed", error=str(error))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), INTAKE_CHECK_SECONDS)


async def start_intake_workflow_of_each_topic(engine: Client) -> None:
    """Start the intake of each topic, unless it is running."""
    for topic in Topic:
        intake = WorkflowStart(
            workflow=names.INTAKE_WORKFLOW,
            argument=IntakeTopicAndCarriedCounts(topic=topic),
            id=names.build_intake_workflow_id(topic),
            queue=names.INTAKE_QUEUE,
            same_id=SameIdPolicy.JOIN_WHILE_RUNNING,
            attributes=starts.build_search_attributes(names.SYSTEM),
            summary=f"pull {topic}",
        )
        await starts.start_workflow(engine, intake)


class WorkflowState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


async def read_workflow_state(engine: Client, workflow_id: str) -> WorkflowState | None:
    """Return the state of a workflow, or None if the engine does not know its id."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if outages.is_workflow_or_schedule_missing(error):
            return None
        raise
    match description.status:
        case WorkflowExecutionStatus.RUNNING:
            return WorkflowState.RUNNING
        case WorkflowExecutionStatus.COMPLETED:
            return WorkflowState.SUCCEEDED
        case _:
            return WorkflowState.FAILED


async def read_fault_of_failed_comparison(engine: Client, workflow_id: str) -> FaultRecord:
    """Return why a comparison has failed."""
    cause: BaseException | None = None
    try:
        await engine.get_workflow_handle(workflow_id).result()
    except WorkflowFailureError as error:
        cause = error.cause
    match cause:
        case ActivityError(cause=ApplicationError(type=ModuleFailure.__name__, message=message)):
            return FaultRecord(code="module_failed", message=message, hint=_COMPARE_AGAIN, retryable=True)
        case ActivityError() as failed:
            return activity_calls.build_fault(failed)
    why = "before it was done" if cause is None else f"before it was done: {cause}"
    message = f"The workflow of the comparison was ended in Temporal {why}.".replace("..", ".")
    return FaultRecord(code="comparison_ended", message=message, hint=_COMPARE_AGAIN)


async def query_cycle_status(engine: Client, workflow_id: str, timeout: timedelta) -> AddressCycleStatus:
    """Return the status of a running cycle."""
    status: AddressCycleStatus = await engine.get_workflow_handle(workflow_id).query(
        names.STATUS,
        result_type=AddressCycleStatus,
        reject_condition=QueryRejectCondition.NOT_OPEN,
        rpc_timeout=timeout,
    )
    return status


async def start_purge(engine: Client, purge_id: str, params: PurgeAddressesInput) -> None:
    purge = WorkflowStart(
        workflow=names.PURGE_WORKFLOW,
        argument=params,
        id=names.build_purge_workflow_id(purge_id),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=starts.build_search_attributes(names.SYSTEM, state=names.RUNNING),
        summary=f"purge {len(params.address_ids)} addresses",
    )
    await starts.start_workflow(engine, purge)


async def start_comparison(engine: Client, params: ComparisonIdInput) -> None:
    """Start a comparison of the modules; a second one with the same id joins it."""
    comparison = WorkflowStart(
        workflow=names.COMPARISON_WORKFLOW,
        argument=params,
        id=names.build_comparison_workflow_id(params.comparison_id),
        queue=names.QUEUE,
        same_id=SameIdPolicy.JOIN_WHILE_RUNNING,
        attributes=starts.build_search_attributes(names.SYSTEM, state=names.RUNNING),
        summary="compare modules",
    )
    await starts.start_workflow(engine, comparison)

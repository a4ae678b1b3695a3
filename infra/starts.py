"""Starting workflows from outside: at once, together with an update, or by a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from temporalio.client import (
    Client,
    Schedule,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleUpdate,
    ScheduleUpdateInput,
    WithStartWorkflowOperation,
)
from temporalio.common import (
    Priority,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from infra import outages, temporal
from infra.interceptors import ALL_PROJECTS

SUMMARY_MAX_BYTES: Final = 300
"""Temporal documents a limit of 400, which counts quotes and what JSON escapes; its servers may take more."""

_PATCHES_MAX: Final = 5

STANDING: Final = "standing"
"""The state of workflows without an outcome of their own, such as cycles and lanes: lists leave them out by it."""


class SameIdPolicy(Enum):
    """What a start does if its id is in use: the policies for a workflow that has ended, and for one that runs."""

    REFUSE = (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDConflictPolicy.FAIL)
    """An id is used once, for as long as the engine remembers it."""
    REFUSE_WHILE_RUNNING = (WorkflowIDReusePolicy.ALLOW_DUPLICATE, WorkflowIDConflictPolicy.FAIL)
    JOIN_WHILE_RUNNING = (WorkflowIDReusePolicy.ALLOW_DUPLICATE, WorkflowIDConflictPolicy.USE_EXISTING)
    JOIN_OR_REFUSE = (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDConflictPolicy.USE_EXISTING)
    """A running workflow takes the start; one that has ended is not started again."""


@dataclass(frozen=True, kw_only=True)
class WorkflowStart:
    """A workflow to be started.

    Args:
        workflow: The registered name of its class.
        argument: The one argument that it takes.
        same_id: What happens if there is a workflow with this id.
        attributes: The search attributes that the engine finds it by.
        summary: What it is for, in a few words for the Web UI; cut where it is too long.
        signal: A signal for the new workflow, or for the running one that the start joins.
        task_timeout: How long a worker may take over one of its tasks; the engine's default if None.
    """

    workflow: str
    argument: object
    id: str
    queue: str
    same_id: SameIdPolicy
    attributes: TypedSearchAttributes
    summary: str
    memo: Mapping[str, Any] | None = None
    signal: str | None = None
    task_timeout: timedelta | None = None
    priority: Priority = Priority.default

    @property
    def start_options(self) -> dict[str, Any]:
        """The arguments that the SDK's ways to start a workflow have in common."""
        reuse, conflict = self.same_id.value
        return {
            "id": self.id,
            "task_queue": self.queue,
            "id_reuse_policy": reuse,
            "id_conflict_policy": conflict,
            "search_attributes": self.attributes,
            "static_summary": self.summary.encode()[:SUMMARY_MAX_BYTES].decode(errors="ignore"),
            "memo": self.memo,
            "task_timeout": self.task_timeout,
            "priority": self.priority,
        }


async def start_workflow(engine: Client, start: WorkflowStart) -> bool:
    """Start a workflow; return False if that was refused because of another one with the same id."""
    try:
        await engine.start_workflow(start.workflow, start.argument, start_signal=start.signal, **start.start_options)
    except WorkflowAlreadyStartedError:
        return False
    return True


def build_start_with_update(start: WorkflowStart) -> WithStartWorkflowOperation[Any, Any]:
    """Return the SDK's operation for a start that goes together with an update."""
    return WithStartWorkflowOperation[Any, Any](start.workflow, start.argument, **start.start_options)


def build_search_attributes(
    system: str, *, project_id: str = ALL_PROJECTS, state: str = STANDING
) -> TypedSearchAttributes:
    """Return the search attributes of a workflow of a system."""
    return TypedSearchAttributes(
        [
            SearchAttributePair(temporal.SYSTEM, system),
            SearchAttributePair(temporal.PROJECT, project_id),
            SearchAttributePair(temporal.STATE, state),
        ]
    )


async def create_or_update_schedule(engine: Client, name: str, schedule: Schedule) -> ScheduleHandle:
    """Create a schedule, or update the one of this name; a paused one stays paused."""
    try:
        return await engine.create_schedule(name, schedule)
    except ScheduleAlreadyRunningError:
        handle = engine.get_schedule_handle(name)
        await handle.update(lambda current: _build_schedule_update_keeping_state(current, schedule))
        return handle


async def get_or_create_schedule(engine: Client, name: str, schedule: Schedule) -> ScheduleHandle:
    """Return the schedule of this name as it is; create it only if the engine has lost it.

    An update writes the whole state that was read a moment before, and so undoes a pause that came in between.
    """
    handle = engine.get_schedule_handle(name)
    try:
        await handle.describe()
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        return await create_or_update_schedule(engine, name, schedule)
    return handle


async def set_schedule_intervals_if_none(engine: Client, name: str, schedule: Schedule) -> None:
    """Give a schedule that has no interval those of this one; do nothing if it has some, or is missing."""
    handle = engine.get_schedule_handle(name)
    try:
        spec = (await handle.describe()).schedule.spec
        if not spec.intervals:
            await handle.update(lambda current: _build_schedule_update_keeping_state(current, schedule))
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise


async def remove_schedule(engine: Client, name: str) -> None:
    """Remove a schedule if there is one."""
    try:
        await engine.get_schedule_handle(name).delete()
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise


async def set_schedule_paused(schedule: ScheduleHandle, note: str, *, is_paused: bool) -> ScheduleDescription:
    """Pause or unpause a schedule, and return what it is then.

    Of several patches that reach a schedule at once, such as a pause and a trigger, the engine heeds the last only: one
    that was overtaken is sent again.
    """
    for _ in range(_PATCHES_MAX):
        await (schedule.pause(note=note) if is_paused else schedule.unpause(note=note))
        description = await schedule.describe()
        if description.schedule.state.paused is is_paused:
            break
    return description


async def is_schedule_paused(engine: Client, name: str) -> bool:
    """Return whether a schedule is paused; a missing one is not."""
    try:
        return (await engine.get_schedule_handle(name).describe()).schedule.state.paused
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise
        return False


async def list_paused_schedules(engine: Client, timeout: timedelta | None = None) -> set[str]:
    """List the names of the paused schedules, as of a moment ago."""
    found = await engine.list_schedules(query="TemporalSchedulePaused = true", rpc_timeout=timeout)
    return {each.id async for each in found}


async def trigger_schedule_if_there(engine: Client, name: str) -> None:
    """Start a run of a schedule now, as its policy for overlaps allows; a missing schedule is left alone."""
    try:
        await engine.get_schedule_handle(name).trigger()
    except RPCError as error:
        if not outages.is_workflow_or_schedule_missing(error):
            raise


def list_next_run_times(description: ScheduleDescription) -> list[datetime]:
    """Return when a schedule runs next; nothing for a paused one, although the engine lists times for it as well."""
    return [] if description.schedule.state.paused else list(description.info.next_action_times)


def _build_schedule_update_keeping_state(current: ScheduleUpdateInput, schedule: Schedule) -> ScheduleUpdate:
    schedule.state = current.description.schedule.state
    return ScheduleUpdate(schedule=schedule)

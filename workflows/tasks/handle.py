"""How lanes of tasks are started and found from outside."""

from __future__ import annotations

from contextlib import suppress

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from domain.tasks import names
from domain.tasks.carrying import LaneOrder
from infra import temporal
from infra.settings import Settings


async def start_lane(engine: Client, order: LaneOrder, summary: str) -> None:
    """Start a lane, unless it was started before."""
    with suppress(WorkflowAlreadyStartedError):
        await engine.start_workflow(
            names.LANE_WORKFLOW,
            order,
            id=names.lane_id(order.type, order.pos),
            task_queue=names.QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            search_attributes=attributes(),
            static_summary=summary,
        )


def attributes() -> TypedSearchAttributes:
    """How lanes are found in the engine; their ids tell type and position."""
    return TypedSearchAttributes([SearchAttributePair(temporal.ROOM, names.SYSTEM)])


async def ensure_schedules(client: Client, settings: Settings) -> None:
    """Make none: only housekeeping runs by a schedule."""

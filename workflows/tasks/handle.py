"""How lanes of tasks are started and found from outside."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import TypedSearchAttributes

from domain.tasks import names
from domain.tasks.carrying import LaneOrder
from infra import starts
from infra.settings import Settings
from infra.starts import SameIdPolicy, WorkflowStart


async def start_lane(engine: Client, order: LaneOrder, summary: str) -> None:
    """Start a lane, unless it was started before."""
    lane = WorkflowStart(
        workflow=names.LANE_WORKFLOW,
        argument=order,
        id=names.lane_id(order.type, order.pos),
        queue=names.QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=attributes(),
        summary=summary,
    )
    await starts.start_workflow(engine, lane)


def attributes() -> TypedSearchAttributes:
    """How lanes are found in the engine; their ids tell type and position."""
    return starts.build_search_attributes(names.SYSTEM)


async def ensure_schedules(client: Client, settings: Settings) -> None:
    """Make none: only housekeeping runs by a schedule."""

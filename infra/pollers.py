"""Pollers: which workers ask a task queue for work, as the engine's matching saw them last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse
from temporalio.client import Client

SEEN_WITHIN: Final = timedelta(minutes=2)
"""A worker polls once a minute at least, also where there is nothing to do."""
TIMEOUT: Final = timedelta(seconds=2)

WORKFLOWS: Final = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
ACTIVITIES: Final = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY


async def describe_queue(engine: Client, queue: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    """Ask what matches tasks with workers how a task queue stands."""
    request = DescribeTaskQueueRequest(
        namespace=engine.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind, report_stats=True
    )
    return await engine.workflow_service.describe_task_queue(request, timeout=TIMEOUT)


def list_workers(answer: DescribeTaskQueueResponse, within: timedelta = SEEN_WITHIN) -> set[str]:
    """Return the identities of the workers that asked a queue for work not longer ago than that."""
    since = datetime.now(UTC) - within
    return {poller.identity for poller in answer.pollers if poller.last_access_time.ToDatetime(UTC) > since}

"""The engine's side: who polls its task queues, and downloads that nobody has taken up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import quote

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse

from api.downloads.answers import ListedDownload
from api.downloads.pending import pending
from api.overview.answers import Queue, Room
from api.overview.standing import Pile, Standing, Standings, merged
from domain.addresses import names as addresses
from domain.downloads import names as downloads_names
from domain.orders import names as orders
from domain.tasks import names as tasks_names
from domain.transfers import names as transfers_names
from domain.webhooks import names as webhooks_names
from infra import temporal
from infra.database import Database
from services.services import Services

TIMEOUT: Final = timedelta(seconds=2)
SEEN_WITHIN: Final = timedelta(minutes=2)
"""A worker polls once a minute at least, also where there is nothing to do."""

QUEUES: Final = {
    downloads_names.QUEUE: Room.DOWNLOADS,
    downloads_names.FETCH_QUEUE: Room.DOWNLOADS,
    downloads_names.RENDER_QUEUE: Room.DOWNLOADS,
    webhooks_names.QUEUE: Room.DOWNLOADS,
    transfers_names.QUEUE: Room.TRANSFERS,
    transfers_names.FILE_QUEUE: Room.TRANSFERS,
    orders.QUEUE: Room.ORDERS,
    addresses.QUEUE: Room.ADDRESSES,
    addresses.INTAKE_QUEUE: Room.ADDRESSES,
    tasks_names.QUEUE: Room.TASKS,
}
_KINDS = (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY)


async def queues(services: Services) -> list[Queue]:
    """How the task queues stand; asked of what matches tasks with workers, not of the engine's index."""
    return list(await asyncio.gather(*(_queue(services, name, room) for name, room in QUEUES.items())))


async def _queue(services: Services, name: str, room: Room) -> Queue:
    answers = await asyncio.gather(*(_described(services, name, kind) for kind in _KINDS))
    since = datetime.now(UTC) - SEEN_WITHIN
    workers = {
        poller.identity
        for answer in answers
        for poller in answer.pollers
        if poller.last_access_time.ToDatetime(UTC) > since
    }
    return Queue(
        name=name,
        room=room,
        workers=len(workers),
        backlog=sum(answer.stats.approximate_backlog_count for answer in answers),
        backlog_seconds=max(answer.stats.approximate_backlog_age.ToTimedelta() for answer in answers).total_seconds(),
    )


async def _described(services: Services, name: str, kind: TaskQueueType.ValueType) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=services.engine.namespace,
        task_queue=TaskQueue(name=name),
        task_queue_type=kind,
        report_stats=True,
    )
    return await services.engine.workflow_service.describe_task_queue(request, timeout=TIMEOUT)


async def unrecorded(services: Services) -> list[ListedDownload]:
    """Downloads that no worker has taken up, by the engine's index."""
    async with asyncio.timeout(TIMEOUT.total_seconds()):
        return await pending(services, None)


async def waiting(database: Database, listed: list[ListedDownload]) -> Standings:
    """Of those that were seen a while ago, those that are still without a row."""
    async with database.connection() as connection:
        task_ids = [each.task_id for each in listed]
        rows = await connection.fetch("SELECT task_id FROM downloads WHERE task_id = ANY($1::text[])", task_ids)
    begun = {row["task_id"] for row in rows}
    left = [each for each in listed if each.task_id not in begun]
    return merged(*({each.project_id: Standing(waiting=Pile(1, each.created_at))} for each in left))


def url(ui_url: str, namespace: str, room: Room, project_id: str | None) -> str:
    """The engine's own page of what runs in a room."""
    wanted = f'ExecutionStatus="Running" AND {temporal.ROOM.name}="{room}"'
    if project_id is not None and room is not Room.ADDRESSES:
        wanted += f' AND {temporal.PROJECT.name}="{project_id}"'
    return f"{ui_url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows?query={quote(wanted, safe='')}"

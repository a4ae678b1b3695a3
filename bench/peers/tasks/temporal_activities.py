"""Temporal's standalone activities behind the front: a task is an activity of its own, held by who polls its queue.

The calls are the server's own, as a worker sends them: many polls are under way, each for one task. Only the SDK's
worker is left out, for it gives no task away.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollActivityTaskQueueRequest, RespondActivityTaskCompletedRequest
from temporalio.client import ActivityExecutionStatus, Client
from temporalio.service import RPCError, RPCStatusCode

from bench.peers.tasks import front
from bench.peers.tasks.front import PENDING, QUEUE, RUNNING, SUCCESS, Held

LEASE = timedelta(minutes=15)
POLL = timedelta(seconds=70)
POLLERS = 32
KEPT = 256
WAIT_SECONDS = 0.05
"""How long a hold waits when there is nothing."""

_STATUSES = {ActivityExecutionStatus.RUNNING: RUNNING, ActivityExecutionStatus.COMPLETED: SUCCESS}


class Activities:
    """One client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue = f"{QUEUE}-{uuid4().hex[:8]}"
        self._polled: asyncio.Queue[Held] = asyncio.Queue(KEPT)
        self._held = 0

    async def create(self, content: str) -> str:
        """Start."""
        task_id = uuid4().hex
        await self._client.start_activity(
            QUEUE, content, id=task_id, task_queue=self._queue, start_to_close_timeout=LEASE
        )
        return task_id

    async def status(self, task_id: str) -> int | None:
        """Describe."""
        try:
            found = await self._client.get_activity_handle(task_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return _STATUSES.get(found.status) if found.status else None

    async def hold(self, limit: int) -> list[Held]:
        """Of those that the pollers have, or get in a moment."""
        tasks: list[Held] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                tasks.append(await self._polled.get())
        while len(tasks) < limit and not self._polled.empty():
            tasks.append(self._polled.get_nowait())
        self._held += len(tasks)
        return tasks

    async def poll(self) -> None:
        """One task after the other, for ever."""
        request = PollActivityTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=self._queue), identity="bench"
        )
        while True:
            try:
                # The server answers an empty poll by itself, long before that.
                task = await self._client.workflow_service.poll_activity_task_queue(request, timeout=POLL)
            except RPCError:
                await asyncio.sleep(WAIT_SECONDS)
                continue
            if task.task_token:
                [content] = await self._client.data_converter.decode(task.input.payloads, [str])
                await self._polled.put((task.activity_id, content, base64.b64encode(task.task_token).decode()))

    async def finish(self, task_id: str, lease: Any) -> bool:
        """By its token."""
        await self._client.workflow_service.respond_activity_task_completed(
            RespondActivityTaskCompletedRequest(
                namespace=self._client.namespace, task_token=base64.b64decode(lease), identity="bench"
            )
        )
        return True

    async def counts(self) -> dict[int, int]:
        """By visibility, which follows within a second or two."""
        of_queue = f"TaskQueue = '{self._queue}'"
        running = (await self._client.count_activities(f"{of_queue} AND ExecutionStatus = 'Running'")).count
        done = (await self._client.count_activities(f"{of_queue} AND ExecutionStatus = 'Completed'")).count
        return {PENDING: running + done - self._held, RUNNING: self._held - done, SUCCESS: done}


@asynccontextmanager
async def _open_store(given: argparse.Namespace) -> AsyncIterator[Activities]:
    activities = Activities(await Client.connect(given.engine))
    pollers = [asyncio.create_task(activities.poll()) for _ in range(POLLERS)]
    try:
        yield activities
    finally:
        for poller in pollers:
            poller.cancel()
        await asyncio.gather(*pollers, return_exceptions=True)


if __name__ == "__main__":
    front.serve(_open_store, "engine")

"""Temporal's standalone activities behind the front: a task is an activity of its own, held by polling its queue.

The calls are the server's own, one message each, as a worker sends them; only the SDK's worker is left out, for it
gives no task away.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
POLL = timedelta(seconds=3)
"""The server answers an empty poll a second before that is over."""

_STATUSES = {ActivityExecutionStatus.RUNNING: RUNNING, ActivityExecutionStatus.COMPLETED: SUCCESS}


class Activities:
    """One client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue = f"{QUEUE}-{uuid4().hex[:8]}"
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
        """A poll gives one task, or none after some seconds."""
        polled = await asyncio.gather(*(self._poll() for _ in range(limit)))
        return [task for task in polled if task]

    async def _poll(self) -> Held | None:
        service, namespace = self._client.workflow_service, self._client.namespace
        request = PollActivityTaskQueueRequest(
            namespace=namespace, task_queue=TaskQueue(name=self._queue), identity="bench"
        )
        try:
            task = await service.poll_activity_task_queue(request, retry=False, timeout=POLL)
        except RPCError as error:
            if error.status is RPCStatusCode.DEADLINE_EXCEEDED:
                return None
            raise
        if not task.task_token:
            return None
        self._held += 1
        [content] = await self._client.data_converter.decode(task.input.payloads, [str])
        return task.activity_id, content, base64.b64encode(task.task_token).decode()

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

    async def grow(self, tasks: int) -> None:
        """There is no way to lay them in."""
        raise NotImplementedError


@asynccontextmanager
async def _opened(given: argparse.Namespace) -> AsyncIterator[Activities]:
    yield Activities(await Client.connect(given.engine))


if __name__ == "__main__":
    front.serve(_opened, "engine")

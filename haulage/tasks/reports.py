"""Send results of tasks in batches, in several requests at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from haulage.errors import HaulageError
from haulage.tasks.models import TaskEntryOutcome, TaskResult

REQUESTS_MAX = 4
"""Concurrent requests; results that arrive meanwhile are sent with the next one."""
RESULTS_MAX = 500
"""Results of one request."""


class ResultReceiver(Protocol):
    """Client that accepts results."""

    async def set_many(self, results: Sequence[TaskResult]) -> list[TaskEntryOutcome]:
        """Set the results of tasks."""


class ResultSender:
    """Sends results. A single result is sent at once; results that arrive together are sent in one request."""

    def __init__(self, receiver: ResultReceiver) -> None:
        self._receiver = receiver
        self._waiting: list[tuple[TaskResult, asyncio.Future[TaskEntryOutcome]]] = []
        self._requests: set[asyncio.Task[None]] = set()

    async def send(self, result: TaskResult) -> TaskEntryOutcome:
        """Send a result and return its outcome.

        Raises:
            HaulageError: The request that carried it failed as a whole.
        """
        answer: asyncio.Future[TaskEntryOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, answer))
        if len(self._requests) < REQUESTS_MAX:
            request = asyncio.create_task(self._send_waiting())
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)
        return await answer

    async def _send_waiting(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:RESULTS_MAX], self._waiting[RESULTS_MAX:]
            try:
                outcomes = await self._receiver.set_many([result for result, _ in group])
            except HaulageError as error:
                for _, answer in group:
                    if not answer.done():
                        answer.set_exception(error)
            else:
                for (_, answer), outcome in zip(group, outcomes, strict=True):
                    if not answer.done():
                        answer.set_result(outcome)

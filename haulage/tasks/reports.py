"""Send results of tasks in batches, in several requests at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

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
        self._senders = 0
        """Of the requests, those that will still take what is waiting."""

    async def send(self, result: TaskResult) -> TaskEntryOutcome:
        """Send a result and return its outcome.

        Raises:
            Exception: The error of the request that carried it, which failed as a whole; mostly a HaulageError.
        """
        answer: asyncio.Future[TaskEntryOutcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, answer))
        if self._senders < REQUESTS_MAX:
            self._senders += 1
            request = asyncio.create_task(self._send_waiting())
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)
        return await answer

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:RESULTS_MAX], self._waiting[RESULTS_MAX:]
                await self._send_group(group)
        finally:
            self._senders -= 1

    async def _send_group(self, group: list[tuple[TaskResult, asyncio.Future[TaskEntryOutcome]]]) -> None:
        try:
            outcomes = await self._receiver.set_many([result for result, _ in group])
            answered = list(zip(group, outcomes, strict=True))
        except Exception as error:  # noqa: BLE001 - whatever it is, the senders of these results must not wait for ever
            for _, answer in group:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), outcome in answered:
            if not answer.done():
                answer.set_result(outcome)

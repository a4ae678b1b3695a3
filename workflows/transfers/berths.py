"""Berths, as a part of the plan of a job: which host has the file, and another one when that host is gone."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.transfers.steps import TransferSteps
    from domain.transfers import names
    from domain.transfers.joining import JobOrder
    from domain.transfers.steps import Berth, FetchOrder
    from workflows.activity_calls import HEARTBEAT, UNTIL_DONE


class Berths:
    """Where the files of one job lie. Each is fetched once, however many shards need it."""

    def __init__(self, order: JobOrder) -> None:
        self._order = order
        self._searches: dict[str, asyncio.Task[Berth]] = {}
        self._found: dict[str, Berth] = {}

    def find(self, signature: str) -> asyncio.Task[Berth]:
        """The host that has, or is fetching, the file with this content."""
        if signature not in self._searches:
            search = self._searches[signature] = asyncio.create_task(self._fetch(signature))
            search.add_done_callback(_heard)
        return self._searches[signature]

    def lose(self, signature: str, berth: Berth) -> None:
        """The host is gone: who asks next has another fetch the file. Those who notice later change nothing."""
        if self._found.get(signature) is berth:
            del self._found[signature], self._searches[signature]

    async def _fetch(self, signature: str) -> Berth:
        self._found[signature] = await workflow.execute_activity_method(
            TransferSteps.fetch,
            FetchOrder(file=self._order.file, signature=signature),
            task_queue=names.FILE_QUEUE,
            schedule_to_close_timeout=max(timedelta(seconds=1), self._order.deadline_at - workflow.now()),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=UNTIL_DONE,
            summary=f"fetch {signature[:12]}",
        )
        return self._found[signature]


def _heard(search: asyncio.Task[Berth]) -> None:
    """A file that could not be fetched is told to whoever needs it; that nobody does any more is no fault."""
    if not search.cancelled():
        search.exception()

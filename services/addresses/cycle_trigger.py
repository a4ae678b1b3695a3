"""Start a cycle when messages arrive, at most once a second."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from temporalio.client import Client, ScheduleOverlapPolicy
from temporalio.service import RPCError

from domain.addresses import names
from infra import log

PAUSE_SECONDS: Final = 1.0

_log = log.get(__name__)


class CycleTrigger:
    """Triggers the schedule of cycles in the background."""

    def __init__(self, engine: Client) -> None:
        self._schedule = engine.get_schedule_handle(names.CYCLE_SCHEDULE)
        self._is_requested = False
        self._task: asyncio.Task[None] | None = None

    def request_cycle(self) -> None:
        """Have a cycle begin after this moment, within about a second."""
        self._is_requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._trigger_once_per_second())

    async def close(self) -> None:
        """Cancel a pending trigger; the schedule's interval covers what is left."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _trigger_once_per_second(self) -> None:
        while self._is_requested:
            self._is_requested = False
            try:
                await self._trigger()
            except RPCError as error:
                # The schedule's interval, a minute at most, starts a cycle anyway.
                _log.warning("address_cycle_trigger_failed", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _trigger(self) -> None:
        # A trigger would also start a paused schedule.
        if not (await self._schedule.describe()).schedule.state.paused:
            # Not SKIP: a cycle that is about to end may have loaded its messages before the commit.
            await self._schedule.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)

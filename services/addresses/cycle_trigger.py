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
    """Tells the schedule of cycles that there is work; nobody waits for that."""

    def __init__(self, engine: Client) -> None:
        self._schedule = engine.get_schedule_handle(names.CYCLE_SCHEDULE)
        self._is_wanted = False
        self._telling: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Have a cycle begin after this moment, soon."""
        self._is_wanted = True
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell())

    async def close(self) -> None:
        """Stop telling; the schedule's own interval finds what is left."""
        if self._telling is not None:
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling

    async def _tell(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                await self._trigger()
            except RPCError as error:
                # The schedule's interval, a minute at most, does the same.
                _log.warning("cycle_not_woken", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _trigger(self) -> None:
        # A trigger would start a schedule that an operator has paused.
        if not (await self._schedule.describe()).schedule.state.paused:
            # Not SKIP: a cycle that is about to end may have looked before our commit.
            await self._schedule.trigger(overlap=ScheduleOverlapPolicy.BUFFER_ONE)

"""A worker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import worker
from infra.settings import Settings
from services import services
from services.services import Services


@dataclass(frozen=True)
class RunningWorker:
    """A worker in this process."""

    services: Services
    stopping: asyncio.Event
    serving: asyncio.Task[None]

    async def stop(self) -> None:
        """Ask it to stop and wait until it has; twice is once."""
        self.stopping.set()
        await self.serving


@asynccontextmanager
async def running_worker(settings: Settings, queues: Sequence[str] = ()) -> AsyncIterator[RunningWorker]:
    """A worker in this process, of all queues or of these."""
    stop = asyncio.Event()
    async with services.open_services(settings) as held:
        running = RunningWorker(
            held, stop, asyncio.create_task(worker.serve_queues(held, queues or worker.list_queue_names(), stop))
        )
        try:
            yield running
        finally:
            await running.stop()

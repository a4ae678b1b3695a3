"""A queue of tasks in memory, with which the client library's worker is tested."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from haulage.tasks import (
    Handler,
    HeldTask,
    RegisteredType,
    Status,
    TaskEntryOutcome,
    TaskResult,
    Worker,
)

NOW = datetime(2026, 11, 20, tzinfo=UTC)


@dataclass
class RecordingQueue:
    """A queue that returns its tasks, and records the results."""

    waiting: list[HeldTask] = field(default_factory=list)
    limit: int = 100
    interval: float = 0.01
    lease_seconds: float = 30.0
    gone: set[str] = field(default_factory=set)
    """Tasks that are not their holder's any more."""
    faults: list[Exception] = field(default_factory=list)
    """What the next holds raise."""
    faults_of_sets: list[Exception] = field(default_factory=list)
    """What the next requests with results raise."""
    refusals: list[TaskEntryOutcome] = field(default_factory=list)
    """What becomes of the next results."""
    taking: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether results are answered."""
    asked: list[int | None] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    """How many results each request brought."""
    results: list[TaskResult] = field(default_factory=list)
    beats: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.taking.set()

    async def types(self) -> list[RegisteredType]:
        """One type."""
        kind = RegisteredType(
            task_type="video",
            schedule_limit=self.limit,
            schedule_interval=self.interval,
            max_retry_num=3,
            max_retry_interval=30,
            max_processing_time=self.lease_seconds,
        )
        return [kind]

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """The first of those that wait."""
        self.asked.append(limit)
        self.waits.append(wait_seconds)
        self.asked_at.append(time.monotonic())
        if self.faults:
            raise self.faults.pop(0)
        given, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return given

    async def set_many(self, results: Sequence[TaskResult]) -> list[TaskEntryOutcome]:
        """Remembered, but for those that are refused."""
        self.requests.append(len(results))
        await self.taking.wait()
        if self.faults_of_sets:
            raise self.faults_of_sets.pop(0)
        return [self._set(result) for result in results]

    def _set(self, result: TaskResult) -> TaskEntryOutcome:
        if self.refusals:
            return self.refusals.pop(0)
        self.results.append(result)
        return TaskEntryOutcome()

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[TaskEntryOutcome]:
        """Good but for those that are gone."""
        self.beats.append([task.task_id for task in held])
        return [
            TaskEntryOutcome(code=8041, msg="gone") if task.task_id in self.gone else TaskEntryOutcome()
            for task in held
        ]

    def list_result_fields(self, *fields: str) -> list[tuple[Any, ...]]:
        """Those fields of all results."""
        return [tuple(getattr(result, name) for name in fields) for result in self.results]


def make_held_task(number: int, **fields: Any) -> HeldTask:
    """Return a task as a hold returns it."""
    given = {
        "task_id": f"{number:032x}_video_1",
        "task_type": "video",
        "user_id": "",
        "stage": "",
        "status": Status.RUNNING,
        "task_priority": 0,
        "crt_retry_num": 0,
        "max_retry_num": 3,
        "max_retry_interval": 30,
        "schedule_log": "",
        "task_content": f"content {number}",
        "order_time": 0.0,
        "create_time": NOW,
        "modify_time": NOW,
        "lease": number + 1,
        "lease_end": 0.0,
    }
    return HeldTask.model_validate(given | fields)


@asynccontextmanager
async def run_worker(queue: RecordingQueue, handlers: Mapping[str, Handler], **options: Any) -> AsyncIterator[Worker]:
    """Run a worker; stop it in the end."""
    worker = Worker(queue, "video", handlers, **{"jitter_seconds": 0.0, "stop_seconds": 5.0} | options)
    loop = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await loop


async def do_nothing(task: HeldTask) -> None:
    """Handle a task without doing anything."""

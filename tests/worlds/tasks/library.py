"""The library's worker beside plain ones: its client keeps a note of all that it says and is answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from haulage.errors import HaulageError
from haulage.tasks import HeldTask, NextStage, TaskEntryOutcome, TaskFailed, TaskResult, Tasks, Worker
from haulage.transport import RETRY_STATUSES, RetryingApiTransport
from tests.worlds.tasks.seen import RUNNING, HeldLease, HoldAttempt, TaskObservations
from tests.worlds.tasks.working import Attempts, note_hold, note_saying, read_holding
from tests.worlds.tasks.world import LAST_STAGE, TaskFate


class NotedTransport(RetryingApiTransport):
    """Counts requests that were sent and not answered; the client repeats them by itself."""

    lost = 0

    async def _send_once(self, method: str, path: str, options: dict[str, Any]) -> Any:
        answer = await super()._send_once(method, path, options)
        is_lost = isinstance(answer, Exception) or answer.status in RETRY_STATUSES
        self.lost += is_lost
        return answer


class NotedTasks(Tasks):
    """A client that keeps notes."""

    def __init__(self, base_url: str, key: str, seen: TaskObservations) -> None:
        super().__init__(base_url, key)
        self._transport = self._noted = NotedTransport(base_url, key, self._transport.patience_seconds)
        self._seen = seen
        self._holdings: dict[tuple[str, int], HeldLease] = {}

    def holding(self, task: HeldTask) -> HeldLease:
        """Return the note of a task."""
        return self._holdings[task.task_id, task.lease]

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Hold."""
        sent_at, before = time.time(), self._noted.lost
        try:
            tasks = await super().hold(task_type, limit=limit, wait_seconds=wait_seconds)
        except (HaulageError, asyncio.CancelledError):
            self._seen.asked.append(HoldAttempt(sent_at, time.time(), limit or 0, (), is_lost=True))
            raise
        received_at = time.time()
        # Other requests may be among them: then one hold more is taken for lost than was.
        self._seen.asked += [HoldAttempt(sent_at, received_at, 0, (), is_lost=True)] * (self._noted.lost - before)
        found = [read_holding(task.model_dump(), sent_at, received_at) for task in tasks]
        note_hold(self._seen, found, sent_at, received_at, limit or 0, {task.task_type for task in tasks})
        self._holdings |= {(each.task_id, each.lease): each for each in found}
        return tasks

    async def set_many(self, results: Sequence[TaskResult]) -> list[TaskEntryOutcome]:
        """Set."""
        sent_at, before = time.time(), self._noted.lost
        outcomes = await super().set_many(results)
        for result, outcome in zip(results, outcomes, strict=True):
            note_saying(
                self._seen,
                self._holdings[result.task_id, result.lease or 0],
                int(result.status),
                outcome.code,
                sent_at,
                time.time(),
                lost=self._noted.lost - before + (not self._seen.is_calm),
                crt_retry_num=result.crt_retry_num,
                task_stage=result.task_stage,
                task_content=result.task_content,
                schedule_log=result.schedule_log,
            )
        return outcomes

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[TaskEntryOutcome]:
        """Beat."""
        sent_at = time.time()
        outcomes = await super().heartbeat(held)
        for task, outcome in zip(held, outcomes, strict=True):
            holding = self.holding(task)
            note_saying(self._seen, holding, RUNNING, outcome.code, sent_at, time.time(), is_beat=True)
        return outcomes


async def run_library_worker(tasks: NotedTasks, attempts: Attempts, done: asyncio.Event) -> None:
    """Do tasks until all is done. This worker neither dies nor is late: where others would, it does well."""

    async def do(task: HeldTask) -> NextStage | None:
        held = tasks.holding(task)
        _, _, fate = attempts.begin(held.user_id)
        if fate is TaskFate.FAILS:
            raise ConnectionError("this attempt fails")
        if fate is TaskFate.FAILS_FOR_GOOD:
            raise TaskFailed("no retry can help")
        stage = attempts.next_stage(held)
        return NextStage(stage, content=f"{task.task_content[:16_000]}+") if stage else None

    worker = Worker(tasks, attempts.type, {"": do, LAST_STAGE: do}, concurrency=2, backlog=1)
    working = asyncio.create_task(worker.run())
    try:
        await done.wait()
        worker.stop()
        await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)

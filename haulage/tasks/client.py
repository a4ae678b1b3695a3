"""The client: create tasks, hold them, say what became of them, and look at the queues."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from haulage.tasks.models import (
    Counts,
    FollowedTask,
    HeldTask,
    NewTask,
    Outcome,
    RegisteredType,
    Result,
    Status,
    Task,
    TaskType,
)
from haulage.tasks.refusals import TaskRefused
from haulage.transport import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Transport

UNAVAILABLE = 8036
"""A part behind the API does not answer for the moment."""
UNUSABLE = frozenset({8020, 8021, 8044})
"""A batch is refused as a whole because of an entry or of its size."""
BATCH_MAX = 1_000
"""Entries that the API takes in one request."""
BATCH_BYTES_MAX = 900_000
"""Bytes of the entries of one request; the API takes 1 MiB by default, `HAULAGE_API__BODY_MAX_BYTES`."""


class Tasks:
    """A project's way to its queues.

    Requests are repeated for `patience_seconds` while the API, or a part behind it, does not answer. None of them can
    do anything twice, but for a hold whose answer got lost: its tasks wait for the end of their lease.

        async with Tasks("https://haulage.example.com", key) as tasks:
            task_id = await tasks.create(NewTask(task_type="video", task_content="cats.mp4"))

    Raises:
        TaskRefused: Of every method, where the queue said no.
        Refused: Of every method, where the API did, as with a wrong key.
        Unreachable: Of every method, when patience is over.
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = Transport(base_url, key, patience_seconds)

    async def __aenter__(self) -> Tasks:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def ping(self) -> None:
        """See that there is an API."""
        await self._get("ping")

    async def register(self, type_: TaskType) -> None:
        """Make a type, or change the fields that are given."""
        await self._post("register_task_type", task_type_data=type_.body())

    async def types(self) -> list[RegisteredType]:
        """The project's types."""
        told = await self._get("get_task_schedule_cfg_list")
        return [RegisteredType.model_validate(each) for each in told["task_schedule_cfg_list"]]

    async def create(self, task: NewTask) -> str:
        """Create a task; its id, once it is durable."""
        task_id: str = (await self._post("create_task", task_data=_named(task).body()))["task_id"]
        return task_id

    async def create_many(self, tasks: Sequence[NewTask]) -> list[Outcome]:
        """Create tasks, many in a request; return the outcome of each.

        A task that is refused does not keep the others from being created.
        """
        return await self._each("create_tasks", [_named(task).body() for task in tasks])

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Tasks that are due, to be done by the caller; `wait_seconds`, 30 at most, waits for one if there is none."""
        asked = {"task_type": task_type, "wait": wait_seconds} | ({} if limit is None else {"limit": limit})
        told = await self._post("hold_tasks", **asked)
        return [HeldTask.model_validate(each) for each in told["task_list"]]

    async def set(self, result: Result) -> None:
        """Say what became of a held task."""
        await self._post("set_task", task_data=result.body())

    async def set_many(self, results: Sequence[Result]) -> list[Outcome]:
        """Say what became of held tasks, many in a request; return the outcome of each result.

        A result that is refused does not keep the others from being taken.
        """
        return await self._each("set_tasks", [result.body() for result in results])

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[Outcome]:
        """Have leases begin anew; an outcome that is not good says that the task is the caller's no more."""
        return await self._each("heartbeat_tasks", [{"task_id": task.task_id, "lease": task.lease} for task in held])

    async def cancel(self, task_id: str) -> None:
        """End a task as cancelled, whoever holds it."""
        await self._post("cancel_task", task_id=task_id)

    async def get(self, task_id: str) -> FollowedTask:
        """How a task stands, who has it, and what was tried before."""
        return FollowedTask.model_validate((await self._get("get_task", task_id=task_id))["task_data"])

    async def find(
        self,
        *,
        task_type: str | None = None,
        status: Status | None = None,
        stage: str | None = None,
        limit: int | None = None,
    ) -> list[Task]:
        """Tasks that fit, the newest first."""
        told = await self._get("get_task_list", task_type=task_type, status=status, stage=stage, limit=limit)
        return [Task.model_validate(each) for each in told["task_list"]]

    async def counts(self, task_type: str) -> Counts:
        """How many tasks a type has."""
        return Counts.model_validate(await self._get("get_task_counts_by_type", task_type=task_type))

    async def pause(self, task_type: str) -> None:
        """Have none of a type given out."""
        await self._post("pause_task_type", task_type=task_type)

    async def resume(self, task_type: str) -> None:
        """Have them given out again."""
        await self._post("resume_task_type", task_type=task_type)

    async def _each(self, route: str, bodies: Sequence[dict[str, Any]]) -> list[Outcome]:
        """Send entries in batches and return the outcome of each.

        An entry that a part behind the API did not take for the moment is sent again. A batch that is refused as a
        whole is halved until the entry that is at fault is alone: only that one is refused then.
        """
        deadline = time.monotonic() + self._transport.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        found: dict[int, Outcome] = {}
        left = deque(_batches(bodies))
        while left:
            batch = left.popleft()
            try:
                outcomes = await self._send_batch(route, [bodies[at] for at in batch])
            except TaskRefused as refused:
                if refused.code not in UNUSABLE:
                    raise
                if len(batch) > 1:
                    half = len(batch) // 2
                    left.extendleft([batch[half:], batch[:half]])
                    continue
                outcomes = [Outcome(code=refused.code, msg=str(refused))]
            found |= zip(batch, outcomes, strict=True)
            again = [at for at in batch if found[at].code == UNAVAILABLE]
            if again and time.monotonic() + pause <= deadline:
                left.append(again)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        return [found[at] for at in range(len(bodies))]

    async def _send_batch(self, route: str, entries: list[dict[str, Any]]) -> list[Outcome]:
        told = await self._told("POST", route, {"json": {"task_list": entries}}, whole=False)
        return [Outcome.model_validate(each) for each in told["results"]]

    async def _get(self, route: str, **query: Any) -> dict[str, Any]:
        params = {name: str(value) for name, value in query.items() if value is not None}
        return await self._told("GET", route, {"params": params})

    async def _post(self, route: str, **body: Any) -> dict[str, Any]:
        return await self._told("POST", route, {"json": body})

    async def _told(self, method: str, route: str, options: dict[str, Any], *, whole: bool = True) -> dict[str, Any]:
        """A good answer; a part that fails for a moment is waited for."""
        deadline = time.monotonic() + self._transport.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            told = await self._transport.json(method, f"/v1/{route}", **options)
            code = told.get("code", 0)
            # A batch tells of each by itself, unless it was refused as a whole.
            if code == 0 or (not whole and "results" in told):
                return told
            if code != UNAVAILABLE or time.monotonic() + pause > deadline:
                raise TaskRefused(code, told.get("msg", ""))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _batches(bodies: Sequence[dict[str, Any]]) -> Iterator[list[int]]:
    """Yield the positions of the entries of each request, in order."""
    batch: list[int] = []
    size = 0
    for at, body in enumerate(bodies):
        entry_bytes = len(json.dumps(body)) + 2
        if batch and (len(batch) == BATCH_MAX or size + entry_bytes > BATCH_BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(at)
        size += entry_bytes
    if batch:
        yield batch


def _named(task: NewTask) -> NewTask:
    """With a name, so that a request that is repeated creates no second task."""
    return task if task.task_id else task.model_copy(update={"task_id": secrets.token_hex(16)})

"""Client of task queues: register types; create, hold, set, cancel and read tasks."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from haulage.errors import HaulageError
from haulage.tasks.models import (
    HeldTask,
    NewTask,
    RegisteredType,
    Status,
    Task,
    TaskCountsByState,
    TaskDetails,
    TaskEntryOutcome,
    TaskResult,
    TaskType,
)
from haulage.tasks.refusals import TaskRequestRefused
from haulage.transport import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, RetryingApiTransport

UNAVAILABLE = 8036
"""Code: a component behind the API is unavailable at present."""
UNUSABLE = frozenset({8020, 8021, 8044})
"""Codes: a batch is refused as a whole because of an entry or of its size."""
BATCH_MAX = 1_000
"""Entries that the API takes in one request."""
BATCH_BYTES_MAX = 900_000
"""Bytes of the entries of one request; the API takes 1 MiB by default, `HAULAGE_API__BODY_MAX_BYTES`."""


_log = logging.getLogger(__name__)


class Tasks:
    """Client of the task queues of a project.

    Requests are retried for `patience_seconds` while the API, or a component behind it, does not answer. Repeating them
    has no further effect, except for a hold whose response got lost: its tasks wait until their lease expires.

        async with Tasks("https://haulage.example.com", key) as tasks:
            task_id = await tasks.create(NewTask(task_type="video", task_content="cats.mp4"))

    Raises:
        TaskRequestRefused: By every method, if the queue refuses the request.
        RequestRefused: By every method, if the API does, for example because of a wrong key.
        ApiUnreachable: By every method, if there is no answer within `patience_seconds`.
    """

    def __init__(self, base_url: str, key: str, *, patience_seconds: float = 60.0) -> None:
        self._transport = RetryingApiTransport(base_url, key, patience_seconds)
        self._pauses: dict[str, str] = {}
        """Types whose tasks are not given out, as the last hold said."""

    async def __aenter__(self) -> Tasks:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def ping(self) -> None:
        """Check that the API answers."""
        await self._get("ping")

    async def register(self, type_: TaskType) -> None:
        """Create a type, or change the given fields of it."""
        await self._post("register_task_type", task_type_data=type_.body())

    async def types(self) -> list[RegisteredType]:
        """Return the project's types."""
        response = await self._get("get_task_schedule_cfg_list")
        return [RegisteredType.model_validate(each) for each in response["task_schedule_cfg_list"]]

    async def create(self, task: NewTask) -> str:
        """Create a task and return its id once the task is durable."""
        task_id: str = (await self._post("create_task", task_data=_add_random_id_if_missing(task).body()))["task_id"]
        return task_id

    async def create_many(self, tasks: Sequence[NewTask]) -> list[TaskEntryOutcome]:
        """Create tasks, many in a request; return the outcome of each.

        A task that is refused does not affect the others.
        """
        return await self._send_in_batches("create_tasks", [_add_random_id_if_missing(task).body() for task in tasks])

    async def hold(self, task_type: str, *, limit: int | None = None, wait_seconds: float = 0.0) -> list[HeldTask]:
        """Hold due tasks; if there are none, wait for one up to `wait_seconds`, 30 at most.

        While an operator has paused the type, or all tasks, there are none, which is logged once.
        """
        body = {"task_type": task_type, "wait": wait_seconds} | ({} if limit is None else {"limit": limit})
        response = await self._post("hold_tasks", **body)
        self._log_pause_once_and_its_end(task_type, response.get("paused", ""))
        return [HeldTask.model_validate(each) for each in response["task_list"]]

    def _log_pause_once_and_its_end(self, task_type: str, paused: str) -> None:
        """Log once that no task of a type is given out, by whom and why, and once that it is over."""
        before = self._pauses.pop(task_type, "")
        if paused:
            self._pauses[task_type] = paused
        if paused and paused != before:
            _log.warning("hold_paused: type %s: no task is given out. %s", task_type, paused)
        elif before and not paused:
            _log.warning("hold_resumed: type %s: tasks are given out again", task_type)

    async def set(self, result: TaskResult) -> None:
        """Set the result of a held task."""
        await self._post("set_task", task_data=result.body())

    async def set_many(self, results: Sequence[TaskResult]) -> list[TaskEntryOutcome]:
        """Set the results of held tasks, many in a request; return the outcome of each.

        A result that is refused does not affect the others.
        """
        return await self._send_in_batches("set_tasks", [result.body() for result in results])

    async def heartbeat(self, held: Sequence[HeldTask]) -> list[TaskEntryOutcome]:
        """Renew leases; an outcome that is not good means that the caller no longer holds the task."""
        return await self._send_in_batches(
            "heartbeat_tasks", [{"task_id": task.task_id, "lease": task.lease} for task in held]
        )

    async def cancel(self, task_id: str) -> None:
        """Cancel a task, also one that a worker holds."""
        await self._post("cancel_task", task_id=task_id)

    async def cancel_many(self, task_ids: Sequence[str]) -> list[TaskEntryOutcome]:
        """Cancel tasks, many in a request; return the outcome of each."""
        return await self._send_in_batches("cancel_tasks", list(task_ids), "task_ids")

    async def put_back_many(self, task_ids: Sequence[str]) -> list[TaskEntryOutcome]:
        """Put tasks back into their queues; ended ones are created again. Return the outcome of each."""
        return await self._send_in_batches("put_back_tasks", [{"task_id": task_id} for task_id in task_ids])

    async def get(self, task_id: str) -> TaskDetails:
        """Return the state of a task, its lease, and its earlier attempts."""
        return TaskDetails.model_validate((await self._get("get_task", task_id=task_id))["task_data"])

    async def find(
        self,
        *,
        task_type: str | None = None,
        status: Status | None = None,
        stage: str | None = None,
        user_id: str | None = None,
        limit: int | None = None,
    ) -> list[Task]:
        """Return tasks that match, newest first."""
        response = await self._get(
            "get_task_list", task_type=task_type, status=status, stage=stage, user_id=user_id, limit=limit
        )
        return [Task.model_validate(each) for each in response["task_list"]]

    async def counts(self, task_type: str) -> TaskCountsByState:
        """Count the tasks of a type."""
        return TaskCountsByState.model_validate(await self._get("get_task_counts_by_type", task_type=task_type))

    async def pause(self, task_type: str, *, who: str, reason: str) -> None:
        """Pause a type: holds return none of its tasks, and say who paused it and why, as the audit log does."""
        await self._post("pause_task_type", task_type=task_type, who=who, reason=reason)

    async def resume(self, task_type: str, *, who: str, reason: str) -> None:
        """Resume a paused type."""
        await self._post("resume_task_type", task_type=task_type, who=who, reason=reason)

    async def remove(self, task_type: str, *, who: str, reason: str) -> None:
        """Remove a type without unfinished tasks."""
        await self._post("remove_task_type", task_type=task_type, who=who, reason=reason)

    async def _send_in_batches(
        self, route: str, bodies: Sequence[dict[str, Any] | str], field: str = "task_list"
    ) -> list[TaskEntryOutcome]:
        """Send entries in batches and return the outcome of each.

        An entry that fails because a component is unavailable is sent again. A batch that is refused as a whole is
        halved until the invalid entry is alone, so that only that one is refused. Where nothing more can be sent, an
        error is raised if no entry has an outcome, and is the outcome of the rest otherwise.
        """
        deadline = time.monotonic() + self._transport.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        found: dict[int, TaskEntryOutcome] = {}
        left = deque(_iterate_index_batches(bodies))
        while left:
            batch = left.popleft()
            try:
                outcomes = await self._send_batch(route, field, [bodies[at] for at in batch])
            except HaulageError as error:
                code = error.code if isinstance(error, TaskRequestRefused) else UNAVAILABLE
                if code in UNUSABLE and len(batch) > 1:
                    half = len(batch) // 2
                    left.extendleft([batch[half:], batch[:half]])
                    continue
                if code not in UNUSABLE:
                    if not found:
                        raise
                    # What was sent before has outcomes, which the caller needs as well.
                    batch = sorted({*batch, *itertools.chain.from_iterable(left)})
                    left.clear()
                    deadline = time.monotonic()
                outcomes = [TaskEntryOutcome(code=code, msg=str(error))] * len(batch)
            found |= zip(batch, outcomes, strict=True)
            again = [at for at in batch if found[at].code == UNAVAILABLE]
            if again and time.monotonic() + pause <= deadline:
                left.append(again)
                self._transport.log_wait(str(TaskRequestRefused(UNAVAILABLE, found[again[0]].msg)))
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        return [found[at] for at in range(len(bodies))]

    async def _send_batch(self, route: str, field: str, entries: list[dict[str, Any] | str]) -> list[TaskEntryOutcome]:
        response = await self._request("POST", route, {"json": {field: entries}}, is_batch=False)
        return [TaskEntryOutcome.model_validate(each) for each in response["results"]]

    async def _get(self, route: str, **query: Any) -> dict[str, Any]:
        params = {name: str(value) for name, value in query.items() if value is not None}
        return await self._request("GET", route, {"params": params})

    async def _post(self, route: str, **body: Any) -> dict[str, Any]:
        return await self._request("POST", route, {"json": body})

    async def _request(
        self, method: str, route: str, options: dict[str, Any], *, is_batch: bool = True
    ) -> dict[str, Any]:
        """Send a request and return a successful response; retry while a component is unavailable."""
        deadline = time.monotonic() + self._transport.patience_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            response = await self._transport.request_json(method, f"/v1/{route}", **options)
            code = response.get("code", 0)
            # A batch has an outcome for each entry, unless it was refused as a whole.
            if code == 0 or (not is_batch and "results" in response):
                return response
            refused = TaskRequestRefused(code, response.get("msg", ""))
            if code != UNAVAILABLE or time.monotonic() + pause > deadline:
                raise refused
            self._transport.log_wait(str(refused))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _iterate_index_batches(bodies: Sequence[dict[str, Any] | str]) -> Iterator[list[int]]:
    """Yield the indexes of the entries of each request, in order."""
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


def _add_random_id_if_missing(task: NewTask) -> NewTask:
    """Add an id, so that a repeated request creates no second task."""
    return task if task.task_id else task.model_copy(update={"task_id": secrets.token_hex(16)})

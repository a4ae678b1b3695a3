"""Helpers for tests of lanes: one on a real engine with its archive, asked in groups as an API process asks."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import text
from temporalio.client import WorkflowHandle, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

import worker
from domain.tasks import names
from domain.tasks import names as tasks_names
from domain.tasks.activity_models import FinishedTaskCounts, LaneInput
from domain.tasks.messages import (
    CreateOperation,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    SetOperation,
    Task,
    TaskLookup,
    TaskLookupReply,
    TaskTypeRules,
)
from domain.tasks.names import TaskId
from infra.database import Database
from infra.settings import Settings
from services import services
from services.services import Services
from stores.tasks import lanes
from workflows.tasks import handle as tasks_handle
from workflows.tasks.lane import TaskLane

NAME = "video"
TYPE = names.build_type_id("p", NAME)
CLOSING_SECONDS = 0.01

Handle = WorkflowHandle[TaskLane, FinishedTaskCounts]


def new_key() -> str:
    """A key for a task to be."""
    return uuid.uuid4().hex


def new_tasks(count: int, content: str = "{}", **fields: Any) -> list[CreateOperation]:
    """Tasks of one user."""
    return [CreateOperation(new_key(), "user", content, **fields) for _ in range(count)]


@dataclass
class AskedLane:
    """A lane as one API process knows it."""

    handle: Handle
    sender: str = field(default_factory=new_key)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    async def ask(self, **operations: Any) -> LaneBatchReply:
        """A new group."""
        return await self.send(LaneBatch(self.sender, next(self.numbers), **operations))

    async def send(self, group: LaneBatch) -> LaneBatchReply:
        """A group, again and again while the lane continues as new, or the machine is too busy to answer in time.

        Its number makes that safe: what was done is answered once more.
        """
        while True:
            try:
                return await self.handle.execute_update(
                    TaskLane.apply_batch, group, id=new_key(), rpc_timeout=timedelta(seconds=10)
                )
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                continue
            except RPCError as error:
                if error.status is not RPCStatusCode.RESOURCE_EXHAUSTED:
                    raise
                await asyncio.sleep(CLOSING_SECONDS)

    async def create(self, tasks: Sequence[CreateOperation]) -> LaneBatchReply:
        """Create tasks, all of which the lane accepts."""
        reply = await self.ask(creates=list(tasks))
        assert set(reply.creates) <= {"0"}
        return reply

    async def hold(self, limit: int = 100, lease_seconds: int = 0) -> list[Task]:
        """What one hold gets."""
        [held] = (await self.ask(holds=[HoldOperation(limit, lease_seconds)])).holds
        return held

    async def finish(self, tasks: Sequence[Task], status: int = 3) -> str:
        """Say that tasks that are held have ended."""
        return (await self.ask(sets=[SetOperation(task.key, status, task.lease) for task in tasks])).sets

    async def look_up(self, *keys: str) -> TaskLookupReply:
        """Tasks by a query."""
        return await self.handle.query(TaskLane.look_up, TaskLookup(list(keys)))


@dataclass(frozen=True)
class Lanes:
    """A worker for lanes, and a type of tasks."""

    services: Services
    rules: TaskTypeRules
    worker: AsyncExitStack

    async def stop(self) -> None:
        """No worker any more."""
        await self.worker.aclose()

    @property
    def database(self) -> Database:
        """Where they are archived."""
        return self.services.database

    async def start(self, pos: int = 1, rules: TaskTypeRules | None = None) -> AskedLane:
        """A lane of the type."""
        order = LaneInput(type=TYPE, pos=pos, rules=rules or self.rules)
        handle = await self.services.engine.start_workflow(
            TaskLane.run,
            order,
            id=tasks_names.build_lane_workflow_id((TYPE, pos)),
            task_queue=tasks_names.QUEUE,
            search_attributes=tasks_handle.build_search_attributes(TYPE),
        )
        return AskedLane(self.services.engine.get_workflow_handle_for(TaskLane.run, handle.id))

    async def rows(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """What the database answers."""
        async with self.database.session() as session:
            return [dict(row) for row in (await session.execute(text(statement), values)).mappings()]

    async def read_archived(self, *keys: str, pos: int = 1) -> dict[str, dict[str, Any]]:
        """What the archive has of these tasks, by key."""
        named = {str(TaskId(key, NAME, pos)): key for key in keys}
        rows = await self.rows("SELECT * FROM tasks_archive WHERE task_id = ANY(:named)", named=list(named))
        return {named[row["task_id"]]: row for row in rows}

    async def counts(self) -> dict[int, int]:
        """How many archived tasks the type has, by status."""
        rows = await self.rows("SELECT status, sum(tasks)::int AS tasks FROM task_counts GROUP BY status")
        return {row["status"]: row["tasks"] for row in rows}

    async def open_positions(self) -> list[int]:
        """Which lanes there are heads of."""
        return [row["pos"] for row in await self.rows("SELECT pos FROM task_heads ORDER BY pos")]

    async def span(self) -> tuple[int, int]:
        """Where the type begins and ends."""
        [row] = await self.rows("SELECT begin_pos, end_pos FROM task_types")
        return row["begin_pos"], row["end_pos"]


async def add_type(database: Database) -> None:
    """A type of tasks, and its first lane."""
    async with database.session() as session:
        await session.execute(_PROJECT)
        await session.execute(_TYPE, {"type": TYPE, "name": NAME})
        await lanes.add_lanes_and_check_if_type_is_past(session, TYPE, 1)


@asynccontextmanager
async def running_lanes(settings: Settings, **rules: Any) -> AsyncIterator[Lanes]:
    """A worker for lanes over the test's own parts, and a type with these rules."""
    async with services.open_services(settings) as running:
        await add_type(running.database)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running_lane_worker(running))
            yield Lanes(running, TaskTypeRules(version=1, **rules), stack)


@asynccontextmanager
async def running_lane_worker(running: Services) -> AsyncIterator[Worker]:
    """A worker for lanes alone."""
    [queue] = [queue for queue in worker.build_queues(running) if queue.name == tasks_names.QUEUE]
    async with worker.build_worker(running.engine, running.settings.engine, queue) as running_lane_worker:
        yield running_lane_worker


_PROJECT = text("INSERT INTO projects (id, name, created_at) VALUES ('p', 'p', now())")
_TYPE = text(
    "INSERT INTO task_types (type, project_id, name, schedule_limit, schedule_interval, max_retry_num, "
    "max_retry_interval, max_processing_time, paused, version, begin_pos, end_pos) "
    "VALUES (:type, 'p', :name, 100, 10, 3, 30, 30, false, 1, 1, 1)"
)

"""What callers are told of tasks and types, by the names that the original's documents use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from pydantic import Field

from api.models import Answer
from api.routes import JSON
from api.tasks.envelope import SUCCESS, Code, Envelope
from api.tasks.types import TaskType
from domain.tasks.messages import Task

_json = msgspec.json.Encoder().encode


class TaskAnswer(Answer):
    """A task."""

    user_id: str
    task_id: str
    task_type: str
    stage: str
    status: int = Field(description="1 pending, 2 running, 3 success, 4 failed")
    task_priority: int = Field(description="by so many seconds it is earlier in the queue")
    crt_retry_num: int = Field(description="how often it has failed")
    max_retry_num: int = Field(description="of its type")
    max_retry_interval: int = Field(description="of its type")
    schedule_log: str
    task_content: str
    order_time: float = Field(description="its place in the queue, and when it is due: seconds since 1970")
    create_time: str
    modify_time: str


class HeldTask(TaskAnswer):
    """A task that is the caller's to do."""

    lease: int = Field(description="send it back in set_task and heartbeat: who holds an older one is refused")
    lease_end: float = Field(description="when the task is taken back, unless there is a heartbeat before")


class TypeAnswer(Answer):
    """A type, and which lanes its tasks are in."""

    task_type: str
    schedule_limit: int
    schedule_interval: int
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: int
    paused: bool
    schedule_begin_pos: int
    schedule_end_pos: int


class Created(Envelope):
    """A task that will be found, whatever dies."""

    task_id: str = ""


class Outcome(Envelope):
    """What became of one of several."""

    task_id: str = ""


class Outcomes(Envelope):
    """What became of each, in the order in which they were sent; `code` is 0 if all went well, else the first other."""

    results: list[Outcome] = Field(default=[])


class HeldTasks(Envelope):
    """Tasks to do."""

    task_list: list[HeldTask] = Field(default=[])


class FoundTask(Envelope):
    """A task."""

    task_data: TaskAnswer | None = None


class FoundTasks(Envelope):
    """Tasks, the newest first."""

    task_list: list[TaskAnswer] = Field(default=[])


class Counts(Envelope):
    """How many tasks a type has."""

    task_count: int = Field(default=0, description="all that were ever created")
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0


class Types(Envelope):
    """The project's types."""

    task_schedule_cfg_list: list[TypeAnswer] = Field(default=[])


def shown(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType) -> dict[str, Any]:
    """A task as `TaskAnswer` has it; made by hand, for ten thousand are told in a second."""
    content, log = texts
    return {
        "user_id": task.user_id,
        "task_id": task_id,
        "task_type": kind.type,
        "stage": task.stage,
        "status": task.status,
        "task_priority": task.priority,
        "crt_retry_num": task.crt_retry_num,
        "max_retry_num": kind.max_retry_num,
        "max_retry_interval": kind.max_retry_interval,
        "schedule_log": log,
        "task_content": content,
        "order_time": task.order_time / 1000,
        "create_time": _moment(task.create_time),
        "modify_time": _moment(task.modify_time),
    }


def held(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType) -> dict[str, Any]:
    """A task as `HeldTask` has it."""
    return shown(task_id, task, texts, kind) | {"lease": task.lease, "lease_end": task.lease_end / 1000}


def of_type(kind: TaskType) -> TypeAnswer:
    """A type as it is told."""
    return TypeAnswer(
        task_type=kind.type,
        schedule_limit=kind.schedule_limit,
        schedule_interval=kind.schedule_interval,
        max_retry_num=kind.max_retry_num,
        max_retry_interval=kind.max_retry_interval,
        max_processing_time=kind.max_processing_time,
        paused=kind.rules.paused,
        schedule_begin_pos=kind.begin_pos,
        schedule_end_pos=kind.end_pos,
    )


def succeeded(**members: Any) -> web.Response:
    """An answer that says yes."""
    return web.Response(body=_json({"code": Code.OK, "msg": SUCCESS, **members}), content_type=JSON)


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")

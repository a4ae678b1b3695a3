"""What callers are told of tasks and types, by the names that the original's documents use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import msgspec
from aiohttp import web
from pydantic import Field

from api.http.models import Response
from api.http.routes import JSON
from api.tasks.envelope import SUCCESS, Code, Envelope
from api.tasks.types import TaskType
from domain.tasks import attempts
from domain.tasks.attempts import KEPT_MAX
from domain.tasks.messages import Status, Task

OutcomeWord: TypeAlias = Literal["failed", "timed_out", "next_stage", "put_back"]

_OUTCOMES: Mapping[int, OutcomeWord] = {
    attempts.Outcome.FAILED: "failed",
    attempts.Outcome.TIMED_OUT: "timed_out",
    attempts.Outcome.NEXT_STAGE: "next_stage",
    attempts.Outcome.PUT_BACK: "put_back",
}
_json = msgspec.json.Encoder().encode


class TaskAnswer(Response):
    """A task."""

    user_id: str
    task_id: str
    task_type: str
    stage: str
    task_stage: str = Field(description="the same as `stage`: flowSvr's client reads this name")
    status: int = Field(description="1 pending, 2 running, 3 success, 4 failed, 5 cancelled")
    task_priority: int = Field(description="by so many seconds it is earlier in the queue")
    priority: int = Field(description="the same as `task_priority`")
    crt_retry_num: int = Field(description="how often it has failed")
    max_retry_num: int = Field(description="of its type")
    max_retry_interval: int = Field(description="of its type")
    schedule_log: str
    task_content: str
    context: str = Field(description="the same as `task_content`")
    order_time: int = Field(description="its place in the queue, and when it is due: whole seconds since 1970")
    order_time_ms: int = Field(description="the same in milliseconds")
    create_time: str
    modify_time: str


class HeldTask(TaskAnswer):
    """A task that is the caller's to do."""

    lease: int = Field(description="send it back in set_task and heartbeat: who holds an older one is refused")
    lease_end: float = Field(description="when the task is taken back, unless there is a heartbeat before")


class ShownTask(TaskAnswer):
    """A task, with who has it."""

    lease: int = Field(description="of one that is running: under which it is held; else 0")
    lease_end: float = Field(description="of one that is running: when it is taken back; else 0")
    archived: bool = Field(description="whether its lane has let go of it")


class AttemptAnswer(Response):
    """An attempt that did not end its task."""

    held_time: str = Field(description="when a worker got the task")
    end_time: str = Field(description="when the attempt was over, or the task was taken back")
    outcome: OutcomeWord = Field(description="what it came to; `next_stage` and `put_back` are no failures")


class FollowedTask(ShownTask):
    """A task, with who has it and what was tried before."""

    attempts: list[AttemptAnswer] = Field(
        description=f"those that did not end it, the first one first; the last {KEPT_MAX}, fewer in a lane that is full"
    )
    attempts_left_out: int = Field(description="how many there were before those")


class TypeAnswer(Response):
    """A type, and which lanes its tasks are in."""

    task_type: str
    schedule_limit: int
    schedule_interval: int
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: int
    retry_interval: int
    lease_required: bool
    paused: bool
    schedule_begin_pos: int
    schedule_end_pos: int


class TypeFigures(TypeAnswer):
    """A type, and how its tasks stand, as its lanes said within the last second."""

    project_id: str
    due: int = Field(description="of those that are pending: due when their lanes said something last")
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    oldest_due_seconds: float = Field(description="for how long the first in the queue has been due; 0 if none is")
    lanes: int = Field(description="that are open")
    held: int = Field(description="how often tasks in open lanes were given out")
    retries: int = Field(description="of tasks in open lanes")
    timeouts: int = Field(description="of tasks in open lanes: leases that ran out")


class LaneAnswer(Response):
    """A lane that is open, as it said within the last second."""

    pos: int
    workflow_id: str
    full: bool = Field(description="it takes no more tasks")
    due: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    held: int
    retries: int
    timeouts: int
    next_order_time: float | None = Field(description="when its first task is due, or was")
    next_lease_end: float | None = Field(description="when it takes a task back, at the earliest")


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

    task_data: FollowedTask | None = None


class FoundTasks(Envelope):
    """Tasks, the newest first."""

    task_list: list[TaskAnswer] = Field(default=[])


class TaskPage(Envelope):
    """Tasks of a type: those of its newest lane first, in each lane the newest first, and then those in the archive."""

    task_list: list[ShownTask] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class TypePage(Envelope):
    """Types, by name."""

    type_list: list[TypeFigures] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class LanePage(Envelope):
    """Lanes, the oldest first."""

    lane_list: list[LaneAnswer] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class FoundIds(Envelope):
    """Ids of tasks."""

    task_ids: list[str] = Field(default=[])


class Counts(Envelope):
    """How many tasks a type has."""

    task_count: int = Field(default=0, description="all that were ever created")
    counts: int = Field(default=0, description="the same as `task_count`")
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    cancelled: int = 0


class Types(Envelope):
    """The project's types."""

    task_schedule_cfg_list: list[TypeAnswer] = Field(default=[])


def shown(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType) -> dict[str, Any]:
    """A task as `TaskAnswer` has it; made by hand, for ten thousand are told in a second."""
    content, log = texts
    return {
        "user_id": task.user_id,
        "task_id": task_id,
        "task_type": kind.name,
        "stage": task.stage,
        "task_stage": task.stage,
        "status": task.status,
        "task_priority": task.priority,
        "priority": task.priority,
        "crt_retry_num": task.crt_retry_num,
        "max_retry_num": kind.max_retry_num,
        "max_retry_interval": kind.max_retry_interval,
        "schedule_log": log,
        "task_content": content,
        "context": content,
        "order_time": task.order_time // 1000,
        "order_time_ms": task.order_time,
        "create_time": _moment(task.create_time),
        "modify_time": _moment(task.modify_time),
    }


def looked_at(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType, *, archived: bool) -> dict[str, Any]:
    """A task as `ShownTask` has it."""
    told = shown(task_id, task, texts, kind)
    is_held = task.status == Status.RUNNING
    told["lease"], told["lease_end"] = (task.lease, task.lease_end / 1000) if is_held else (0, 0.0)
    told["archived"] = archived
    return told


def followed(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType, *, archived: bool) -> dict[str, Any]:
    """A task as `FollowedTask` has it."""
    told = looked_at(task_id, task, texts, kind, archived=archived)
    told["attempts"], told["attempts_left_out"] = _tried(task) if task.attempts else ([], 0)
    return told


def _tried(task: Task) -> tuple[list[dict[str, str]], int]:
    rows, left_out = attempts.read(task)
    told = [
        {"held_time": _moment(row.held_time), "end_time": _moment(row.end_time), "outcome": _OUTCOMES[row.outcome]}
        for row in rows
    ]
    return told, left_out


def held(task_id: str, task: Task, texts: tuple[str, str], kind: TaskType) -> dict[str, Any]:
    """A task as `HeldTask` has it."""
    return shown(task_id, task, texts, kind) | {"lease": task.lease, "lease_end": task.lease_end / 1000}


def of_type(kind: TaskType) -> TypeAnswer:
    """A type as it is told."""
    return TypeAnswer(
        task_type=kind.name,
        schedule_limit=kind.schedule_limit,
        schedule_interval=kind.schedule_interval,
        max_retry_num=kind.max_retry_num,
        max_retry_interval=kind.max_retry_interval,
        max_processing_time=kind.max_processing_time,
        retry_interval=kind.retry_interval,
        lease_required=kind.lease_required,
        paused=kind.rules.paused,
        schedule_begin_pos=kind.begin_pos,
        schedule_end_pos=kind.end_pos,
    )


def succeeded(**members: Any) -> web.Response:
    """An answer that says yes."""
    return web.Response(body=_json({"code": Code.OK, "msg": SUCCESS, **members}), content_type=JSON)


def _moment(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{rest:03d}+00:00"


@lru_cache(maxsize=4_096)
def _second(seconds: int) -> str:
    """Tasks that are told together were made together."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()

"""Responses: the envelope `{code, msg}` that flowSvr's callers expect, and the tasks, types and lanes in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from api.http.models import Response
from api.http.routes import JSON
from api.tasks.storage import TYPE_AMBIGUOUS, TYPE_CHANGED, TYPE_UNKNOWN, CachedTaskType
from domain.faults import Fault
from domain.quotas import QUOTA_EXCEEDED
from domain.tasks import attempts
from domain.tasks.attempts import ATTEMPTS_MAX, NonFinalAttemptOutcome
from domain.tasks.messages import Task, TaskStatus
from domain.tasks.names import build_lane_workflow_id
from infra import log, outages

SUCCESS = "SUCCESS"
FAIL = "FAIL_REASON::{reason}"

TASK_UNKNOWN = "task_unknown"
TYPE_NOT_EMPTY = "task_type_not_empty"
TASK_DIFFERS = "task_differs"
SET_REFUSED = "set_refused"

OutcomeName: TypeAlias = Literal["failed", "timed_out", "next_stage", "put_back"]
Item = TypeVar("Item")

_OUTCOME_NAMES: Mapping[int, OutcomeName] = {
    NonFinalAttemptOutcome.FAILED: "failed",
    NonFinalAttemptOutcome.TIMED_OUT: "timed_out",
    NonFinalAttemptOutcome.NEXT_STAGE: "next_stage",
    NonFinalAttemptOutcome.PUT_BACK: "put_back",
}
_encode = msgspec.json.Encoder().encode
_log = log.get(__name__)


class ResponseCode(IntEnum):
    """flowSvr's error numbers. Errors that flowSvr does not have use the nearest one."""

    OK = 0
    INPUT = 8020
    BIND = 8021
    JSON = 8022
    GET = 8035
    PROCESS = 8036
    CREATE = 8037
    SET = 8041
    PRIORITY = 8044
    CONFIG = 8045


PROBLEM_CODES: Mapping[str, ResponseCode] = {
    "malformed_json": ResponseCode.JSON,
    "unsupported_media_type": ResponseCode.BIND,
    "unsupported_encoding": ResponseCode.BIND,
    "body_too_large": ResponseCode.BIND,
    "body_timeout": ResponseCode.BIND,
    TASK_UNKNOWN: ResponseCode.GET,
    TYPE_UNKNOWN: ResponseCode.CONFIG,
    TYPE_AMBIGUOUS: ResponseCode.CONFIG,
    TYPE_CHANGED: ResponseCode.CONFIG,
    TASK_DIFFERS: ResponseCode.CREATE,
    TYPE_NOT_EMPTY: ResponseCode.CONFIG,
    SET_REFUSED: ResponseCode.SET,
    QUOTA_EXCEEDED: ResponseCode.PROCESS,
}


class ResponseEnvelope(BaseModel):
    """Members of every response; the others are there when `code` is 0."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    code: int = Field(default=ResponseCode.OK, description="0 for success, else flowSvr's number of the error")
    msg: str = Field(default=SUCCESS, description="`SUCCESS`, or `FAIL_REASON::` with what was wrong and what to do")


class TaskResponse(Response):
    """A task."""

    user_id: str
    task_id: str
    task_type: str
    stage: str
    task_stage: str = Field(description="the same as `stage`: flowSvr's client reads this name")
    status: int = Field(description="1 pending, 2 running, 3 success, 4 failed, 5 cancelled")
    task_priority: int = Field(description="seconds by which it moves ahead in the queue")
    priority: int = Field(description="the same as `task_priority`")
    crt_retry_num: int = Field(description="number of failed attempts")
    max_retry_num: int = Field(description="of its type")
    max_retry_interval: int = Field(description="of its type")
    schedule_log: str
    task_content: str
    context: str = Field(description="the same as `task_content`")
    order_time: int = Field(description="its place in the queue, and when it is due: whole seconds since 1970")
    order_time_ms: int = Field(description="the same in milliseconds")
    create_time: str
    modify_time: str


class HeldTaskResponse(TaskResponse):
    """A task that the caller holds."""

    lease: int = Field(description="send it with set_task and heartbeat_tasks; an expired lease is refused")
    lease_end: float = Field(description="when the lease expires, unless a heartbeat renews it")


class TaskStateResponse(TaskResponse):
    """A task, and its lease."""

    lease: int = Field(description="lease of a running task; else 0")
    lease_end: float = Field(description="when the lease of a running task expires; else 0")
    archived: bool = Field(description="whether it is in the archive and no longer in its lane")


class EarlierAttemptResponse(Response):
    """An attempt that did not end its task."""

    held_time: str = Field(description="when a worker held the task")
    end_time: str = Field(description="when the attempt ended, or its lease expired")
    outcome: OutcomeName = Field(description="how it ended; `next_stage` and `put_back` are no failures")


class TaskDetailsResponse(TaskStateResponse):
    """A task, its lease, and its earlier attempts."""

    attempts: list[EarlierAttemptResponse] = Field(
        description=f"attempts that did not end it, oldest first; the last {ATTEMPTS_MAX}, or fewer in a full lane"
    )
    attempts_left_out: int = Field(description="number of attempts before those")
    workflow_id: str = Field(description="of its lane")


class TaskTypeResponse(Response):
    """A type, and the positions of its lanes."""

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


class TaskTypeFiguresResponse(TaskTypeResponse):
    """A type, and the counters of its tasks, at most a second old."""

    project_id: str
    due: int = Field(description="pending tasks that are due")
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    oldest_due_seconds: float = Field(description="how long the first task in the queue has been due; 0 if none is")
    lanes: int = Field(description="number of open lanes")
    held: int = Field(description="number of leases that open lanes have granted")
    retries: int = Field(description="number of retries of tasks in open lanes")
    timeouts: int = Field(description="number of expired leases of tasks in open lanes")


class LaneResponse(Response):
    """An open lane, at most a second old."""

    pos: int
    workflow_id: str
    full: bool = Field(description="it accepts no more tasks")
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
    next_lease_end: float | None = Field(description="the earliest time at which a lease may expire")


class TaskIdResponse(ResponseEnvelope):
    """The task that was created or changed; the change is durable."""

    task_id: str = ""


class TaskOutcome(ResponseEnvelope):
    """Outcome of one item of a request."""

    task_id: str = ""


class TaskOutcomesResponse(ResponseEnvelope):
    """Outcomes in the order of the request; `code` is 0 if all succeeded, else the first other code."""

    results: list[TaskOutcome] = Field(default=[])


class HoldTasksResponse(ResponseEnvelope):
    """Tasks that the caller holds now."""

    task_list: list[HeldTaskResponse] = Field(default=[])
    paused: str = Field(
        default="",
        description="who paused the type or all tasks, since when and why; left out while tasks are given out",
    )


class GetTaskResponse(ResponseEnvelope):
    """A task."""

    task_data: TaskDetailsResponse | None = None


class TaskListResponse(ResponseEnvelope):
    """Tasks, newest first."""

    task_list: list[TaskResponse] = Field(default=[])


class TaskPageResponse(ResponseEnvelope):
    """Tasks of a type: by lane, the newest lane first, then those in the archive; each part newest first."""

    task_list: list[TaskStateResponse] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class TaskFiguresPageResponse(ResponseEnvelope):
    """Types, by name."""

    type_list: list[TaskTypeFiguresResponse] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class LanePageResponse(ResponseEnvelope):
    """Lanes, oldest first."""

    lane_list: list[LaneResponse] = Field(default=[])
    next_cursor: str = Field(default="", description="send this as `cursor` for the next page; empty on the last")


class TaskIdsResponse(ResponseEnvelope):
    """Ids of tasks."""

    task_ids: list[str] = Field(default=[])


class TaskCountsResponse(ResponseEnvelope):
    """Number of tasks of a type."""

    task_count: int = Field(default=0, description="all tasks that were ever created")
    counts: int = Field(default=0, description="the same as `task_count`")
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    cancelled: int = 0


class TaskTypesResponse(ResponseEnvelope):
    """Types of the project."""

    task_schedule_cfg_list: list[TaskTypeResponse] = Field(default=[])


def build_task_fields(task_id: str, task: Task, texts: tuple[str, str], task_type: CachedTaskType) -> dict[str, Any]:
    """Build a `TaskResponse`; a plain dict, because ten thousand are built in a second."""
    content, schedule_log = texts
    return {
        "user_id": task.user_id,
        "task_id": task_id,
        "task_type": task_type.name,
        "stage": task.stage,
        "task_stage": task.stage,
        "status": task.status,
        "task_priority": task.priority,
        "priority": task.priority,
        "crt_retry_num": task.crt_retry_num,
        "max_retry_num": task_type.max_retry_num,
        "max_retry_interval": task_type.max_retry_interval,
        "schedule_log": schedule_log,
        "task_content": content,
        "context": content,
        "order_time": task.order_time // 1000,
        "order_time_ms": task.order_time,
        "create_time": _format_time(task.create_time),
        "modify_time": _format_time(task.modify_time),
    }


def build_held_fields(task_id: str, task: Task, texts: tuple[str, str], task_type: CachedTaskType) -> dict[str, Any]:
    """Build a `HeldTaskResponse`."""
    return build_task_fields(task_id, task, texts, task_type) | {
        "lease": task.lease,
        "lease_end": task.lease_end / 1000,
    }


def build_task_state_fields(
    task_id: str, task: Task, texts: tuple[str, str], task_type: CachedTaskType, *, archived: bool
) -> dict[str, Any]:
    """Build a `TaskStateResponse`."""
    is_held = task.status == TaskStatus.RUNNING
    lease, lease_end = (task.lease, task.lease_end / 1000) if is_held else (0, 0.0)
    members = {"lease": lease, "lease_end": lease_end, "archived": archived}
    return build_task_fields(task_id, task, texts, task_type) | members


def build_task_details_fields(
    task_id: str, task: Task, texts: tuple[str, str], task_type: CachedTaskType, *, archived: bool
) -> dict[str, Any]:
    """Build a `TaskDetailsResponse`."""
    rows, left_out = attempts.decode_attempts(task)
    lane = (task_type.type, int(task_id.rpartition("_")[2]))
    members = {
        "attempts": [_format_attempt_as_texts(row) for row in rows],
        "attempts_left_out": left_out,
        "workflow_id": build_lane_workflow_id(lane),
    }
    return build_task_state_fields(task_id, task, texts, task_type, archived=archived) | members


def _format_attempt_as_texts(attempt: attempts.NonFinalTaskAttempt) -> dict[str, str]:
    return {
        "held_time": _format_time(attempt.held_time),
        "end_time": _format_time(attempt.end_time),
        "outcome": _OUTCOME_NAMES[attempt.outcome],
    }


def build_task_type_response(task_type: CachedTaskType) -> TaskTypeResponse:
    """Build a response from a type; fields that are not renamed are copied by name."""
    renamed = {
        "task_type": task_type.name,
        "schedule_begin_pos": task_type.begin_pos,
        "schedule_end_pos": task_type.end_pos,
    }
    copied = {name: getattr(task_type, name) for name in TaskTypeResponse.model_fields if name not in renamed}
    return TaskTypeResponse(**renamed, **copied)


def build_success_response(**members: Any) -> web.Response:
    """Build a response with code 0."""
    body = _encode({"code": ResponseCode.OK, "msg": SUCCESS, **members})
    return web.Response(body=body, content_type=JSON)


def build_failure_fields(code: ResponseCode, reason: str) -> dict[str, Any]:
    """Build the members of a response with an error."""
    return {"code": code, "msg": FAIL.format(reason=reason)}


async def process_concurrently_and_collect_outcomes(
    items: Sequence[Item], process: Callable[[Item], Awaitable[str]]
) -> TaskOutcomesResponse:
    """Process items concurrently, each with an outcome of its own; `process` returns the id of the item's task."""
    results = await asyncio.gather(*(_await_and_convert_fault_to_outcome(process(item)) for item in items))
    failed = next((result for result in results if result.code), ResponseEnvelope())
    return TaskOutcomesResponse(code=failed.code, msg=failed.msg, results=results)


async def _await_and_convert_fault_to_outcome(awaitable_task_id: Awaitable[str]) -> TaskOutcome:
    try:
        return TaskOutcome(task_id=await awaitable_task_id)
    except Fault as fault:
        code = PROBLEM_CODES.get(fault.record.code, ResponseCode.INPUT)
        return TaskOutcome(**build_failure_fields(code, fault.record.sentence))
    except Exception as error:  # noqa: BLE001 - the caller needs the outcomes of the other items
        if outages.is_outage(error):
            _log.warning("component_unavailable", error=repr(error))
            return TaskOutcome(**build_failure_fields(ResponseCode.PROCESS, outages.describe_outage(error)))
        _log.error("task_of_request_failed", exc_info=error)
        return TaskOutcome(**build_failure_fields(ResponseCode.PROCESS, "An internal error occurred. Try again."))


def _format_time(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    return f"{_format_seconds_without_zone(seconds)}.{rest:03d}+00:00"


@lru_cache(maxsize=4_096)
def _format_seconds_without_zone(seconds: int) -> str:
    """Format a time without its zone. Cached, because tasks in one response were mostly created together."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()

"""Request bodies and queries: flowSvr's fields, under the names that its documents and its code use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, AwareDatetime, Field, model_validator

from api.http.models import OperatorRequest, Request
from domain.tasks.messages import (
    HOLD_LIMIT_MAX,
    LEASE_MAX_SECONDS,
    PRIORITY_MAX_SECONDS,
    RETRIES_MAX,
    STAGE_MAX_BYTES,
    USER_ID_MAX_BYTES,
)
from domain.tasks.names import TYPE_MAX_CHARACTERS

TYPE_PATTERN = rf"^[A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}}$"
ID_MAX_CHARACTERS = 160
LOG_MAX_CHARACTERS = 4_096
CONTENT_MAX_CHARACTERS = 16_384
LEASE_MAX = 2**53
BATCH_MAX = 1_000
LIST_MAX = 2_000
LIMIT_MAX = 2**31 - 1
"""Bound of limits in requests; the effective limit is the smaller one of the type or the route."""
PAGE_SIZE = 50
PAGE_SIZE_MAX = 200
WAIT_MAX_SECONDS = 300
RETRY_NUM_MAX = 1_000
START_MAX = timedelta(days=366)
ORIGINAL_INTERVAL_SECONDS = 20
"""Meaning of an interval of 0 to flowSvr's workers."""
RUNNING = 2
_ORIGINAL_FIELDS = frozenset({"order_time", "create_time"})
"""Fields of a result that only flowSvr's client sends."""
_IGNORED_IF_ZERO = frozenset({"task_stage", "context", "schedule_log", "crt_retry_num"})

CREATE_IGNORES = (
    *("status", "crt_retry_num", "max_retry_num", "max_retry_interval"),
    *("schedule_log", "order_time", "create_time", "modify_time"),
)
"""Fields that flowSvr's client sends with every new task; Haulage computes them from the type."""
SET_IGNORES = (
    *("user_id", "priority", "max_retry_num", "max_retry_interval"),
    *("order_time", "create_time", "modify_time"),
)
"""Fields that it sends with every result; the lane computes queue place and retry delay."""


def _require_start_within_limit(moment: datetime) -> datetime:
    if moment > datetime.now(UTC) + START_MAX:
        raise ValueError(f"it is more than {START_MAX.days} days ahead; send an earlier time.")
    return moment


def _require_max_bytes(text: str, bytes_max: int) -> str:
    if not text.isascii() and (length := len(text.encode())) > bytes_max:
        raise ValueError(f"it has {length:,} bytes in UTF-8; send {bytes_max} at most.")
    return text


Type = Annotated[str, Field(pattern=TYPE_PATTERN, description="name of a registered task type")]
TaskId = Annotated[str, Field(min_length=1, max_length=ID_MAX_CHARACTERS)]
Stage = Annotated[
    str,
    Field(max_length=STAGE_MAX_BYTES, pattern=r'^[^\x00-\x1f\x7f"\\]*$'),
    AfterValidator(lambda text: _require_max_bytes(text, STAGE_MAX_BYTES)),
]
UserId = Annotated[
    str, Field(max_length=USER_ID_MAX_BYTES), AfterValidator(lambda text: _require_max_bytes(text, USER_ID_MAX_BYTES))
]
Lease = Annotated[int, Field(ge=1, le=LEASE_MAX)]
HoldLimit = Annotated[
    int,
    Field(
        ge=0,
        le=LIMIT_MAX,
        description="maximum number of tasks, bounded by the type's schedule_limit; 0 means that limit",
    ),
]
Log = Annotated[str, Field(max_length=LOG_MAX_CHARACTERS)]
Content = Annotated[str, Field(max_length=CONTENT_MAX_CHARACTERS)]
Status = Annotated[int, Field(ge=1, le=4, description="1 pending, 2 running, 3 success, 4 failed")]
Ignored = Annotated[Any, Field(description="accepted from flowSvr's own client with any value, and ignored")]
ScheduleLimit = Annotated[int, Field(ge=0, le=HOLD_LIMIT_MAX), AfterValidator(lambda number: number or HOLD_LIMIT_MAX)]
ScheduleInterval = Annotated[
    int, Field(ge=0, le=LEASE_MAX_SECONDS), AfterValidator(lambda number: number or ORIGINAL_INTERVAL_SECONDS)
]
Start = Annotated[AwareDatetime, AfterValidator(_require_start_within_limit)]


class NewTask(Request):
    """A task to create."""

    task_type: Type
    task_id: str = Field(
        default="",
        max_length=ID_MAX_CHARACTERS,
        description="an id of your choice, or one that create_task returned: the same id is the same task",
    )
    user_id: UserId = ""
    task_content: Content = Field(default="", validation_alias=AliasChoices("task_content", "context"))
    task_priority: int | None = Field(
        default=0,
        ge=0,
        le=PRIORITY_MAX_SECONDS,
        validation_alias=AliasChoices("task_priority", "priority"),
        description="seconds by which it moves ahead in the queue; null is 0",
    )
    task_stage: Stage = Field(default="", validation_alias=AliasChoices("task_stage", "stage"))
    start_time: Start | None = Field(
        default=None,
        description="the task is not held before this time, and queued as if created at it; 366 days ahead at most",
    )
    status: Ignored = None
    crt_retry_num: Ignored = None
    max_retry_num: Ignored = None
    max_retry_interval: Ignored = None
    schedule_log: Ignored = None
    order_time: Ignored = None
    create_time: Ignored = None
    modify_time: Ignored = None

    @property
    def priority(self) -> int:
        """Priority in seconds."""
        return self.task_priority or 0

    @property
    def start_ms(self) -> int:
        """Start time in milliseconds since 1970; 0 for a task that may be held at once."""
        return max(0, round(self.start_time.timestamp() * 1_000)) if self.start_time else 0


class CreateTaskRequest(Request):
    """Body of `create_task`."""

    task_data: NewTask


class CreateTasksRequest(Request):
    """Body of `create_tasks`; the tasks may be of several types."""

    task_list: list[NewTask] = Field(min_length=1, max_length=BATCH_MAX)


class TaskTypeConfiguration(Request):
    """Configuration of a type. A field that is left out keeps its value, or has its default in a new type."""

    task_type: Type
    schedule_limit: ScheduleLimit | None = Field(
        default=None, description="maximum number of tasks of one hold; 100 by default; 0 is 2,000"
    )
    schedule_interval: ScheduleInterval | None = Field(
        default=None, description="seconds between a worker's holds; 10 by default; 0 is 20"
    )
    max_retry_num: int | None = Field(
        default=None, ge=0, le=RETRY_NUM_MAX, description="retries after the first attempt; 3 by default"
    )
    max_retry_interval: int | None = Field(
        default=None,
        ge=-LEASE_MAX_SECONDS,
        le=LEASE_MAX_SECONDS,
        description="seconds that retry delays double up to; a negative value is a constant delay; 30 by default",
    )
    max_processing_time: int | None = Field(
        default=None, ge=1, le=LEASE_MAX_SECONDS, description="seconds of a lease; 30 by default"
    )
    retry_interval: int | None = Field(
        default=None,
        ge=1,
        le=LEASE_MAX_SECONDS,
        description="seconds of the first retry delay, where delays double; max_retry_interval at most; 1 by default",
    )
    lease_required: bool | None = Field(
        default=None, description="whether a result without a `lease` is refused; false by default"
    )


class RegisterTaskTypeRequest(Request):
    """Body of `register_task_type`: a configuration, under either of flowSvr's two names or without a name."""

    task_type_data: TaskTypeConfiguration = Field(validation_alias=AliasChoices("task_type_data", "task_config_data"))

    @model_validator(mode="before")
    @classmethod
    def _wrap_fields_sent_without_enclosing_object(cls, value: Any) -> Any:
        """Wrap the fields of a caller that sends them without the enclosing object."""
        return {"task_type_data": value} if isinstance(value, dict) and "task_type" in value else value


class HoldTasksQuery(Request):
    """Query of a hold, which flowSvr's client sends as well as the body; contradicting values are refused."""

    task_type: Type | None = None
    limit: HoldLimit | None = None


class HoldTasksRequest(Request):
    """Body of a hold."""

    task_type: Type | None = Field(default=None, description="required here or in the query")
    limit: HoldLimit | None = None
    wait: float = Field(
        default=0,
        ge=0,
        le=WAIT_MAX_SECONDS,
        description="seconds to wait for a task when none is due; 30 at most by default",
    )


class TaskResult(Request):
    """Result of a held task."""

    task_id: TaskId
    task_type: str = Field(default="", pattern=rf"^$|{TYPE_PATTERN}", description="optional; must match the id")
    lease: Lease | None = Field(
        default=None, description="the lease that hold_tasks returned; an expired one is refused"
    )
    status: Status = Field(validation_alias=AliasChoices("status", "task_status"))
    schedule_log: Log | None = None
    crt_retry_num: int | None = Field(
        default=None,
        ge=0,
        le=RETRIES_MAX,
        description="with status 1: a higher number reports a failed attempt, and one higher than the type's "
        "max_retry_num ends the task; otherwise the next stage follows. With other statuses it is only stored",
    )
    task_stage: Stage | None = Field(default=None, validation_alias=AliasChoices("task_stage", "stage"))
    task_content: Content | None = Field(default=None, validation_alias=AliasChoices("task_content", "context"))
    user_id: Ignored = None
    priority: Ignored = None
    max_retry_num: Ignored = None
    max_retry_interval: Ignored = None
    order_time: Ignored = None
    create_time: Ignored = None
    modify_time: Ignored = None

    @model_validator(mode="before")
    @classmethod
    def _drop_zeros_of_flowsvr_client(cls, value: Any) -> Any:
        """Drop empty texts and zeros of flowSvr's client, which sends all fields always and means no change by them."""
        if not isinstance(value, dict) or not _ORIGINAL_FIELDS & value.keys():
            return value
        kept = {name: sent for name, sent in value.items() if name not in _IGNORED_IF_ZERO or sent not in ("", 0)}
        return kept | {"status": RUNNING} if kept.get("status") == 0 else kept

    @property
    def is_from_flowsvr_client(self) -> bool:
        """Whether flowSvr's own client sent it."""
        return bool(_ORIGINAL_FIELDS & self.model_fields_set)


class SetTaskResultRequest(Request):
    """Body of `set_task`."""

    task_data: TaskResult


class SetTaskResultsRequest(Request):
    """Body of `set_tasks`."""

    task_list: list[TaskResult] = Field(min_length=1, max_length=BATCH_MAX)


class TaskLease(Request):
    """A held task and its lease."""

    task_id: TaskId
    lease: Lease


class HeartbeatTasksRequest(Request):
    """Body of `heartbeat_tasks`."""

    task_list: list[TaskLease] = Field(min_length=1, max_length=BATCH_MAX)


class CancelTaskRequest(Request):
    """Body of `cancel_task`."""

    task_id: TaskId


class CancelTasksRequest(Request):
    """Body of `cancel_tasks`."""

    task_ids: list[TaskId] = Field(min_length=1, max_length=BATCH_MAX)


class TaskToPutBack(Request):
    """A task to return to its queue."""

    task_id: TaskId
    lease: Lease | None = Field(
        default=None, description="the lease that get_task returned; a task under another lease is left to its holder"
    )


class PutBackHeldOrCopyEndedTasksRequest(Request):
    """Body of `put_back_tasks`."""

    task_list: list[TaskToPutBack] = Field(min_length=1, max_length=BATCH_MAX)


class TaskTypeQuery(Request):
    """Name of a type."""

    task_type: Type


class TaskTypeActionRequest(TaskTypeQuery, OperatorRequest):
    """Name of a type, who acts on it, and why."""


class ListTasksQuery(Request):
    """Query of `get_task_list`: tasks that match every given field."""

    task_type: Type | None = Field(default=None, validation_alias=AliasChoices("task_type", "taskType"))
    status: int | None = Field(default=None, ge=0, le=5, description="status of a task, as in responses; 0 matches any")
    stage: Stage | None = Field(default=None, validation_alias=AliasChoices("stage", "task_stage"))
    user_id: UserId | None = Field(default=None, validation_alias=AliasChoices("user_id", "userId"))
    limit: int = Field(default=LIST_MAX, ge=0, le=LIMIT_MAX, description="2,000 at most; 0 means 2,000")

    @property
    def effective_limit(self) -> int:
        """Maximum number of tasks to list."""
        return min(self.limit or LIST_MAX, LIST_MAX)


class BrowseTasksQuery(Request):
    """Query of `browse_tasks`: tasks of a type that match every given field."""

    task_type: Type
    status: int | None = Field(default=None, ge=1, le=5, description="status of a task, as in responses")
    stage: Stage | None = Field(default=None, validation_alias=AliasChoices("stage", "task_stage"))
    user_id: UserId | None = Field(default=None, description="only tasks of this user")
    archived: bool = Field(default=False, description="only tasks in the archive")
    limit: int = Field(default=PAGE_SIZE, ge=1, le=PAGE_SIZE_MAX)
    cursor: str = Field(default="", max_length=400, description="`next_cursor` of the previous page")


class TaskTypesPageQuery(Request):
    """Query of `get_task_figures`."""

    prefix: str = Field(default="", max_length=TYPE_MAX_CHARACTERS, description="prefix of their names")
    limit: int = Field(default=PAGE_SIZE, ge=1, le=PAGE_SIZE_MAX)
    cursor: str = Field(
        default="", max_length=TYPE_MAX_CHARACTERS + 50, description="`next_cursor` of the previous page"
    )


class TaskLanesQuery(Request):
    """Query of `get_task_lanes`."""

    task_type: Type
    limit: int = Field(default=PAGE_SIZE, ge=1, le=PAGE_SIZE_MAX)
    cursor: str = Field(default="", pattern="^[0-9]{0,9}$", description="`next_cursor` of the previous page")


class FindTasksQuery(Request):
    """Query of `find_tasks`: the `task_id` that the creator of a task chose."""

    name: str = Field(min_length=1, max_length=ID_MAX_CHARACTERS)


class GetTaskQuery(Request):
    """Query of `get_task`."""

    task_id: TaskId = Field(validation_alias=AliasChoices("task_id", "taskId"))

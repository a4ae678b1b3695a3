"""What callers send: the original's fields, each under the names that its documents and its code use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, AwareDatetime, Field, model_validator

from api.http.models import Request
from domain.tasks.ids import TYPE_MAX_CHARACTERS
from domain.tasks.messages import (
    HOLD_LIMIT_MAX,
    LEASE_MAX_SECONDS,
    PRIORITY_MAX_SECONDS,
    RETRIES_MAX,
    STAGE_MAX_BYTES,
    USER_ID_MAX_BYTES,
)

TYPE_PATTERN = rf"^[A-Za-z0-9_.-]{{1,{TYPE_MAX_CHARACTERS}}}$"
ID_MAX_CHARACTERS = 160
LOG_MAX_CHARACTERS = 4_096
CONTENT_MAX_CHARACTERS = 16_384
LEASE_MAX = 2**53
BATCH_MAX = 1_000
LIST_MAX = 2_000
LIMIT_MAX = 2**31 - 1
"""Clients write down what they like; what counts is bounded elsewhere."""
PAGE = 50
PAGE_MAX = 200
WAIT_MAX_SECONDS = 300
RETRY_NUM_MAX = 1_000

Type = Annotated[str, Field(pattern=TYPE_PATTERN, description="which kind of task; register it first")]
TaskId = Annotated[str, Field(min_length=1, max_length=ID_MAX_CHARACTERS)]
Stage = Annotated[
    str,
    Field(max_length=STAGE_MAX_BYTES, pattern=r'^[^\x00-\x1f\x7f"\\]*$'),
    AfterValidator(lambda text: _short(text, STAGE_MAX_BYTES)),
]
UserId = Annotated[
    str, Field(max_length=USER_ID_MAX_BYTES), AfterValidator(lambda text: _short(text, USER_ID_MAX_BYTES))
]
Lease = Annotated[int, Field(ge=1, le=LEASE_MAX)]
HoldLimit = Annotated[
    int,
    Field(
        ge=0,
        le=LIMIT_MAX,
        description="tasks at most, if fewer than the type's schedule_limit; 0 is as if it were left out",
    ),
]
Log = Annotated[str, Field(max_length=LOG_MAX_CHARACTERS)]
Content = Annotated[str, Field(max_length=CONTENT_MAX_CHARACTERS)]
Status = Annotated[int, Field(ge=1, le=4, description="1 pending, 2 running, 3 success, 4 failed")]
Ignored = Annotated[Any, Field(description="taken from flowSvr's own client, of any value, and without effect")]

CREATE_IGNORES = (
    *("status", "crt_retry_num", "max_retry_num", "max_retry_interval"),
    *("schedule_log", "order_time", "create_time", "modify_time"),
)
"""What flowSvr's client sends with every new task. Haulage reckons it itself, as the type says."""
SET_IGNORES = (
    *("user_id", "priority", "max_retry_num", "max_retry_interval"),
    *("order_time", "create_time", "modify_time"),
)
"""The same of every result: place and pause in the queue are reckoned by the lane."""


def _near(moment: datetime) -> datetime:
    if moment > datetime.now(UTC) + START_MAX:
        raise ValueError(f"it is more than {START_MAX.days} days ahead; send an earlier time.")
    return moment


ORIGINAL_INTERVAL_SECONDS = 20
"""What flowSvr's workers make of an interval of 0."""
ScheduleLimit = Annotated[int, Field(ge=0, le=HOLD_LIMIT_MAX), AfterValidator(lambda number: number or HOLD_LIMIT_MAX)]
ScheduleInterval = Annotated[
    int, Field(ge=0, le=LEASE_MAX_SECONDS), AfterValidator(lambda number: number or ORIGINAL_INTERVAL_SECONDS)
]
START_MAX = timedelta(days=366)
Start = Annotated[AwareDatetime, AfterValidator(_near)]
RUNNING = 2
_ORIGINAL_SHAPE = frozenset({"order_time", "create_time"})
"""What only flowSvr's client sends with a result."""
_SKIPPED_AS_ZERO = frozenset({"task_stage", "context", "schedule_log", "crt_retry_num"})


def _short(text: str, most: int) -> str:
    if not text.isascii() and (length := len(text.encode())) > most:
        raise ValueError(f"it has {length:,} bytes in UTF-8; send {most} at most.")
    return text


def _names(*names: str) -> AliasChoices:
    return AliasChoices(*names)


class NewTask(Request):
    """A task to be done."""

    task_type: Type
    task_id: str = Field(
        default="",
        max_length=ID_MAX_CHARACTERS,
        description="your own name for it, or an id that we answered: the same twice is one task; empty for none",
    )
    user_id: UserId = ""
    task_content: Content = Field(default="", validation_alias=_names("task_content", "context"))
    task_priority: int | None = Field(
        default=0,
        ge=0,
        le=PRIORITY_MAX_SECONDS,
        validation_alias=_names("task_priority", "priority"),
        description="so many seconds earlier it is in the queue; null is 0",
    )
    task_stage: Stage = Field(default="", validation_alias=_names("task_stage", "stage"))
    start_time: Start | None = Field(
        default=None,
        description="it is not given out before, and then as if it was created at that time; 366 days ahead at most",
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
        """Seconds."""
        return self.task_priority or 0

    @property
    def start_ms(self) -> int:
        """Milliseconds since 1970; 0 for a task that may be given out at once."""
        return max(0, round(self.start_time.timestamp() * 1_000)) if self.start_time else 0


class Create(Request):
    """One task."""

    task_data: NewTask


class CreateMany(Request):
    """Many tasks, of one type or of several."""

    task_list: list[NewTask] = Field(min_length=1, max_length=BATCH_MAX)


class TypeConfig(Request):
    """A type and how its tasks are scheduled. What is left out keeps its value, or the default at first."""

    task_type: Type
    schedule_limit: ScheduleLimit | None = Field(default=None, description="tasks of one hold at most; 100; 0 is 2,000")
    schedule_interval: ScheduleInterval | None = Field(
        default=None, description="seconds between a worker's holds; 10; 0 is 20"
    )
    max_retry_num: int | None = Field(default=None, ge=0, le=RETRY_NUM_MAX, description="retries after the first; 3")
    max_retry_interval: int | None = Field(
        default=None,
        ge=-LEASE_MAX_SECONDS,
        le=LEASE_MAX_SECONDS,
        description="seconds that a pause doubles up to, or, when negative, the length of every pause; 30",
    )
    max_processing_time: int | None = Field(
        default=None, ge=1, le=LEASE_MAX_SECONDS, description="seconds that a held task is leased for; 30"
    )
    retry_interval: int | None = Field(
        default=None,
        ge=1,
        le=LEASE_MAX_SECONDS,
        description="seconds of the first pause, where pauses double; max_retry_interval at most; 1",
    )
    lease_required: bool | None = Field(
        default=None, description="whether a result without a `lease` is refused; false"
    )


class Register(Request):
    """A type, under either of the two names that the original has for it, or without one."""

    task_type_data: TypeConfig = Field(validation_alias=_names("task_type_data", "task_config_data"))

    @model_validator(mode="before")
    @classmethod
    def _wrapped(cls, value: Any) -> Any:
        """Some callers send the fields without the object around them."""
        return {"task_type_data": value} if isinstance(value, dict) and "task_type" in value else value


class HoldQuery(Request):
    """What flowSvr's client says of a hold in the query, too; a body that says something else is refused."""

    task_type: Type | None = None
    limit: HoldLimit | None = None


class Hold(Request):
    """A worker that has time."""

    task_type: Type | None = Field(default=None, description="here or in the query")
    limit: HoldLimit | None = None
    wait: float = Field(
        default=0,
        ge=0,
        le=WAIT_MAX_SECONDS,
        description="seconds to wait for a task when none is due; 30 at most by default",
    )


class Result(Request):
    """What became of a held task."""

    task_id: TaskId
    task_type: str = Field(default="", pattern=rf"^$|{TYPE_PATTERN}", description="as in the id; may be left out")
    lease: Lease | None = Field(
        default=None, description="as hold_tasks gave it: who has lost the task since is refused"
    )
    status: Status = Field(validation_alias=_names("status", "task_status"))
    schedule_log: Log | None = None
    crt_retry_num: int | None = Field(
        default=None,
        ge=0,
        le=RETRIES_MAX,
        description="with status 1: higher than it was says that the attempt failed, and higher than the type's "
        "max_retry_num that it was the last one; else the next stage is due. With other statuses it is only kept",
    )
    task_stage: Stage | None = Field(default=None, validation_alias=_names("task_stage", "stage"))
    task_content: Content | None = Field(default=None, validation_alias=_names("task_content", "context"))
    user_id: Ignored = None
    priority: Ignored = None
    max_retry_num: Ignored = None
    max_retry_interval: Ignored = None
    order_time: Ignored = None
    create_time: Ignored = None
    modify_time: Ignored = None

    @model_validator(mode="before")
    @classmethod
    def _without_zeros(cls, value: Any) -> Any:
        """To flowSvr's client, which sends all fields always, an empty text and a zero say: leave it as it is."""
        if not isinstance(value, dict) or not _ORIGINAL_SHAPE & value.keys():
            return value
        kept = {name: sent for name, sent in value.items() if name not in _SKIPPED_AS_ZERO or sent not in ("", 0)}
        return kept | {"status": RUNNING} if kept.get("status") == 0 else kept

    @property
    def is_of_original(self) -> bool:
        """Whether flowSvr's own client says it."""
        return bool(_ORIGINAL_SHAPE & self.model_fields_set)


class Set(Request):
    """One result."""

    task_data: Result


class SetMany(Request):
    """Many results."""

    task_list: list[Result] = Field(min_length=1, max_length=BATCH_MAX)


class Held(Request):
    """A task that a worker holds."""

    task_id: TaskId
    lease: Lease


class Beats(Request):
    """Tasks whose leases begin anew."""

    task_list: list[Held] = Field(min_length=1, max_length=BATCH_MAX)


class Cancel(Request):
    """A task that nobody needs any more."""

    task_id: TaskId


class Named(Request):
    """Tasks."""

    task_ids: list[TaskId] = Field(min_length=1, max_length=BATCH_MAX)


class Back(Request):
    """A task that is to wait for a worker again."""

    task_id: TaskId
    lease: Lease | None = Field(
        default=None, description="as get_task tells it: if somebody else holds the task by now, it is left to them"
    )


class PutBack(Request):
    """Tasks that are to wait for workers again."""

    task_list: list[Back] = Field(min_length=1, max_length=BATCH_MAX)


class OfType(Request):
    """A type."""

    task_type: Type


class Wanted(Request):
    """Which tasks are listed: all that fit every field that is given."""

    task_type: Type | None = Field(default=None, validation_alias=_names("task_type", "taskType"))
    status: int | None = Field(default=None, ge=0, le=5, description="as in answers; 0 is as if it were left out")
    stage: Stage | None = Field(default=None, validation_alias=_names("stage", "task_stage"))
    limit: int = Field(default=LIST_MAX, ge=0, le=LIMIT_MAX, description="2,000 at most, which 0 stands for, too")

    @property
    def most(self) -> int:
        """How many are listed at most."""
        return min(self.limit or LIST_MAX, LIST_MAX)


class Browsed(Request):
    """Which tasks of a type are listed, a page at a time: all that fit every field that is given."""

    task_type: Type
    status: int | None = Field(default=None, ge=1, le=5, description="as in answers")
    stage: Stage | None = Field(default=None, validation_alias=_names("stage", "task_stage"))
    archived: bool = Field(default=False, description="only those that their lanes have let go of")
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    cursor: str = Field(default="", max_length=400, description="`next_cursor` of the page before")


class BrowsedTypes(Request):
    """Which types are listed, a page at a time."""

    prefix: str = Field(default="", max_length=TYPE_MAX_CHARACTERS, description="how their names begin")
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    cursor: str = Field(default="", max_length=TYPE_MAX_CHARACTERS + 50, description="`next_cursor` of the page before")


class BrowsedLanes(Request):
    """Which lanes of a type are listed, a page at a time."""

    task_type: Type
    limit: int = Field(default=PAGE, ge=1, le=PAGE_MAX)
    cursor: str = Field(default="", pattern="^[0-9]{0,9}$", description="`next_cursor` of the page before")


class Name(Request):
    """What a caller called a task when they created it."""

    name: str = Field(min_length=1, max_length=ID_MAX_CHARACTERS)


class One(Request):
    """A task."""

    task_id: TaskId = Field(validation_alias=_names("task_id", "taskId"))

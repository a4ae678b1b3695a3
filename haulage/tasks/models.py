"""What is sent to the queues and what comes back. Fields that a newer API adds are ignored."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Status(IntEnum):
    """Where a task stands."""

    PENDING = 1
    RUNNING = 2
    SUCCESS = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (Status.SUCCESS, Status.FAILED, Status.CANCELLED)


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def body(self) -> dict[str, Any]:
        """As JSON, without what was left open."""
        return self.model_dump(mode="json", exclude_none=True)


class TaskType(_Sent):
    """A type of tasks and how they are scheduled. What is None keeps its value, or the default at first."""

    task_type: str
    schedule_limit: int | None = None
    schedule_interval: int | None = None
    """Seconds."""
    max_retry_num: int | None = None
    max_retry_interval: int | None = None
    """Seconds: pauses double up to it; negative, every pause is so long."""
    max_processing_time: int | None = None
    """Seconds that a task is leased for."""
    retry_interval: int | None = None
    """Seconds of the first pause, where pauses double."""
    lease_required: bool | None = None
    """Whether a result without a lease is refused."""


class RegisteredType(BaseModel):
    """A type as the API knows it."""

    task_type: str
    schedule_limit: int
    schedule_interval: float
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: float
    retry_interval: int = 1
    lease_required: bool = False
    paused: bool = False


class NewTask(_Sent):
    """A task to be done."""

    task_type: str
    task_content: str = ""
    user_id: str = ""
    task_id: str | None = None
    """Your own name for it: the same twice is one task. None takes a name that nobody has."""
    task_priority: int = 0
    """By so many seconds it is earlier in the queue."""
    task_stage: str = ""
    start_time: datetime | None = None
    """It is not given out before; a time with its zone."""


class Task(BaseModel):
    """A task as it stands."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    task_type: str
    user_id: str
    stage: str
    status: Status
    task_priority: int
    crt_retry_num: int
    """How often it has failed."""
    max_retry_num: int
    max_retry_interval: int
    schedule_log: str
    task_content: str
    order_time: int
    """Its place in the queue, and when it is due: whole seconds since 1970."""
    order_time_ms: int = 0
    """The same in milliseconds."""
    create_time: datetime
    modify_time: datetime


class HeldTask(Task):
    """A task that is the caller's to do, until its lease ends."""

    lease: int
    lease_end: float


class Attempt(BaseModel):
    """An attempt that did not end its task."""

    model_config = ConfigDict(frozen=True)

    held_time: datetime
    end_time: datetime
    """When it was over, or the task was taken back."""
    outcome: str
    """`failed`, `timed_out`, `next_stage` or `put_back`; the last two are no failures."""


class FollowedTask(Task):
    """A task, with who has it and what was tried before."""

    lease: int = 0
    """Of one that is running: under which it is held."""
    lease_end: float = 0.0
    """Of one that is running: when it is taken back."""
    archived: bool = False
    attempts: tuple[Attempt, ...] = ()
    """Those that did not end it, the first one first."""
    attempts_left_out: int = 0
    """How many there were before those."""


class Result(_Sent):
    """What became of a held task. What is None stays as it was."""

    task_id: str
    lease: int | None = None
    status: Status
    crt_retry_num: int | None = None
    """With `Status.PENDING`: higher than it was says that the attempt failed."""
    task_stage: str | None = None
    task_content: str | None = None
    schedule_log: str | None = None


class Outcome(BaseModel):
    """What became of one of several."""

    code: int = 0
    msg: str = "SUCCESS"
    task_id: str = ""

    @property
    def good(self) -> bool:
        """Whether it was done."""
        return self.code == 0


class Counts(BaseModel):
    """How many tasks a type has."""

    task_count: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int = 0

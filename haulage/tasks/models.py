"""Requests and responses of task queues. Fields that a newer API adds are ignored."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Status(IntEnum):
    """State of a task."""

    PENDING = 1
    RUNNING = 2
    SUCCESS = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def final(self) -> bool:
        """Whether the task has ended."""
        return self in (Status.SUCCESS, Status.FAILED, Status.CANCELLED)


class _RequestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def body(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON."""
        return self.model_dump(mode="json", exclude_none=True)


class TaskType(_RequestModel):
    """Configuration of a type. None keeps the present value, or the default of a new type."""

    task_type: str
    schedule_limit: int | None = None
    schedule_interval: int | None = None
    """Seconds between holds of a worker that keeps an interval."""
    max_retry_num: int | None = None
    max_retry_interval: int | None = None
    """Seconds that retry delays double up to; a negative value is a constant delay."""
    max_processing_time: int | None = None
    """Seconds of a lease."""
    retry_interval: int | None = None
    """Seconds of the first retry delay, where delays double."""
    lease_required: bool | None = None
    """Whether a result without a lease is refused."""


class RegisteredType(BaseModel):
    """A registered type."""

    task_type: str
    schedule_limit: int
    schedule_interval: float
    max_retry_num: int
    max_retry_interval: int
    max_processing_time: float
    retry_interval: int = 1
    lease_required: bool = False
    paused: bool = False


class NewTask(_RequestModel):
    """A task to create."""

    task_type: str
    task_content: str = ""
    user_id: str = ""
    task_id: str | None = None
    """An id of your choice: the same id is the same task. None chooses a new one."""
    task_priority: int = 0
    """Seconds by which the task moves ahead in the queue."""
    task_stage: str = ""
    start_time: datetime | None = None
    """The task is not held before this time, which has a time zone."""


class Task(BaseModel):
    """A task."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    task_type: str
    user_id: str
    stage: str
    status: Status
    task_priority: int
    crt_retry_num: int
    """Number of failed attempts."""
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
    """A task that the caller holds until its lease expires."""

    lease: int
    lease_end: float


class EndedTaskAttempt(BaseModel):
    """An attempt that did not end its task."""

    model_config = ConfigDict(frozen=True)

    held_time: datetime
    end_time: datetime
    """When the attempt ended, or its lease expired."""
    outcome: str
    """`failed`, `timed_out`, `next_stage` or `put_back`; the last two are no failures."""


class TaskDetails(Task):
    """A task, its lease, and its earlier attempts."""

    lease: int = 0
    """Lease of a running task; else 0."""
    lease_end: float = 0.0
    """When the lease of a running task expires; else 0."""
    archived: bool = False
    attempts: tuple[EndedTaskAttempt, ...] = ()
    """Attempts that did not end the task, oldest first."""
    attempts_left_out: int = 0
    """Number of attempts before those."""


class TaskResult(_RequestModel):
    """Result of a held task. None keeps the present value of a field."""

    task_id: str
    lease: int | None = None
    status: Status
    crt_retry_num: int | None = None
    """With `Status.PENDING`: a higher number than before reports a failed attempt."""
    task_stage: str | None = None
    task_content: str | None = None
    schedule_log: str | None = None


class TaskEntryOutcome(BaseModel):
    """Outcome of one entry of a request."""

    code: int = 0
    msg: str = "SUCCESS"
    task_id: str = ""

    @property
    def good(self) -> bool:
        """Whether the entry succeeded."""
        return self.code == 0


class TaskCountsByState(BaseModel):
    """Number of tasks of a type by state."""

    task_count: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int = 0

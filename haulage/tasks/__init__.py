"""Typed client of task queues, and a worker that runs their tasks."""

from haulage.tasks.client import Tasks
from haulage.tasks.handlers import Handler, Next, TaskFailed
from haulage.tasks.models import (
    Attempt,
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
from haulage.tasks.worker import Worker

__all__ = [
    "Attempt",
    "Counts",
    "FollowedTask",
    "Handler",
    "HeldTask",
    "NewTask",
    "Next",
    "Outcome",
    "RegisteredType",
    "Result",
    "Status",
    "Task",
    "TaskFailed",
    "TaskRefused",
    "TaskType",
    "Tasks",
    "Worker",
]

"""Typed client of task queues, and a worker that runs their tasks."""

from haulage.tasks.client import Tasks
from haulage.tasks.handlers import Handler, NextStage, TaskFailed
from haulage.tasks.models import (
    EndedTaskAttempt,
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
from haulage.tasks.worker import Worker

__all__ = [
    "EndedTaskAttempt",
    "Handler",
    "HeldTask",
    "NewTask",
    "NextStage",
    "RegisteredType",
    "Status",
    "Task",
    "TaskCountsByState",
    "TaskDetails",
    "TaskEntryOutcome",
    "TaskFailed",
    "TaskRequestRefused",
    "TaskResult",
    "TaskType",
    "Tasks",
    "Worker",
]

"""Typed client of task queues, and a worker that runs their tasks."""

from haulage.tasks.client import Tasks
from haulage.tasks.handlers import Handler, NextStage, TaskFailed
from haulage.tasks.models import (
    Attempt,
    Counts,
    HeldTask,
    NewTask,
    Outcome,
    RegisteredType,
    Result,
    Status,
    Task,
    TaskDetails,
    TaskType,
)
from haulage.tasks.refusals import TaskRequestRefused
from haulage.tasks.worker import Worker

__all__ = [
    "Attempt",
    "Counts",
    "Handler",
    "HeldTask",
    "NewTask",
    "NextStage",
    "Outcome",
    "RegisteredType",
    "Result",
    "Status",
    "Task",
    "TaskDetails",
    "TaskFailed",
    "TaskRequestRefused",
    "TaskType",
    "Tasks",
    "Worker",
]

"""Handlers of a worker and their results: done, next stage, or failed without retry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from haulage.errors import HaulageError
from haulage.tasks.models import HeldTask


@dataclass(frozen=True)
class NextStage:
    """Result of a handler: the task goes to the end of the queue, for the handler of its next stage."""

    stage: str
    content: str | None = None
    """New content of the task; None keeps the present one."""


class TaskFailed(HaulageError):
    """Raised by a handler to end the task as failed, without a retry. The message is written to its log."""


Handler: TypeAlias = Callable[[HeldTask], Awaitable[NextStage | None]]
"""Runs one stage of a task. None ends the task as succeeded; any error except `TaskFailed` is retried."""

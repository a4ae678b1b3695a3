"""What a worker's handlers are and say: done, on to a next stage, or failed for good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from haulage.errors import HaulageError
from haulage.tasks.models import HeldTask


@dataclass(frozen=True)
class Next:
    """The task goes on: back to the queue's tail, for the handler of another stage."""

    stage: str
    content: str | None = None
    """What that handler finds; None leaves what is there."""


class TaskFailed(HaulageError):
    """Raised by a handler: no retry can help, the task ends as failed. The message goes into its log."""


Handler: TypeAlias = Callable[[HeldTask], Awaitable[Next | None]]
"""Does one stage of a task; None ends it well. Any error but `TaskFailed` has it retried as its type says."""

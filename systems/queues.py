"""Task queues: what each serves, and how much of it at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TaskQueue:
    """One line of the worker's table."""

    name: str
    workflows: Sequence[type]
    activities: Sequence[Callable[..., Any]]
    slots: int
    """Activities that run at a time."""
    polls: int = 5
    eager: int = 3
    """Activities begun at one time by a workflow that may run in its own process, without a way to the engine."""
    served_with: str = ""
    """The queue whose workers serve this one, too; nobody can ask for it by its own name."""

    def is_among(self, names: Sequence[str]) -> bool:
        """Whether a worker of these queues serves this one."""
        return (self.served_with or self.name) in names

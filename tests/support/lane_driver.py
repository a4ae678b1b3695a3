"""A lane with one sender, and a clock that the test sets."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

from domain.tasks.lane import Lane
from domain.tasks.messages import (
    CreateOperation,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    OperationCode,
    SetOperation,
    Task,
    TaskTypeRules,
)
from domain.tasks.scheduling import SECOND

START = 1_767_225_600_000


class LaneDriver:
    """A lane, a clock, and one who asks."""

    def __init__(self, **rules: Any) -> None:
        self.lane = Lane(TaskTypeRules(**rules))
        self.now = START
        self.numbers = itertools.count(1)

    def ask(self, **operations: Any) -> LaneBatchReply:
        """A group at this moment."""
        return self.lane.apply_batch(LaneBatch("sender", next(self.numbers), **operations), self.now)

    def create(self, content: str = "{}", **fields: Any) -> str:
        """A task; its key."""
        key = uuid.uuid4().hex
        assert self.ask(creates=[CreateOperation(key, "user", content, **fields)]).creates == OperationCode.OK
        return key

    def hold(self, limit: int = 100, seconds: int = 0) -> list[Task]:
        """What one hold gets."""
        [held] = self.ask(holds=[HoldOperation(limit, seconds)]).holds
        return held

    def hold_one(self) -> Task:
        """The only one that is due."""
        [held] = self.hold()
        return held

    def set(self, task: Task, status: int = 0, **said: Any) -> str:
        """Of a task that is held."""
        return self.ask(sets=[SetOperation(task.key, status, said.pop("lease", task.lease), **said)]).sets

    def read(self, key: str) -> Task:
        """A task that is there."""
        [task] = self.ask(reads=[key]).reads
        assert task is not None
        return task

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.now += round(seconds * SECOND)

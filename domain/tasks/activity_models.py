"""Inputs and results of the lane workflow and its activities, and the snapshot that passes from run to run."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from domain.tasks.messages import LaneHead, Task, TaskTypeRules

SNAPSHOT_MAX_BYTES: Final = 935_000
"""Of the tasks in a snapshot; saved replies take the rest of 1 MB."""
FULL_BYTES: Final = 850_000
"""From here on a lane accepts no more tasks; the rest is reserved for texts that workers add."""
SAVED_REPLIES_MAX: Final = 64
SAVED_REPLIES_MAX_BYTES: Final = 60_000


class ReplayableBatchReply(Struct, array_like=True):
    """The last batch of a sender, with what is needed to answer it again."""

    sender: str
    number: int
    creates: str
    sets: str
    heartbeats: str
    cancels: str
    first_lease: int
    holds: list[int]
    """Number of tasks of each hold; their leases are numbered consecutively from `first_lease`."""


class LaneSnapshot(Struct, array_like=True):
    """Complete state of a lane."""

    head: LaneHead
    now: int
    last_lease: int
    tasks: list[Task]
    """Pending tasks come first, in queue order."""
    replies: list[ReplayableBatchReply]
    archived_keys: list[str] = []
    """Keys of archived tasks whose creates may be repeated and must not create them again."""


class LaneInput(Struct):
    """Input of the lane workflow."""

    type: str
    pos: int
    rules: TaskTypeRules
    carried: LaneSnapshot | None = None


class FinishedTaskCounts(Struct):
    """Result of the lane workflow: how many of its tasks ended in which state."""

    success: int
    failed: int
    cancelled: int = 0


class CheckpointInput(Struct):
    """What a lane saves: its head, and tasks that have ended."""

    type: str
    pos: int
    head: LaneHead
    ended: list[Task]
    is_first: bool = False
    """The first checkpoint of a run."""

    @property
    def has_no_batch_yet(self) -> bool:
        """Whether the lane has not received any batch yet."""
        return self.is_first and not self.head.number


class LanePassedByTypeResult(Struct):
    """Result of saving a checkpoint."""

    is_past: bool = False
    """The type has already closed this position: the lane must not accept tasks."""


class CloseLaneInput(Struct):
    """A lane all of whose tasks have ended and are archived."""

    type: str
    pos: int

"""What was seen of a world that was played: what callers, workers and operators said and were answered, and the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PENDING, RUNNING, SUCCESS, FAILED, CANCELLED = 1, 2, 3, 4, 5
FINAL = (SUCCESS, FAILED, CANCELLED)


@dataclass(frozen=True, slots=True)
class CreatedTask:
    """A create: from the first time that it was sent until it was answered."""

    wish: int
    name: str
    """Empty where the caller gave none."""
    user_id: str
    sent_at: float
    answered_at: float
    code: int
    task_id: str = ""
    text: str = ""
    """What was asked for."""
    lost: int = 0
    """How often it was sent before without an answer."""
    priority: int = 0
    stage: str = ""
    start: float = 0.0
    """Before this moment it must not be given out."""


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A task that a worker was given; moments are seconds since 1970, those of the queue milliseconds."""

    task_id: str
    lease: int
    sent_at: float
    received_at: float
    lease_end: float
    order_time_ms: int
    crt_retry_num: int
    stage: str
    text: str
    log: str
    user_id: str
    priority: int


@dataclass(frozen=True, slots=True)
class HoldAttempt:
    """A hold, whatever it brought."""

    sent_at: float
    received_at: float
    limit: int
    tasks: Sequence[str]
    is_lost: bool = False
    """The response was lost, so its tasks are unknown."""


@dataclass(frozen=True, slots=True)
class SentResult:
    """What a worker said of a holding, until that was answered."""

    task_id: str
    lease: int
    """Of the holding that it is about, whether or not it was sent."""
    status: int
    sent_at: float
    answered_at: float
    code: int
    crt_retry_num: int | None = None
    """With status 1, higher than the task's: the attempt failed."""
    stage: str | None = None
    text: str | None = None
    log: str | None = None
    lost: int = 0
    """How often it was sent before without an answer."""
    is_leased: bool = True
    """Whether it named its lease."""
    is_beat: bool = False

    @property
    def is_taken(self) -> bool:
        """Whether the answer was that all is well."""
        return self.code == 0

    @property
    def failed(self) -> bool:
        """Whether it was meant to say that the attempt failed."""
        return self.status == PENDING and self.crt_retry_num is not None


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """What an operator did: to a task, or to the type."""

    kind: str
    sent_at: float
    answered_at: float
    code: int
    task_id: str = ""
    lost: int = 0


@dataclass(frozen=True, slots=True)
class FinalTask:
    """The final state of a task."""

    task_id: str
    user_id: str
    status: int
    priority: int
    crt_retry_num: int
    stage: str
    text: str
    log: str


@dataclass(frozen=True, slots=True)
class ObservedStatus:
    """A task that was read right after something of it had been answered."""

    task_id: str
    after_status: int
    """What it was said to be."""
    asked_at: float
    status: int | None
    """What it was read to be; None where it was not found."""


@dataclass
class TaskObservations:
    """All of it."""

    created: list[CreatedTask] = field(default_factory=list)
    asked: list[HoldAttempt] = field(default_factory=list)
    holdings: list[HeldLease] = field(default_factory=list)
    sayings: list[SentResult] = field(default_factory=list)
    acts: list[OperatorAction] = field(default_factory=list)
    glimpses: list[ObservedStatus] = field(default_factory=list)
    ended: list[FinalTask] = field(default_factory=list)
    """All tasks of the list at the end, each as `get_task` returns it."""
    counts: Mapping[str, int] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    """Requests that were refused for other reasons than that a worker's word came too late."""
    crossed: list[Any] = field(default_factory=list)
    """Tasks of other types that were given out, or responses about another task than was requested."""
    late: str = ""
    """What had not ended in time."""
    is_calm: bool = True
    """Whether no part was killed meanwhile: then no caller may have waited longer than the bound."""
    fired: frozenset[str] = frozenset()

"""What was seen of a world that was played: answers, bytes on hosts, and GSE's own record of what it was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from sims.gse.tasks import FileSpot
from tests.worlds.transfers.naming import TargetGoal

FINAL = frozenset({"Success", "Failed", "Timeout"})


class OnDisk(StrEnum):
    """What lies on a target in the end."""

    RIGHT = "the file"
    NOTHING = "nothing"
    OTHER = "other bytes"


@dataclass(frozen=True)
class SentTask:
    """One GSE task that a target was in."""

    began_at: float
    failed_at: float | None = None
    """When it ended, or could not be known any more; None if nothing was wrong."""
    task_id: str = ""


@dataclass(frozen=True)
class SeenTarget:
    """One target of one job, and how its tasks ended."""

    job_id: str
    goal: TargetGoal
    status: str
    reason: str | None = None
    code: int | None = None
    message: str = ""
    disk: OnDisk = OnDisk.NOTHING
    cancelled: bool = False
    """Whether it, or the project's part of its job, was cancelled before it had ended."""
    cancelled_early: bool = False
    """Whether that was before its window had ended."""
    tasks_differ: str = ""
    """The differences between its tasks, and from what was requested."""

    @property
    def cause(self) -> str:
        """Why it has no file, in short."""
        return f"{self.status}/{self.reason}/{self.code}"


class JobLine(NamedTuple):
    """One line of a job's targets."""

    signature: str
    user: str
    folder: str
    agent_id: str
    container_id: str
    cause: str


@dataclass(frozen=True)
class SeenJob:
    """One job as one project sees it."""

    job_id: str
    project: str
    status: str
    counts: Mapping[str, int]
    targets: Sequence[JobLine]
    """Over all pages."""
    troubles: int = 0
    """How many targets its troubles count."""


@dataclass
class TransferObservations:
    """All of it."""

    targets: list[SeenTarget] = field(default_factory=list)
    jobs: list[SeenJob] = field(default_factory=list)
    sends: Mapping[FileSpot, Sequence[SentTask]] = field(default_factory=dict)
    """By where the file was sent, in the order of their beginnings."""
    outcomes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many targets ended how, by the result of each job's workflow."""
    unanswered: Counter[FileSpot] = field(default_factory=Counter)
    """How many requests for a target were answered 503: each may be in a job that no caller knows of."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Requests that were refused, by code."""
    never_joined: int = 0
    late: str = ""
    """What had not ended in time."""
    fired: frozenset[str] = frozenset()

"""Workloads: how much of a project runs, waits and failed in a system, and what a person should look at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeAlias


class ConcernKind(StrEnum):
    """A kind of thing that a person should look at."""

    NO_WORKER = "no_worker"  # task queues of the system that no worker serves
    UNSERVED = "unserved"  # platforms that no worker serves
    CLOCK_UNREAD = "clock_unread"  # platforms whose clock cannot be read
    CREDENTIALS_REFUSED = "credentials_refused"  # platforms that refuse the credentials of their account
    STALE = "stale"  # slices of orders that take too long
    SWEEPS_FAILED = "sweeps_failed"  # complete slices of orders whose last sweep failed
    GIVEN_UP = "given_up"  # messages of addresses that wait for a person
    QUARANTINED = "quarantined"  # messages of addresses that could not be read
    SYSTEM_PAUSED = "system_paused"  # the whole system
    QUEUE_WAITS = "queue_waits"  # task queues whose workers are too few
    WAITING = "waiting"  # items that no worker has taken up for so long that work stands still
    GSE_FAILS = "gse_fails"  # targets about which calls to GSE fail at present
    FAILED = "failed"  # items that failed, but for those that wait for a person
    MODULE_PAUSED = "module_paused"  # modules of addresses that are not called
    BACKFILL_FAILED = "backfill_failed"  # platforms whose last back-fill failed
    PAUSED = "paused"  # types of tasks that give out none
    OVERDUE = "overdue"  # tasks that are due and that no worker holds


@dataclass(frozen=True, slots=True)
class CountAndOldestTime:
    """A number of items, and since when the oldest of them has been there."""

    count: int = 0
    oldest_at: datetime | None = None

    def __add__(self, other: CountAndOldestTime) -> CountAndOldestTime:
        times = [each for each in (self.oldest_at, other.oldest_at) if each is not None]
        return CountAndOldestTime(self.count + other.count, min(times, default=None))

    def compute_age_of_oldest(self, now: datetime) -> float | None:
        """Return the age of the oldest item in seconds; None if there is no item."""
        return None if self.oldest_at is None else max(0.0, (now - self.oldest_at).total_seconds())


class ConcernKindSubjectAndCause(NamedTuple):
    """What a concern is about."""

    kind: ConcernKind
    subject: str = ""
    """The name of a platform, type or queue that has a page or a row of its own."""
    cause: str = ""
    """The code of a fault, or a sentence."""


@dataclass(frozen=True, slots=True)
class CountsAndConcerns:
    """The items of a project or system by state, and its concerns."""

    running: CountAndOldestTime = CountAndOldestTime()
    waiting: CountAndOldestTime = CountAndOldestTime()
    failed: CountAndOldestTime = CountAndOldestTime()
    concerns: Counter[ConcernKind] = field(default_factory=Counter)
    details: Counter[ConcernKindSubjectAndCause] = field(default_factory=Counter)


class RowByColumnName(Protocol):
    """A row whose values are read by the names of its columns."""

    def __getitem__(self, name: str, /) -> Any: ...


WorkByProject: TypeAlias = Mapping[str, CountsAndConcerns]
"""Workloads by project id; what belongs to no project has the empty id."""


def sum_workloads(parts: Iterable[CountsAndConcerns]) -> CountsAndConcerns:
    """Add up workloads."""
    parts = list(parts)
    concerns, details = Counter[ConcernKind](), Counter[ConcernKindSubjectAndCause]()
    for part in parts:
        concerns.update(part.concerns)
        details.update(part.details)
    return CountsAndConcerns(
        sum((part.running for part in parts), CountAndOldestTime()),
        sum((part.waiting for part in parts), CountAndOldestTime()),
        sum((part.failed for part in parts), CountAndOldestTime()),
        concerns,
        details,
    )


def merge_workloads(*several: WorkByProject) -> WorkByProject:
    """Add up workloads by project."""
    projects = {project for each in several for project in each}
    return {project: sum_workloads(each[project] for each in several if project in each) for project in projects}


def parse_workloads(rows: Iterable[RowByColumnName]) -> WorkByProject:
    """Read workloads from rows with `project_id` and, for `running`, `waiting` and `failed`, a count and its `…_at`."""
    found: defaultdict[str, list[CountsAndConcerns]] = defaultdict(list)
    for row in rows:
        running, waiting, failed = (
            CountAndOldestTime(row[kind], row[f"{kind}_at"]) for kind in ("running", "waiting", "failed")
        )
        found[row["project_id"]].append(CountsAndConcerns(running, waiting, failed))
    return {project: sum_workloads(parts) for project, parts in found.items()}


def parse_concerns(kind: ConcernKind, rows: Iterable[RowByColumnName]) -> WorkByProject:
    """Read one concern from rows with `project_id`, `subject`, `cause` and `count`."""
    return {
        project: replace(each, concerns=+Counter({kind: each.details.total()}))
        for project, each in parse_uncounted_concerns(kind, rows).items()
    }


def parse_uncounted_concerns(kind: ConcernKind, rows: Iterable[RowByColumnName]) -> WorkByProject:
    """Read what a concern is about, without counting it, from rows with `project_id`, `subject`, `cause`, `count`."""
    found: defaultdict[str, Counter[ConcernKindSubjectAndCause]] = defaultdict(Counter)
    for row in rows:
        found[row["project_id"]][ConcernKindSubjectAndCause(kind, row["subject"], row["cause"])] += row["count"]
    return {project: CountsAndConcerns(details=+details) for project, details in found.items()}

"""The checker of tasks: what callers and workers saw, against what must be true whatever was killed meanwhile.

It is pure: it reads notes, and knows neither clock nor API. That it finds what it should is tested with planted faults.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

FINAL = (3, 4)


@dataclass(frozen=True, slots=True)
class GrantedLease:
    """A task that a worker was given. Moments are Unix seconds."""

    task_id: str
    lease: int
    received_at: float
    """The task was given out at that moment or earlier."""
    lease_end: float


@dataclass(frozen=True, slots=True)
class ReportedResult:
    """A worker's set of a task."""

    task_id: str
    lease: int
    status: int
    sent_at: float
    """First: from then on the lease may be over."""
    is_taken: bool
    """Whether the answer was that all is well."""


@dataclass(frozen=True, slots=True)
class CountSample:
    """What the counts were at some moment between two others."""

    tasks: int
    ended: int
    created_before: int
    """Creates that had been answered when it was asked for."""
    created_after: int
    """Creates that had been sent when it was answered."""


@dataclass
class TaskNotes:
    """All that was seen."""

    created: dict[str, str] = field(default_factory=dict)
    """The id that was answered, by the name under which the task was created."""
    holdings: list[GrantedLease] = field(default_factory=list)
    sayings: list[ReportedResult] = field(default_factory=list)
    counts: list[CountSample] = field(default_factory=list)
    found: list[tuple[str, int]] = field(default_factory=list)
    """All tasks with their status, at the end."""
    counted: Mapping[str, int] = field(default_factory=dict)
    """The counts at the end."""


def list_violations(notes: TaskNotes) -> list[str]:
    """Everything that must not have happened, a sentence each."""
    return [
        *_find_lost(notes),
        *_find_doubled(notes),
        *_find_held_twice(notes),
        *_find_ended_twice(notes),
        *_find_miscounted(notes),
    ]


def _find_lost(notes: TaskNotes) -> Iterator[str]:
    found = dict(notes.found)
    for name, task_id in notes.created.items():
        if task_id not in found:
            yield f"{name} was answered as {task_id} and is not found"
    for task_id, status in notes.found:
        if status not in FINAL:
            yield f"{task_id} never ended, it stands at {status}"


def _find_doubled(notes: TaskNotes) -> Iterator[str]:
    for task_id, times in Counter(task_id for task_id, _ in notes.found).items():
        if times > 1:
            yield f"{task_id} is listed {times} times"
    if len(set(notes.created.values())) < len(notes.created):
        yield "two names were answered with the same task"
    if unasked := len(notes.found) - len(notes.created):
        yield f"{abs(unasked)} tasks {'more' if unasked > 0 else 'fewer'} are listed than names were created"


def _find_held_twice(notes: TaskNotes) -> Iterator[str]:
    """Check that each lease of a task begins after the one before has expired or was given up."""
    given_up: dict[tuple[str, int], float] = {}
    for saying in notes.sayings:
        key = saying.task_id, saying.lease
        given_up[key] = min(saying.sent_at, given_up.get(key, saying.sent_at))
    for task_id, holdings in _by_task(notes.holdings).items():
        for before, after in pairwise(sorted(holdings, key=lambda each: each.lease)):
            if before.lease == after.lease:
                yield f"{task_id} was given out twice under lease {after.lease}"
            end = min(before.lease_end, given_up.get((task_id, before.lease), before.lease_end))
            if after.received_at < end:
                early = end - after.received_at
                leases = f"under lease {after.lease} {early:.3f} s before lease {before.lease} ended"
                yield f"{task_id} was given out {leases}"


def _find_ended_twice(notes: TaskNotes) -> Iterator[str]:
    found = dict(notes.found)
    ends: dict[str, dict[int, int]] = defaultdict(dict)
    for saying in notes.sayings:
        if saying.is_taken and saying.status in FINAL:
            ends[saying.task_id][saying.lease] = saying.status
    for task_id, by_lease in ends.items():
        if len(by_lease) > 1:
            yield f"{task_id} was ended under {len(by_lease)} leases"
        if found.get(task_id) not in by_lease.values():
            yield f"{task_id} was ended as {sorted(by_lease.values())} and stands at {found.get(task_id)}"


def _find_miscounted(notes: TaskNotes) -> Iterator[str]:
    by_status = Counter(status for _, status in notes.found)
    told = {name: notes.counted.get(name) for name in ("task_count", "pending", "running", "success", "failed")}
    true = dict(zip(told, (len(notes.found), *(by_status[status] for status in (1, 2, 3, 4))), strict=True))
    if told != true:
        yield f"the counts at the end are {told}, the list has {true}"
    for count in notes.counts:
        if not count.created_before <= count.tasks <= count.created_after:
            yield f"{count.tasks} tasks were counted between {count.created_before} and {count.created_after} creates"
    yield from _find_decreased_counts(notes.counts)


def _find_decreased_counts(counts: Sequence[CountSample]) -> Iterator[str]:
    for before, after in pairwise(counts):
        if after.ended < before.ended:
            yield f"{before.ended} tasks had ended, and then {after.ended}"


def _by_task(holdings: Iterable[GrantedLease]) -> Mapping[str, list[GrantedLease]]:
    by_task: dict[str, list[GrantedLease]] = defaultdict(list)
    for holding in holdings:
        by_task[holding.task_id].append(holding)
    return by_task

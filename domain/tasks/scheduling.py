"""Scheduling within a lane: queue order, lease expiry, retry delays, and the weight of a task.

Queue and leases are heaps. An entry that is no longer valid stays in its heap until it reaches the top.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import msgspec

from domain.faults import Invalid
from domain.tasks.messages import REF_CHARACTERS, STAGE_MAX_BYTES, Task, TaskFlags, TaskStatus, TaskTypeRules

SECOND: Final = 1_000
"""Milliseconds."""

_PENDING: Final = int(TaskStatus.PENDING)
_RUNNING: Final = int(TaskStatus.RUNNING)
_LATER: Final = int(TaskFlags.LATER)
_OLD_LEASES_MAX: Final = 1_000
_DOUBLINGS_MAX: Final = 31
# A task in JSON without its texts: key, numbers at their longest, a stage, brackets and commas.
_NUMBERS_BYTES: Final = 35 + 8 + 2 + 7 + 2 + 3 * 14 + 11 + 14 + 14
_BARE_BYTES: Final = _NUMBERS_BYTES + STAGE_MAX_BYTES + 3
_REF_BYTES: Final = REF_CHARACTERS + 3

_HeapEntry: TypeAlias = tuple[int, int, Task]

_encode: Final = msgspec.json.Encoder().encode


class PendingTaskHeap:
    """Pending tasks by `order_time`; equal times are first in, first out."""

    def __init__(self) -> None:
        self._due: list[_HeapEntry] = []
        self._later: list[_HeapEntry] = []
        self._pushes = 0
        self._now = 0
        self.due = 0
        self.pending = 0

    def push(self, task: Task) -> None:
        """Add a task that has become pending."""
        self._pushes += 1
        is_due = task.order_time <= self._now
        heappush(self._due if is_due else self._later, (task.order_time, self._pushes, task))
        self.due += is_due
        self.pending += 1

    @property
    def first_due(self) -> Task | None:
        """The next task that is due."""
        entry = _drop_ended_and_peek_pending(self._due)
        return None if entry is None else entry[2]

    def remove_first_due(self) -> None:
        """Remove the first task; the caller changes its status."""
        heappop(self._due)
        self.due -= 1
        self.pending -= 1

    def uncount_and_invalidate_entry(self, task: Task) -> None:
        """Stop counting a queued task whose status is about to change; its entry becomes invalid with that."""
        self.due -= task.order_time <= self._now
        self.pending -= 1

    def advance_clock(self, now: int) -> None:
        """Move the clock forward: tasks whose time has come become due."""
        self._now = now
        while (entry := _drop_ended_and_peek_pending(self._later)) is not None and entry[0] <= now:
            _, push, task = heappop(self._later)
            if task.flags & _LATER:
                # Its priority applies only from its start time on; before, it would have started too early.
                task.flags &= ~_LATER
                task.order_time = compute_order_time(task.order_time, task.priority)
            heappush(self._due, (task.order_time, push, task))
            self.due += 1

    @property
    def next_order_time(self) -> int | None:
        """The earliest `order_time`, due or not."""
        entry = _drop_ended_and_peek_pending(self._due) or _drop_ended_and_peek_pending(self._later)
        return None if entry is None else entry[0]

    def list_in_order(self) -> list[Task]:
        """List all pending tasks in queue order."""
        return [task for _, _, task in sorted(self._due + self._later) if task.status == _PENDING]


def _drop_ended_and_peek_pending(entries: list[_HeapEntry]) -> _HeapEntry | None:
    while entries and entries[0][2].status != _PENDING:
        heappop(entries)
    return entries[0] if entries else None


class LeaseHeap:
    """Running tasks by the end of their lease."""

    def __init__(self) -> None:
        self._entries: list[_HeapEntry] = []
        self.running = 0

    def add(self, task: Task) -> None:
        """Add a task that has become running."""
        self.running += 1
        self.record_renewed_lease(task)

    def record_renewed_lease(self, task: Task) -> None:
        """Record the new end of a running task's lease."""
        heappush(self._entries, (task.lease_end, task.lease, task))
        if len(self._entries) > _OLD_LEASES_MAX + 2 * self.running:
            self._entries = [entry for entry in self._entries if _is_current_lease(entry)]
            heapify(self._entries)

    def pop_expired(self, now: int) -> Task | None:
        """Remove and return a running task whose lease has expired."""
        if (end := self.next_end) is None or end > now:
            return None
        return heappop(self._entries)[2]

    @property
    def next_end(self) -> int | None:
        """When the next lease expires."""
        while self._entries and not _is_current_lease(self._entries[0]):
            heappop(self._entries)
        return self._entries[0][0] if self._entries else None


def _is_current_lease(entry: _HeapEntry) -> bool:
    end, lease, task = entry
    return task.status == _RUNNING and task.lease == lease and task.lease_end == end


def compute_retry_delay_ms(rules: TaskTypeRules, retries: int) -> int:
    """Return the milliseconds that a task waits which fails after this many retries."""
    longest = rules.max_retry_interval
    if longest < 0:
        return -longest * SECOND
    return min(rules.retry_interval << min(retries, _DOUBLINGS_MAX), longest) * SECOND


def require_consistent_retry_intervals(retry_interval: int, max_retry_interval: int) -> None:
    """Raise `Invalid` where delays double and the first one exceeds the longest: it would be shortened silently."""
    if 0 < max_retry_interval < retry_interval:
        raise Invalid(
            "retry_intervals_contradict",
            f"retry_interval is {retry_interval}, more than max_retry_interval, which is {max_retry_interval}.",
            "Send both, with a first pause that is no longer than the longest; a pause that is always the same is a "
            "negative max_retry_interval.",
            field="retry_interval",
        )


def has_used_all_retries(rules: TaskTypeRules, retries: int) -> bool:
    """Return whether a task that fails after this many retries ends: N retries are N + 1 attempts."""
    return retries >= rules.max_retry_num


def compute_order_time(now: int, priority: int) -> int:
    """Return the place in the queue of a task that is created or goes on to its next stage at this time."""
    return now - priority * SECOND


def compute_snapshot_bytes(user_id: str, content: str, log: str) -> int:
    """Return the most JSON bytes that a task takes in a snapshot of its lane.

    A reference never weighs more than the text that it replaces, even an empty one, so it always fits.
    """
    return (
        _BARE_BYTES
        + _count_json_bytes(user_id)
        + max(_REF_BYTES, _count_json_bytes(content))
        + max(_REF_BYTES, _count_json_bytes(log))
    )


def _count_json_bytes(text: str) -> int:
    return len(_encode(text)) + 1

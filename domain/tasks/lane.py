"""A lane: applies each batch once, answers in messages of bounded size, and decides when to save a checkpoint."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from msgspec import Struct

from domain.tasks import attempts
from domain.tasks.activity_models import (
    SAVED_REPLIES_MAX,
    SAVED_REPLIES_MAX_BYTES,
    SNAPSHOT_MAX_BYTES,
    CheckpointInput,
    FinishedTaskCounts,
    LaneSnapshot,
    ReplayableBatchReply,
)
from domain.tasks.messages import (
    REPLY_MAX_BYTES,
    HoldOperation,
    LaneBatch,
    LaneBatchReply,
    LaneHead,
    LaneStatus,
    OperationCodeText,
    Task,
    TaskLookup,
    TaskLookupReply,
    TaskSearch,
    TaskSearchReply,
    TaskStatus,
    TaskTypeRules,
)
from domain.tasks.state import LaneState, compute_task_snapshot_bytes

CHECKPOINT_PAUSE_MS: Final = 1_000
"""Between two checkpoints of a lane, and so the greatest lag of its stored head."""
CHECKPOINT_MAX_BYTES: Final = 300_000

Operation = TypeVar("Operation")
_Counters: TypeAlias = tuple[int | None, int, int, int, int, int, int, int, bool]

_NULL_BYTES: Final = 5


class Lane:
    """State of a lane, and the last reply to each sender."""

    def __init__(self, rules: TaskTypeRules, snapshot: LaneSnapshot | None = None) -> None:
        snapshot = snapshot or LaneSnapshot(head=LaneHead(), now=0, last_lease=0, tasks=[], replies=[])
        self.state = LaneState(rules, snapshot)
        self._replies = ReplyCache(snapshot.replies)
        # Bytes of all replies at this time: the engine receives them in one message.
        self._reply_bytes, self._replied_at = 0, -1

    def build_snapshot(self) -> LaneSnapshot:
        """Return the complete state, from which another run continues; old attempts are dropped if it is too large."""
        state = self.state
        tasks = state.list_in_order()
        attempts.drop_oldest_attempts(tasks, SNAPSHOT_MAX_BYTES - state.weight)
        return LaneSnapshot(
            head=state.build_head(),
            now=state.now,
            last_lease=state.last_lease,
            tasks=tasks,
            replies=self._replies.list_replies(),
            archived_keys=state.list_archived_chosen_keys(),
        )

    @property
    def is_closed_to_creates_and_empty(self) -> bool:
        """Whether the lane accepts no more tasks and has none left."""
        return self.state.is_full and not self.state.tasks

    def count_all_finished_tasks(self) -> FinishedTaskCounts:
        """Return how many tasks ended in which state."""
        head = self.state.build_head()
        return FinishedTaskCounts(success=head.success, failed=head.failed, cancelled=head.cancelled)

    def build_status(self) -> LaneStatus:
        """Return the counters for people."""
        head, rules = self.state.build_head(), self.state.rules
        return LaneStatus(
            version=rules.version,
            paused=rules.paused,
            full=head.full,
            due=head.due,
            pending=head.pending,
            running=head.running,
            success=head.success,
            failed=head.failed,
            archived=head.archived,
            held=head.held,
            retries=head.retries,
            timeouts=head.timeouts,
            bytes=self.state.weight,
            cancelled=head.cancelled,
        )

    def get_reply_bytes_sent_at(self, now: int) -> int:
        """Return the bytes of all replies at this time."""
        return self._reply_bytes if now == self._replied_at else 0

    def apply_batch(self, batch: LaneBatch, now: int) -> LaneBatchReply:
        """Apply a batch, or repeat its reply if it was applied before."""
        if now != self._replied_at:
            self._reply_bytes, self._replied_at = 0, now
        state = self.state
        state.advance_clock(now)
        last = self._replies.get(batch.sender)
        if last is not None and batch.number <= last.number:
            return self._rebuild_reply_for_repeated_batch(batch, last)
        if batch.rules is not None and batch.rules.version > state.rules.version:
            state.rules = batch.rules
        sets = _join_operation_codes(state.apply_set_operation, batch.sets)
        heartbeats = _join_operation_codes(state.renew_lease, batch.heartbeats)
        cancels = _join_operation_codes(state.cancel_task, batch.cancels)
        creates = _join_operation_codes(state.create_task, batch.creates)
        first_lease = state.last_lease + 1
        holds = self._hold_tasks(batch.holds)
        counts = [len(tasks) for tasks in holds]
        saved = ReplayableBatchReply(
            batch.sender, batch.number, creates, sets, heartbeats, cancels, first_lease, counts
        )
        self._replies.save_and_evict_silent_senders(saved)
        state.increment_head_number()
        return self._build_reply(saved, holds, batch.reads)

    def find_tasks(self, lookup: TaskLookup) -> TaskLookupReply:
        """Return tasks by key."""
        return TaskLookupReply(
            tasks=self._find_tasks_that_fit(lookup.keys, REPLY_MAX_BYTES), head=self.state.build_head()
        )

    def search_tasks(self, search: TaskSearch) -> TaskSearchReply:
        """Return the tasks that match, newest first and of equal times by descending key; or all from an offset on."""
        found: list[Task] = []
        bytes_left = REPLY_MAX_BYTES
        tasks = self.state.tasks.values()
        if search.offset >= 0:
            chosen: Iterable[Task] = islice(tasks, search.offset, search.offset + search.limit)
        else:
            chosen = heapq.nlargest(
                search.limit, (task for task in tasks if _matches_search(task, search)), key=_get_sort_key
            )
        for each in chosen:
            task = each if search.with_attempts else attempts.copy_without_attempts(each)
            bytes_left -= _compute_task_reply_bytes(task)
            if bytes_left < 0:
                break
            found.append(task)
        return TaskSearchReply(tasks=found, head=self.state.build_head())

    def _hold_tasks(self, holds: list[HoldOperation]) -> list[list[Task]]:
        """Hold tasks until the replies at this time reach their maximum size."""
        held: list[list[Task]] = []
        for hold in holds:
            first = self.state.next_due
            if first is not None and self._reply_bytes + compute_task_snapshot_bytes(first) > REPLY_MAX_BYTES:
                break
            tasks = self.state.hold_tasks(hold, REPLY_MAX_BYTES - self._reply_bytes)
            self._reply_bytes += sum(map(compute_task_snapshot_bytes, tasks))
            held.append(tasks)
        return held

    def _find_tasks_that_fit(self, keys: Iterable[str], bytes_left: int) -> list[Task | None]:
        """Return tasks by key, as many as fit."""
        found: list[Task | None] = []
        for key in keys:
            task = self.state.tasks.get(key)
            bytes_left -= _compute_task_reply_bytes(task) if task is not None else _NULL_BYTES
            if bytes_left < 0:
                break
            found.append(task)
        return found

    def _rebuild_reply_for_repeated_batch(self, batch: LaneBatch, last: ReplayableBatchReply) -> LaneBatchReply:
        """Answer a batch again; of the tasks held then, return those that are still under the same lease."""
        if batch.number < last.number:
            state = self.state
            return LaneBatchReply(head=state.build_head(), now=state.now, version=state.rules.version, late=True)
        end = last.first_lease + sum(last.holds)
        by_lease = {task.lease: task for task in self.state.tasks.values() if last.first_lease <= task.lease < end}
        holds, lease = [], last.first_lease
        for count in last.holds:
            leases = range(lease, lease + count)
            running = [by_lease[n] for n in leases if n in by_lease and by_lease[n].status == TaskStatus.RUNNING]
            holds.append([attempts.copy_without_attempts(task) for task in running])
            lease += count
        self._reply_bytes += sum(compute_task_snapshot_bytes(task) for tasks in holds for task in tasks)
        return self._build_reply(last, holds, batch.reads)

    def _build_reply(self, saved: ReplayableBatchReply, holds: list[list[Task]], reads: list[str]) -> LaneBatchReply:
        found = self._find_tasks_that_fit(reads, REPLY_MAX_BYTES - self._reply_bytes)
        self._reply_bytes += sum(compute_task_snapshot_bytes(task) for task in found if task is not None)
        return LaneBatchReply(
            head=self.state.build_head(),
            now=self.state.now,
            version=self.state.rules.version,
            creates=saved.creates,
            holds=holds,
            sets=saved.sets,
            heartbeats=saved.heartbeats,
            cancels=saved.cancels,
            reads=found,
        )


def _join_operation_codes(apply: Callable[[Operation], OperationCodeText], operations: list[Operation]) -> str:
    return "".join([apply(operation) for operation in operations])


def _compute_task_reply_bytes(task: Task) -> int:
    """Return the most bytes that a task takes in a reply, its attempts included."""
    return compute_task_snapshot_bytes(task) + attempts.count_attempt_bytes(task)


def _matches_search(task: Task, search: TaskSearch) -> bool:
    return (
        search.status in (0, task.status)
        and search.stage in (None, task.stage)
        and search.user_id in (None, task.user_id)
        and (not search.before or _get_sort_key(task) < (search.before, search.before_key))
    )


def _get_sort_key(task: Task) -> tuple[int, str]:
    return task.create_time, task.key


class ReplyCache:
    """The last reply to each sender, so that a batch that arrives twice is applied once; bounded by count and size."""

    def __init__(self, replies: Iterable[ReplayableBatchReply] = ()) -> None:
        self._replies: dict[str, ReplayableBatchReply] = {}
        self._bytes = 0
        for reply in replies:
            self.save_and_evict_silent_senders(reply)

    def get(self, sender: str) -> ReplayableBatchReply | None:
        """Return the last reply to a sender, if it is still cached."""
        return self._replies.get(sender)

    def save_and_evict_silent_senders(self, reply: ReplayableBatchReply) -> None:
        """Replace the sender's last reply; evict the senders that have been silent longest if there is no space."""
        if (before := self._replies.pop(reply.sender, None)) is not None:
            self._bytes -= _count_reply_bytes(before)
        self._replies[reply.sender] = reply
        self._bytes += _count_reply_bytes(reply)
        while len(self._replies) > SAVED_REPLIES_MAX or self._bytes > SAVED_REPLIES_MAX_BYTES:
            self._bytes -= _count_reply_bytes(self._replies.pop(next(iter(self._replies))))

    def list_replies(self) -> list[ReplayableBatchReply]:
        """List the replies; the sender that has been silent longest comes first."""
        return list(self._replies.values())


def _count_reply_bytes(reply: ReplayableBatchReply) -> int:
    """Return the most JSON bytes of a saved reply, for a sender whose name needs no escapes."""
    codes = len(reply.creates) + len(reply.sets) + len(reply.heartbeats) + len(reply.cancels)
    return 100 + 5 * len(reply.holds) + codes + len(reply.sender.encode())


class CheckpointIntervals(Struct, frozen=True):
    """How often a lane saves a checkpoint, and how many tasks each one archives."""

    batch_tasks: int
    full_pause_ms: int
    """From one checkpoint to the next, while a whole batch of ended tasks is waiting."""
    early_ms: int
    """A checkpoint may be this much early if a batch arrives: it then needs no workflow task of its own."""


PACE: Final = CheckpointIntervals(batch_tasks=1_500, full_pause_ms=1_000, early_ms=150)


class CheckpointSchedule:
    """When a lane saves a checkpoint: within a second of a change, together with a batch if one arrives."""

    def __init__(self, pace: CheckpointIntervals) -> None:
        self.pace = pace
        self._begun_at = 0
        self._saved: _Counters | None = None

    def get_next_checkpoint_time(self, state: LaneState) -> int | None:
        """Return when the next checkpoint is due; None if nothing has changed since the last one."""
        if self._saved is None:
            return 0
        if state.ended_count >= self.pace.batch_tasks:
            return self._begun_at + self.pace.full_pause_ms
        if state.ended_count or self._saved != _collect_checkpoint_counters(state):
            return self._begun_at + CHECKPOINT_PAUSE_MS
        return None

    def is_due(self, state: LaneState, now: int) -> bool:
        """Return whether the next checkpoint may begin."""
        at = self.get_next_checkpoint_time(state)
        return at is not None and at - self.pace.early_ms <= now

    def begin_and_collect_checkpoint(self, state: LaneState, type_: str, pos: int, now: int) -> CheckpointInput:
        """Begin a checkpoint; return what it saves."""
        is_first = self._saved is None
        self._begun_at, self._saved = now, _collect_checkpoint_counters(state)
        ended = state.list_ended(self.pace.batch_tasks, CHECKPOINT_MAX_BYTES)
        return CheckpointInput(type=type_, pos=pos, head=state.build_head(), ended=ended, is_first=is_first)


def _collect_checkpoint_counters(state: LaneState) -> _Counters:
    """Return what a change of makes a checkpoint due. Ends of leases are left out: too early a hold finds nothing."""
    head = state.build_head()
    return (
        *(head.next_order_time, head.due, head.pending, head.running),
        *(head.success, head.failed, head.cancelled, head.held, head.full),
    )

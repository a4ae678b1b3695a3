"""State of a lane: its tasks, and what happens to each (create, hold, set, expire, cancel, archive).

It has no clock: `advance_clock` sets the time. No method raises on a message that could be decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from domain.tasks import attempts
from domain.tasks.activity_models import FULL_BYTES, SNAPSHOT_MAX_BYTES, LaneSnapshot
from domain.tasks.attempts import NonFinalAttemptOutcome
from domain.tasks.messages import (
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneHead,
    OperationCode,
    OperationCodeText,
    SetOperation,
    Task,
    TaskFlags,
    TaskStatus,
    TaskTypeRules,
)
from domain.tasks.scheduling import (
    SECOND,
    LeaseHeap,
    PendingTaskHeap,
    compute_order_time,
    compute_retry_delay_ms,
    compute_snapshot_bytes,
    has_used_all_retries,
)

# Looking up a member of an enum takes longer than all else that a hold does to a task.
_PENDING: Final = int(TaskStatus.PENDING)
_RUNNING: Final = int(TaskStatus.RUNNING)
_SUCCESS: Final = int(TaskStatus.SUCCESS)
_FAILED: Final = int(TaskStatus.FAILED)
_CANCELLED: Final = int(TaskStatus.CANCELLED)
_CONTENT: Final = int(TaskFlags.CONTENT)
_LOG: Final = int(TaskFlags.LOG)
_KEYED: Final = int(TaskFlags.KEYED)
_LATER: Final = int(TaskFlags.LATER)
_KEY_BYTES: Final = 35


class LaneState:
    """Tasks by key, their queue, their leases, and the lane's counters."""

    def __init__(self, rules: TaskTypeRules, snapshot: LaneSnapshot) -> None:
        self.rules = rules
        self.now = snapshot.now
        self.last_lease = snapshot.last_lease
        self._head = snapshot.head
        self._queue, self._leases = PendingTaskHeap(), LeaseHeap()
        self._queue.advance_clock(self.now)
        self._ended: dict[str, Task] = {}
        self._archived_keys = dict.fromkeys(snapshot.archived_keys)
        self.weight = _KEY_BYTES * len(self._archived_keys)
        for task in snapshot.tasks:
            self._add_to_queue_or_leases(task)
        self.tasks = {task.key: task for task in sorted(snapshot.tasks, key=lambda task: task.create_time)}

    def _add_to_queue_or_leases(self, task: Task) -> None:
        self.weight += compute_task_snapshot_bytes(task)
        if task.status == _PENDING:
            self._queue.push(task)
        elif task.status == _RUNNING:
            self._leases.add(task)
        else:
            self._ended[task.key] = task

    def list_in_order(self) -> list[Task]:
        """List all tasks; the pending ones come first, in queue order."""
        return self._queue.list_in_order() + [task for task in self.tasks.values() if task.status != _PENDING]

    def list_archived_chosen_keys(self) -> list[str]:
        """List the keys of archived tasks whose creates may be repeated at any time."""
        return list(self._archived_keys)

    def advance_clock(self, now: int) -> None:
        """Move the clock forward: tasks become due, and leases expire. A time in the past changes nothing."""
        self.now = max(now, self.now)
        self._queue.advance_clock(self.now)
        while (task := self._leases.pop_expired(self.now)) is not None:
            self._head.timeouts += 1
            # The former holder must not match, even if no other worker holds the task meanwhile.
            task.lease = self._issue_lease()
            self._fail_attempt_or_end_task(task, task.crt_retry_num + 1, NonFinalAttemptOutcome.TIMED_OUT)
            self.increment_head_number()

    def increment_head_number(self) -> None:
        """Mark heads from here on as newer than those before."""
        self._head.number += 1

    def build_head(self) -> LaneHead:
        """Return the current summary of the lane."""
        return replace(
            self._head,
            next_order_time=self._queue.next_order_time,
            next_lease_end=self._leases.next_end,
            due=self._queue.due,
            pending=self._queue.pending,
            running=self._leases.running,
            fill_percent=self._compute_fill_percent(),
        )

    @property
    def next_lease_end(self) -> int | None:
        """When `advance_clock` has to be called even if no batch arrives."""
        return self._leases.next_end

    @property
    def next_due(self) -> Task | None:
        """The task that a hold would return first."""
        return self._queue.first_due

    @property
    def ended_count(self) -> int:
        """How many tasks have ended and are not archived yet."""
        return len(self._ended)

    @property
    def is_full(self) -> bool:
        """Whether the lane accepts no more tasks."""
        return self._head.full

    def refuse_creates_permanently(self) -> None:
        """Accept no more tasks from now on."""
        self._head.full = True
        self.increment_head_number()

    def list_ended(self, tasks_max: int, bytes_max: int) -> list[Task]:
        """List tasks that have ended and are not archived yet, in the order in which they ended."""
        chosen: list[Task] = []
        for task in self._ended.values():
            bytes_max -= compute_task_snapshot_bytes(task)
            if len(chosen) == tasks_max or bytes_max < 0:
                break
            chosen.append(task)
        return chosen

    def remove_archived(self, keys: Iterable[str]) -> None:
        """Remove tasks that the archive has."""
        for key in keys:
            if (task := self._ended.pop(key, None)) is not None:
                del self.tasks[key]
                self.weight -= compute_task_snapshot_bytes(task)
                self._head.archived += 1
                if task.flags & _KEYED:
                    self._archived_keys[key] = None
                    self.weight += _KEY_BYTES
        self.increment_head_number()

    def create_task(self, new: CreateOperation) -> OperationCodeText:
        """Add a task, unless the lane is full or already has one with its key; return an `OperationCode`."""
        known = self.tasks.get(new.key)
        if known is not None:
            return OperationCode.SAME if _is_repeated_create(known, new) else OperationCode.CONFLICT
        if new.key in self._archived_keys:
            return OperationCode.SAME
        if self.rules.removed:
            return OperationCode.REMOVED
        more = compute_snapshot_bytes(new.user_id, new.content, "")
        if self._head.full or self.weight + more > FULL_BYTES:
            self._head.full = True
            return OperationCode.FULL
        now = self.now
        is_later = new.start > now
        task = Task(
            key=new.key,
            user_id=new.user_id,
            priority=new.priority,
            status=_PENDING,
            stage=new.stage,
            crt_retry_num=0,
            content=new.content,
            log="",
            flags=new.flags & (_CONTENT | _KEYED) | (_LATER if is_later else 0),
            order_time=new.start if is_later else compute_order_time(now, new.priority),
            create_time=now,
            modify_time=now,
        )
        self.tasks[new.key] = task
        self.weight += more
        self._queue.push(task)
        if len(self.tasks) + self._head.archived >= self.rules.lane_max_tasks:
            self._head.full = True
        return OperationCode.OK

    def hold_tasks(self, hold: HoldOperation, bytes_max: int) -> list[Task]:
        """Lease due tasks in queue order, as many as the limit and `bytes_max` allow."""
        held: list[Task] = []
        if self.rules.paused:
            return held
        limit = min(hold.limit or self.rules.schedule_limit, self.rules.schedule_limit)
        end = self.now + (hold.lease_seconds or self.rules.max_processing_time) * SECOND
        while len(held) < limit and (task := self._queue.first_due) is not None:
            bytes_max -= compute_task_snapshot_bytes(task)
            if bytes_max < 0:
                break
            self._queue.remove_first_due()
            task.status, task.lease, task.lease_end, task.modify_time = _RUNNING, self._issue_lease(), end, self.now
            self._leases.add(task)
            held.append(attempts.copy_without_attempts(task) if task.attempts else task)
        self._head.held += len(held)
        return held

    def apply_set_operation(self, set_operation: SetOperation) -> OperationCodeText:
        """Apply a worker's result to a task that it still holds; return an `OperationCode`."""
        task = self.tasks.get(set_operation.key)
        if task is None:
            return OperationCode.MISSING
        if set_operation.is_unleased and self.rules.lease_required:
            return OperationCode.NO_LEASE
        if task.status != _RUNNING:
            return get_code_for_late_set(task, set_operation)
        if set_operation.lease is not None and set_operation.lease != task.lease:
            return OperationCode.STALE
        if not self._reserve_bytes_for_texts(task, set_operation):
            return OperationCode.NO_ROOM
        is_next = set_operation.stage is not None and set_operation.stage != task.stage
        _copy_set_fields_to_task(task, set_operation)
        before = task.crt_retry_num
        retries = before if set_operation.crt_retry_num is None else set_operation.crt_retry_num
        if set_operation.status == _PENDING and (set_operation.failed or retries > before):
            self._fail_attempt_or_end_task(task, max(retries, before + 1), NonFinalAttemptOutcome.FAILED)
            return OperationCode.OK
        task.crt_retry_num = retries
        match set_operation.status:
            case TaskStatus.PENDING:
                attempts.record_attempt_end(
                    task, self.now, NonFinalAttemptOutcome.NEXT_STAGE if is_next else NonFinalAttemptOutcome.PUT_BACK
                )
                self._return_to_queue(task, compute_order_time(self.now, task.priority))
            case TaskStatus.SUCCESS | TaskStatus.FAILED:
                self._end_task(task, set_operation.status)
            case _:
                attempts.record_attempt_start_if_missing(task)
                self._renew_lease(task, None)
        task.modify_time = self.now
        return OperationCode.OK

    def renew_lease(self, heartbeat: HeartbeatOperation) -> OperationCodeText:
        """Renew the lease of a running task; return an `OperationCode`."""
        task = self.tasks.get(heartbeat.key)
        if task is None:
            return OperationCode.MISSING
        if task.status != _RUNNING:
            return OperationCode.STALE if task.status == _PENDING else OperationCode.FINAL
        if heartbeat.lease is not None and heartbeat.lease != task.lease:
            return OperationCode.STALE
        self._renew_lease(task, heartbeat.lease_seconds or None)
        return OperationCode.OK

    def cancel_task(self, key: str) -> OperationCodeText:
        """Cancel a pending or running task; return an `OperationCode`."""
        task = self.tasks.get(key)
        if task is None:
            return OperationCode.MISSING
        if task.status == _CANCELLED:
            return OperationCode.SAME
        if task.status in (_SUCCESS, _FAILED):
            return OperationCode.FINAL
        task.modify_time = self.now
        self._end_task(task, _CANCELLED)
        return OperationCode.OK

    def _compute_fill_percent(self) -> int:
        if self._head.full:
            return 100
        tasks = len(self.tasks) + self._head.archived
        return min(100, max(100 * tasks // self.rules.lane_max_tasks, 100 * self.weight // FULL_BYTES))

    def _issue_lease(self) -> int:
        self.last_lease += 1
        return self.last_lease

    def _reserve_bytes_for_texts(self, task: Task, setting: SetOperation) -> bool:
        """Add the texts of a set to the weight; False, with nothing changed, if they do not fit."""
        if setting.content is None and setting.log is None:
            return True
        content = task.content if setting.content is None else setting.content
        log = task.log if setting.log is None else setting.log
        more = compute_snapshot_bytes(task.user_id, content, log) - compute_task_snapshot_bytes(task)
        if more > 0 and self.weight + more > SNAPSHOT_MAX_BYTES:
            return False
        self.weight += more
        return True

    def _renew_lease(self, task: Task, exact_seconds: int | None) -> None:
        """Have a lease end in exactly so many seconds or, with None, by the type's rules and never earlier."""
        end = self.now + (exact_seconds or self.rules.max_processing_time) * SECOND
        end = end if exact_seconds else max(end, task.lease_end)
        if end != task.lease_end:
            task.lease_end = end
            self._leases.record_renewed_lease(task)

    def _fail_attempt_or_end_task(self, task: Task, retries: int, outcome: NonFinalAttemptOutcome) -> None:
        """Fail an attempt: the task waits for its retry delay, or ends."""
        if has_used_all_retries(self.rules, retries - 1):
            self._end_task(task, _FAILED)
        else:
            attempts.record_attempt_end(task, self.now, outcome)
            task.crt_retry_num = retries
            self._head.retries += 1
            self._return_to_queue(task, self.now + compute_retry_delay_ms(self.rules, retries - 1))
        task.modify_time = self.now

    def _return_to_queue(self, task: Task, order_time: int) -> None:
        self._uncount_under_present_status(task)
        task.status, task.order_time = _PENDING, order_time
        self._queue.push(task)

    def _end_task(self, task: Task, status: int) -> None:
        self._uncount_under_present_status(task)
        task.status = status
        self._ended[task.key] = task
        if status == _SUCCESS:
            self._head.success += 1
        elif status == _FAILED:
            self._head.failed += 1
        else:
            self._head.cancelled += 1

    def _uncount_under_present_status(self, task: Task) -> None:
        """Stop counting a task under its present status."""
        if task.status == _PENDING:
            self._queue.uncount_and_invalidate_entry(task)
        else:
            self._leases.running -= 1


def compute_task_snapshot_bytes(task: Task) -> int:
    """Return the most bytes that a task takes in a snapshot of its lane."""
    return compute_snapshot_bytes(task.user_id, task.content, task.log)


def _copy_set_fields_to_task(task: Task, setting: SetOperation) -> None:
    if setting.stage is not None:
        task.stage = setting.stage
    if setting.content is not None:
        task.content = setting.content
        task.flags = task.flags & ~_CONTENT | setting.flags & _CONTENT
    if setting.log is not None:
        task.log = setting.log
        task.flags = task.flags & ~_LOG | setting.flags & _LOG


def get_code_for_late_set(task: Task, setting: SetOperation) -> OperationCodeText:
    """Return the code for a set of a task that is not running: a repetition whose reply got lost, or too late."""
    is_holder = setting.lease == task.lease if setting.lease else _may_be_last_holder(task, setting)
    fields = ((setting.stage, task.stage), (setting.content, task.content), (setting.log, task.log))
    is_same = setting.status == task.status or (task.status == _FAILED and _reports_failed_attempt(task, setting))
    if is_holder and is_same and all(sent in (None, stored) for sent, stored in fields):
        return OperationCode.SAME
    return OperationCode.STALE if task.status == _PENDING else OperationCode.FINAL


def _may_be_last_holder(task: Task, setting: SetOperation) -> bool:
    """Return whether a set without a lease may have ended the last attempt; a pending task must have counted it."""
    return setting.lease is None and (task.status != _PENDING or 0 < task.crt_retry_num == setting.crt_retry_num)


def _reports_failed_attempt(task: Task, setting: SetOperation) -> bool:
    """Return whether a set reports a failed attempt, which ends a task that has no retry left."""
    has_failed = setting.failed or (setting.crt_retry_num or 0) > task.crt_retry_num
    return setting.status == _PENDING and has_failed


def _is_repeated_create(task: Task, new: CreateOperation) -> bool:
    """Return whether a create repeats that of a task; content counts only until a worker has held it."""
    if (task.user_id, task.priority) != (new.user_id, new.priority):
        return False
    return task.lease != 0 or (task.content, task.flags & _CONTENT) == (new.content, new.flags & _CONTENT)

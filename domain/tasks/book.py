"""The tasks of a lane and what can become of each: created, given out, set, taken back, cancelled, archived.

No clock: it is told the time. Nothing here raises on a message that could be decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from domain.tasks import attempts
from domain.tasks.attempts import Outcome
from domain.tasks.carrying import FULL_BYTES, STATE_MAX_BYTES, Carried
from domain.tasks.messages import Beat, Code, Head, Hold, NewTask, Refs, Rules, Setting, Status, Task
from domain.tasks.queue import Leases, Queue
from domain.tasks.rules import SECOND, delay, is_used_up, order_time, weight

# Looking up a member of an enum costs more than all else that a hold does to a task.
_PENDING: Final = int(Status.PENDING)
_RUNNING: Final = int(Status.RUNNING)
_SUCCESS: Final = int(Status.SUCCESS)
_FAILED: Final = int(Status.FAILED)
_CANCELLED: Final = int(Status.CANCELLED)
_CONTENT: Final = int(Refs.CONTENT)
_LOG: Final = int(Refs.LOG)
_KEYED: Final = int(Refs.KEYED)
_LATER: Final = int(Refs.LATER)
_KEY_BYTES: Final = 35


class Book:
    """Tasks by key, their queue, their leases, and how many there are of each kind."""

    def __init__(self, rules: Rules, carried: Carried) -> None:
        self.rules = rules
        self.now = carried.now
        self.lease = carried.leases
        self._head = carried.head
        self._queue, self._leases = Queue(), Leases()
        self._queue.tick(self.now)
        self._ended: dict[str, Task] = {}
        self._gone = dict.fromkeys(carried.gone)
        self.weight = _KEY_BYTES * len(self._gone)
        for task in carried.tasks:
            self._take_up(task)
        self.tasks = {task.key: task for task in sorted(carried.tasks, key=lambda task: task.create_time)}

    def _take_up(self, task: Task) -> None:
        self.weight += weight_of(task)
        if task.status == _PENDING:
            self._queue.push(task)
        elif task.status == _RUNNING:
            self._leases.begin(task)
        else:
            self._ended[task.key] = task

    def in_order(self) -> list[Task]:
        """All tasks; the pending ones come first, in the order of their queue."""
        return self._queue.in_order() + [task for task in self.tasks.values() if task.status != _PENDING]

    @property
    def gone(self) -> list[str]:
        """The keys of archived tasks whose creates may be repeated at any time."""
        return list(self._gone)

    def tick(self, now: int) -> None:
        """It is so late: tasks become due, and leases are over. For a clock that goes back time stands still."""
        self.now = max(now, self.now)
        self._queue.tick(self.now)
        while (task := self._leases.pop(self.now)) is not None:
            self._head.timeouts += 1
            # Who had it must not be taken for its holder, even if nobody takes it meanwhile.
            task.lease = self._next_lease()
            self._fail(task, task.crt_retry_num + 1, Outcome.TIMED_OUT)
            self.change()

    def change(self) -> None:
        """What is seen from here on is newer than what was seen before."""
        self._head.number += 1

    def head(self) -> Head:
        """How the lane stands."""
        return replace(
            self._head,
            next_order_time=self._queue.next_order_time,
            next_lease_end=self._leases.next_end,
            due=self._queue.due,
            pending=self._queue.pending,
            running=self._leases.running,
            share=self._share(),
        )

    @property
    def next_lease_end(self) -> int | None:
        """When to call `tick` though nobody asks anything."""
        return self._leases.next_end

    @property
    def next_due(self) -> Task | None:
        """Who would be given out first."""
        return self._queue.first

    @property
    def ended(self) -> int:
        """How many tasks have ended and wait to be archived."""
        return len(self._ended)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more tasks."""
        return self._head.full

    def fill(self) -> None:
        """Take no more tasks from now on."""
        self._head.full = True
        self.change()

    def to_archive(self, tasks_max: int, bytes_max: int) -> list[Task]:
        """Tasks that have ended, those that have waited for longest first."""
        chosen: list[Task] = []
        for task in self._ended.values():
            bytes_max -= weight_of(task)
            if len(chosen) == tasks_max or bytes_max < 0:
                break
            chosen.append(task)
        return chosen

    def drop(self, keys: Iterable[str]) -> None:
        """Forget tasks that are archived."""
        for key in keys:
            if (task := self._ended.pop(key, None)) is not None:
                del self.tasks[key]
                self.weight -= weight_of(task)
                self._head.archived += 1
                if task.refs & _KEYED:
                    self._gone[key] = None
                    self.weight += _KEY_BYTES
        self.change()

    def create(self, new: NewTask) -> str:
        """A task more, if there is room."""
        known = self.tasks.get(new.key)
        if known is not None:
            return Code.SAME if _is_same(known, new) else Code.CONFLICT
        if new.key in self._gone:
            return Code.SAME
        more = weight(new.user_id, new.content, "")
        if self._head.full or self.weight + more > FULL_BYTES:
            self._head.full = True
            return Code.FULL
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
            refs=new.refs & (_CONTENT | _KEYED) | (_LATER if is_later else 0),
            order_time=new.start if is_later else order_time(now, new.priority),
            create_time=now,
            modify_time=now,
        )
        self.tasks[new.key] = task
        self.weight += more
        self._queue.push(task)
        if len(self.tasks) + self._head.archived >= self.rules.lane_max_tasks:
            self._head.full = True
        return Code.OK

    def hold(self, hold: Hold, room: int) -> list[Task]:
        """Give out what is due, in order, as long as it fits."""
        given: list[Task] = []
        if self.rules.paused:
            return given
        limit = min(hold.limit or self.rules.schedule_limit, self.rules.schedule_limit)
        end = self.now + (hold.lease_seconds or self.rules.max_processing_time) * SECOND
        while len(given) < limit and (task := self._queue.first) is not None:
            room -= weight_of(task)
            if room < 0:
                break
            self._queue.pop()
            task.status, task.lease, task.lease_end, task.modify_time = _RUNNING, self._next_lease(), end, self.now
            self._leases.begin(task)
            given.append(attempts.without(task) if task.attempts else task)
        self._head.held += len(given)
        return given

    def set(self, setting: Setting) -> str:
        """What a worker says of its task, if it still is its task."""
        task = self.tasks.get(setting.key)
        if task is None:
            return Code.MISSING
        if setting.is_unleased and self.rules.lease_required:
            return Code.NO_LEASE
        if task.status != _RUNNING:
            return code_of_late(task, setting)
        if setting.lease is not None and setting.lease != task.lease:
            return Code.STALE
        if not self._has_room_for(task, setting):
            return Code.NO_ROOM
        is_next = setting.stage is not None and setting.stage != task.stage
        _write(task, setting)
        before = task.crt_retry_num
        retries = before if setting.crt_retry_num is None else setting.crt_retry_num
        if setting.status == _PENDING and (setting.failed or retries > before):
            self._fail(task, max(retries, before + 1), Outcome.FAILED)
            return Code.OK
        task.crt_retry_num = retries
        match setting.status:
            case Status.PENDING:
                attempts.note(task, self.now, Outcome.NEXT_STAGE if is_next else Outcome.PUT_BACK)
                self._wait(task, order_time(self.now, task.priority))
            case Status.SUCCESS | Status.FAILED:
                self._end(task, setting.status)
            case _:
                attempts.began(task)
                self._extend(task, 0)
        task.modify_time = self.now
        return Code.OK

    def beat(self, beat: Beat) -> str:
        """The holder is still at it."""
        task = self.tasks.get(beat.key)
        if task is None:
            return Code.MISSING
        if task.status != _RUNNING:
            return Code.STALE if task.status == _PENDING else Code.FINAL
        if beat.lease is not None and beat.lease != task.lease:
            return Code.STALE
        self._extend(task, beat.lease_seconds)
        return Code.OK

    def cancel(self, key: str) -> str:
        """Nobody wants the task any more."""
        task = self.tasks.get(key)
        if task is None:
            return Code.MISSING
        if task.status == _CANCELLED:
            return Code.SAME
        if task.status in (_SUCCESS, _FAILED):
            return Code.FINAL
        task.modify_time = self.now
        self._end(task, _CANCELLED)
        return Code.OK

    def _share(self) -> int:
        """Of tasks or of bytes, whichever is nearer to being too many."""
        if self._head.full:
            return 100
        tasks = len(self.tasks) + self._head.archived
        return min(100, max(100 * tasks // self.rules.lane_max_tasks, 100 * self.weight // FULL_BYTES))

    def _next_lease(self) -> int:
        """A number that nobody was told yet."""
        self.lease += 1
        return self.lease

    def _has_room_for(self, task: Task, setting: Setting) -> bool:
        """Make room for texts that a worker writes, if there is any."""
        if setting.content is None and setting.log is None:
            return True
        content = task.content if setting.content is None else setting.content
        log = task.log if setting.log is None else setting.log
        more = weight(task.user_id, content, log) - weight_of(task)
        if more > 0 and self.weight + more > STATE_MAX_BYTES:
            return False
        self.weight += more
        return True

    def _extend(self, task: Task, seconds: int) -> None:
        """A lease that was asked for is as long as that; else it is never shortened."""
        end = self.now + (seconds or self.rules.max_processing_time) * SECOND
        end = end if seconds else max(end, task.lease_end)
        if end != task.lease_end:
            task.lease_end = end
            self._leases.extend(task)

    def _fail(self, task: Task, retries: int, outcome: Outcome) -> None:
        """A running task failed, for this time: it waits for its delay, or it has ended."""
        if is_used_up(self.rules, retries - 1):
            self._end(task, _FAILED)
        else:
            attempts.note(task, self.now, outcome)
            task.crt_retry_num = retries
            self._head.retries += 1
            self._wait(task, self.now + delay(self.rules, retries - 1))
        task.modify_time = self.now

    def _wait(self, task: Task, moment: int) -> None:
        self._leave(task)
        task.status, task.order_time = _PENDING, moment
        self._queue.push(task)

    def _end(self, task: Task, status: int) -> None:
        self._leave(task)
        task.status = status
        self._ended[task.key] = task
        if status == _SUCCESS:
            self._head.success += 1
        elif status == _FAILED:
            self._head.failed += 1
        else:
            self._head.cancelled += 1

    def _leave(self, task: Task) -> None:
        """A task is no longer what it was, pending or running."""
        if task.status == _PENDING:
            self._queue.forget(task)
        else:
            self._leases.running -= 1


def weight_of(task: Task) -> int:
    """What a task takes of its lane."""
    return weight(task.user_id, task.content, task.log)


def _write(task: Task, setting: Setting) -> None:
    """What is None stays; an empty text or a zero is written."""
    if setting.stage is not None:
        task.stage = setting.stage
    if setting.content is not None:
        task.content = setting.content
        task.refs = task.refs & ~_CONTENT | setting.refs & _CONTENT
    if setting.log is not None:
        task.log = setting.log
        task.refs = task.refs & ~_LOG | setting.refs & _LOG


def code_of_late(task: Task, setting: Setting) -> str:
    """A set of a task that nobody holds: either it was done and the answer got lost, or it is too late."""
    is_holder = setting.lease == task.lease if setting.lease else _may_be_the_last(task, setting)
    given = ((setting.stage, task.stage), (setting.content, task.content), (setting.log, task.log))
    is_same = setting.status == task.status or (task.status == _FAILED and _is_last_failure(task, setting))
    if is_holder and is_same and all(said in (None, is_) for said, is_ in given):
        return Code.SAME
    return Code.STALE if task.status == _PENDING else Code.FINAL


def _may_be_the_last(task: Task, setting: Setting) -> bool:
    """Whether a set without a lease can have ended the last attempt: a task that waits again must count it."""
    return setting.lease is None and (task.status != _PENDING or 0 < task.crt_retry_num == setting.crt_retry_num)


def _is_last_failure(task: Task, setting: Setting) -> bool:
    """Whether a set throws a task back as failed: without a retry left that has ended it."""
    has_failed = setting.failed or (setting.crt_retry_num or 0) > task.crt_retry_num
    return setting.status == _PENDING and has_failed


def _is_same(task: Task, new: NewTask) -> bool:
    """Whether a create is the repetition of one; what workers may have changed since then does not count."""
    if (task.user_id, task.priority) != (new.user_id, new.priority):
        return False
    return task.lease != 0 or (task.content, task.refs & _CONTENT) == (new.content, new.refs & _CONTENT)

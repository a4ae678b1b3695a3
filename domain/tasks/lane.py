"""A lane: it does what groups ask, once each, and answers in messages that are small enough."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from domain.tasks import attempts
from domain.tasks.book import Book, weight_of
from domain.tasks.carrying import STATE_MAX_BYTES, Answered, Carried, LaneEnd
from domain.tasks.messages import (
    REPLY_MAX_BYTES,
    Found,
    Group,
    GroupReply,
    Head,
    Hold,
    LaneStatus,
    Look,
    Rules,
    Search,
    Seen,
    Status,
    Task,
)
from domain.tasks.senders import Senders

Operation = TypeVar("Operation")

_NULL_BYTES = 5


class Lane:
    """Tasks, and who has asked for what."""

    def __init__(self, rules: Rules, carried: Carried | None = None) -> None:
        carried = carried or Carried(head=Head(), now=0, leases=0, tasks=[], senders=[])
        self.book = Book(rules, carried)
        self._senders = Senders(carried.senders)
        # What was given away at one moment, for all of it leaves in one message.
        self._given, self._given_at = 0, -1

    def carry(self) -> Carried:
        """All that it takes for another lane to go on as this one."""
        book = self.book
        tasks = book.in_order()
        attempts.fit(tasks, STATE_MAX_BYTES - book.weight)
        return Carried(
            head=book.head(),
            now=book.now,
            leases=book.lease,
            tasks=tasks,
            senders=self._senders.all(),
            gone=book.gone,
        )

    @property
    def is_done(self) -> bool:
        """Whether it takes no more tasks and has none left."""
        return self.book.is_full and not self.book.tasks

    def end(self) -> LaneEnd:
        """How all of its tasks ended."""
        head = self.book.head()
        return LaneEnd(success=head.success, failed=head.failed, cancelled=head.cancelled)

    def status(self) -> LaneStatus:
        """How it stands."""
        head, rules = self.book.head(), self.book.rules
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
            bytes=self.book.weight,
            cancelled=head.cancelled,
        )

    def given_bytes(self, now: int) -> int:
        """How much was given away at this moment."""
        return self._given if now == self._given_at else 0

    def act(self, group: Group, now: int) -> GroupReply:
        """Do what a group asks, unless it was done before."""
        if now != self._given_at:
            self._given, self._given_at = 0, now
        book = self.book
        book.tick(now)
        last = self._senders.last(group.sender)
        if last is not None and group.number <= last.number:
            return self._repeated(group, last)
        if group.rules is not None and group.rules.version > book.rules.version:
            book.rules = group.rules
        sets = _each(book.set, group.sets)
        beats = _each(book.beat, group.beats)
        cancels = _each(book.cancel, group.cancels)
        creates = _each(book.create, group.creates)
        first_lease = book.lease + 1
        holds = self._hold(group.holds)
        counts = [len(tasks) for tasks in holds]
        done = Answered(group.sender, group.number, creates, sets, beats, cancels, first_lease, counts)
        self._senders.remember(done)
        book.change()
        return self._reply(done, holds, group.reads)

    def look(self, look: Look) -> Seen:
        """Tasks by key."""
        return Seen(tasks=self._find(look.keys, REPLY_MAX_BYTES), head=self.book.head())

    def search(self, search: Search) -> Found:
        """Tasks by their properties, the newest first, of one moment those with the highest keys; or all in turn."""
        found: list[Task] = []
        room = REPLY_MAX_BYTES
        tasks = self.book.tasks.values()
        if search.begin >= 0:
            chosen: Iterable[Task] = islice(tasks, search.begin, search.begin + search.limit)
        else:
            chosen = heapq.nlargest(search.limit, (task for task in tasks if _is_searched(task, search)), key=_place)
        for task in chosen:
            shown = task if search.with_attempts else attempts.without(task)
            room -= _width(shown)
            if room < 0:
                break
            found.append(shown)
        return Found(tasks=found, head=self.book.head())

    def _hold(self, holds: list[Hold]) -> list[list[Task]]:
        """Give out tasks until all that was given at this moment is as much as a message may hold."""
        given: list[list[Task]] = []
        for hold in holds:
            first = self.book.next_due
            if first is not None and self._given + weight_of(first) > REPLY_MAX_BYTES:
                break
            tasks = self.book.hold(hold, REPLY_MAX_BYTES - self._given)
            self._given += sum(map(weight_of, tasks))
            given.append(tasks)
        return given

    def _find(self, keys: Iterable[str], room: int) -> list[Task | None]:
        """As many as there is room for."""
        found: list[Task | None] = []
        for key in keys:
            task = self.book.tasks.get(key)
            room -= _width(task) if task is not None else _NULL_BYTES
            if room < 0:
                break
            found.append(task)
        return found

    def _repeated(self, group: Group, last: Answered) -> GroupReply:
        """The answer once more: of what was given out then, that which still is theirs."""
        if group.number < last.number:
            return GroupReply(head=self.book.head(), now=self.book.now, version=self.book.rules.version, late=True)
        end = last.first_lease + sum(last.holds)
        still = {task.lease: task for task in self.book.tasks.values() if last.first_lease <= task.lease < end}
        holds, lease = [], last.first_lease
        for count in last.holds:
            leases = range(lease, lease + count)
            running = [still[each] for each in leases if each in still and still[each].status == Status.RUNNING]
            holds.append([attempts.without(task) for task in running])
            lease += count
        self._given += sum(weight_of(task) for tasks in holds for task in tasks)
        return self._reply(last, holds, group.reads)

    def _reply(self, done: Answered, holds: list[list[Task]], reads: list[str]) -> GroupReply:
        found = self._find(reads, REPLY_MAX_BYTES - self._given)
        self._given += sum(weight_of(task) for task in found if task is not None)
        return GroupReply(
            head=self.book.head(),
            now=self.book.now,
            version=self.book.rules.version,
            creates=done.creates,
            holds=holds,
            sets=done.sets,
            beats=done.beats,
            cancels=done.cancels,
            reads=found,
        )


def _each(do: Callable[[Operation], str], operations: list[Operation]) -> str:
    return "".join([do(operation) for operation in operations])


def _width(task: Task) -> int:
    """What a task takes of an answer that tells its attempts, too."""
    return weight_of(task) + attempts.size(task)


def _is_searched(task: Task, search: Search) -> bool:
    return (
        search.status in (0, task.status)
        and search.stage in (None, task.stage)
        and search.user_id in (None, task.user_id)
        and (not search.before or _place(task) < (search.before, search.before_key))
    )


def _place(task: Task) -> tuple[int, str]:
    return task.create_time, task.key

"""The pending tasks of a lane in the order of their `order_time`, and the running ones in the order of their leases."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from domain.tasks.messages import Refs, Status, Task
from domain.tasks.rules import order_time

_PENDING: Final = int(Status.PENDING)
_RUNNING: Final = int(Status.RUNNING)
_LATER: Final = int(Refs.LATER)
_OLD_LEASES_MAX: Final = 1_000

_Place: TypeAlias = tuple[int, int, Task]


class Queue:
    """Who is next. Whoever stands at the same moment goes in the order of coming.

    A task that is cancelled stays in its heap until it comes to the top: it is no longer pending, which tells it.
    """

    def __init__(self) -> None:
        self._due: list[_Place] = []
        self._later: list[_Place] = []
        self._comings = 0
        self._now = 0
        self.due = 0
        self.pending = 0

    def push(self, task: Task) -> None:
        """A task is pending from now on."""
        self._comings += 1
        is_due = task.order_time <= self._now
        heappush(self._due if is_due else self._later, (task.order_time, self._comings, task))
        self.due += is_due
        self.pending += 1

    @property
    def first(self) -> Task | None:
        """The next that is due."""
        place = _top(self._due)
        return None if place is None else place[2]

    def pop(self) -> None:
        """Take out the first; it is for the caller to say that it is no longer pending."""
        heappop(self._due)
        self.due -= 1
        self.pending -= 1

    def forget(self, task: Task) -> None:
        """A task in the queue is no longer pending."""
        self.due -= task.order_time <= self._now
        self.pending -= 1

    def tick(self, now: int) -> None:
        """It is later than before: see who has become due."""
        self._now = now
        while (place := _top(self._later)) is not None and place[0] <= now:
            _, coming, task = heappop(self._later)
            if task.refs & _LATER:
                # It could not stand ahead of its time as long as that would have had it given out too early.
                task.refs &= ~_LATER
                task.order_time = order_time(task.order_time, task.priority)
            heappush(self._due, (task.order_time, coming, task))
            self.due += 1

    @property
    def next_order_time(self) -> int | None:
        """The earliest, due or not."""
        place = _top(self._due) or _top(self._later)
        return None if place is None else place[0]

    def in_order(self) -> list[Task]:
        """All pending tasks, the next first."""
        return [task for _, _, task in sorted(self._due + self._later) if task.status == _PENDING]


def _top(places: list[_Place]) -> _Place | None:
    while places and places[0][2].status != _PENDING:
        heappop(places)
    return places[0] if places else None


class Leases:
    """Whose time is over next. A lease that was given up or extended stays until it comes to the top."""

    def __init__(self) -> None:
        self._leases: list[_Place] = []
        self.running = 0

    def begin(self, task: Task) -> None:
        """A task is running from now on."""
        self.running += 1
        self.extend(task)

    def extend(self, task: Task) -> None:
        """The lease of a running task has another end now."""
        heappush(self._leases, (task.lease_end, task.lease, task))
        if len(self._leases) > _OLD_LEASES_MAX + 2 * self.running:
            self._leases = [place for place in self._leases if _is_in_force(place)]
            heapify(self._leases)

    def pop(self, now: int) -> Task | None:
        """A running task whose lease is over."""
        if (end := self.next_end) is None or end > now:
            return None
        return heappop(self._leases)[2]

    @property
    def next_end(self) -> int | None:
        """When the next lease is over."""
        while self._leases and not _is_in_force(self._leases[0]):
            heappop(self._leases)
        return self._leases[0][0] if self._leases else None


def _is_in_force(place: _Place) -> bool:
    end, lease, task = place
    return task.status == _RUNNING and task.lease == lease and task.lease_end == end

"""Heads: which lanes have tasks that are due, as their last answers and the hint table tell.

A lane that answers this process tells its head at once, and where it has something to give out again the process
tells the others. All else a lane publishes within a second. So a task that is created is found in some milliseconds,
whichever process it came through, and one that becomes due by other means about a second later.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from api.shared_reads import CoalescedRead
from api.tasks import announcing, figures
from api.tasks.announcing import Announcer
from domain.tasks.ids import split_type
from domain.tasks.messages import Head
from infra import log
from infra.database import LISTENING, Database
from stores.tables.tasks import HEADS_CHANNEL
from stores.tasks import heads
from stores.tasks.heads import QueueSums

FRESH_SECONDS = 0.4
SHOWN_SECONDS = 5.0

_log = log.get(__name__)


@dataclass(slots=True)
class _Queue:
    """The lanes of a type, as far as they are known."""

    heads: dict[int, Head] = field(default_factory=dict)
    promised: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """How many tasks of each lane have been asked for and not been given yet."""
    order: list[int] | None = None
    read_at: float = float("-inf")
    news: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    """How many callers wait for news."""


class Heads:
    """What this process knows of lanes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queues: dict[str, _Queue] = defaultdict(_Queue)
        self._reads = CoalescedRead(self._read)
        self._announcer = Announcer(database)

    def hear(self, type_: str, pos: int, head: Head) -> None:
        """Learn from a lane's answer to this process; tell the others if it has something to give out again."""
        known = self._queues[type_].heads.get(pos)
        if not self.learn(type_, pos, head) or not head.due:
            return
        # Where another process has asked the lane since, it may have taken all that was due before.
        if known is None or not known.due or head.number > known.number + 1:
            self._announcer.announce(type_, pos, head)

    def learn(self, type_: str, pos: int, head: Head) -> bool:
        """Take up how a lane stands, and wake who waits; False if something newer is known."""
        queue = self._queues[type_]
        known = queue.heads.get(pos)
        if known is not None and known.number >= head.number:
            return False
        queue.heads[pos] = head
        queue.order = None
        if head.due:
            queue.news.set()
            queue.news = asyncio.Event()
        return True

    def forget(self, type_: str, pos: int) -> None:
        """A lane is over."""
        queue = self._queues[type_]
        queue.heads.pop(pos, None)
        queue.order = None

    async def refresh(self, type_: str) -> None:
        """See that what is known of a type's lanes is fresh."""
        if self._queues[type_].read_at + FRESH_SECONDS < time.monotonic():
            await self._reads.get(type_)

    def first_due(self, type_: str, without: Collection[int]) -> int | None:
        """The lane whose turn it is, of those that have more tasks due than were asked for already."""
        queue = self._queues[type_]
        if queue.order is None:
            queue.order = _in_order(queue.heads)
        now = now_ms()
        for pos in queue.order:
            head = queue.heads[pos]
            if head.next_order_time is None or head.next_order_time > now:
                return None
            # It may have become due since the lane counted.
            if max(head.due, 1) > queue.promised.get(pos, 0) and pos not in without:
                return pos
        return None

    async def open_lanes(self, type_: str) -> list[int]:
        """All lanes of a type that are not over, the newest first; asked anew."""
        await self._reads.get(type_)
        return sorted(self._queues[type_].heads, reverse=True)

    @contextmanager
    def promised(self, type_: str, pos: int, tasks: int) -> Iterator[None]:
        """So many tasks of a lane are being asked for."""
        promised = self._queues[type_].promised
        promised[pos] += tasks
        try:
            yield
        finally:
            promised[pos] -= tasks
            if not promised[pos]:
                del promised[pos]

    async def news(self, type_: str, timeout: float) -> None:
        """Wait until a lane says that tasks are due, one becomes due by its time, or it is too late."""
        queue = self._queues[type_]
        now = now_ms()
        turns = [(head.next_order_time - now) / 1000 for head in queue.heads.values() if head.next_order_time]
        soon = min((turn for turn in turns if turn > 0), default=timeout)
        news = queue.news
        queue.waiting += 1
        try:
            # What was said since the queue was looked at.
            if queue.read_at == float("-inf"):
                await self._reads.get(type_)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, soon + 0.001)):
                    await news.wait()
        finally:
            queue.waiting -= 1

    async def follow(self) -> None:
        """Hear for ever which lanes have said something, and look at once where somebody waits."""
        async for told in self._database.listen(HEADS_CHANNEL):
            if told == LISTENING:
                for type_ in [*self._queues]:
                    await self._note(type_)
                continue
            type_, pos, head = announcing.read(told)
            if head is None:
                await self._note(type_)
            else:
                self.learn(type_, pos, head)

    async def announce(self) -> None:
        """Tell other processes for ever which lanes have something to give out again."""
        await self._announcer.run()

    async def show(self) -> None:
        """Show for ever how the queues stand, for whoever reads the figures."""
        while True:
            try:
                sums = await heads.sum_by_type(self._database)
            except Exception as error:  # noqa: BLE001 - whatever it is, it may be over in five seconds
                _log.warning("figures_not_read", error=repr(error))
            else:
                _show(sums)
            await asyncio.sleep(SHOWN_SECONDS)

    async def _note(self, type_: str) -> None:
        queue = self._queues.get(type_)
        if queue is None:
            return
        queue.read_at = float("-inf")
        if queue.waiting:
            try:
                await self._reads.get(type_)
            except Exception as error:  # noqa: BLE001 - those who wait look for themselves before long
                _log.warning("heads_not_read", type=type_, error=repr(error))

    async def _read(self, type_: str) -> None:
        read_at = time.monotonic()
        found = await heads.find(self._database, type_)
        queue = self._queues[type_]
        for pos in queue.heads.keys() - found.keys():
            self.forget(type_, pos)
        for pos, head in found.items():
            self.learn(type_, pos, head)
        queue.read_at = read_at


def now_ms() -> int:
    """The time, as lanes reckon it."""
    return time.time_ns() // 1_000_000


def _in_order(heads: dict[int, Head]) -> list[int]:
    waiting = [(head.next_order_time, pos) for pos, head in heads.items() if head.next_order_time is not None]
    return [pos for _, pos in sorted(waiting)]


def _show(sums: Sequence[QueueSums]) -> None:
    # A type all of whose lanes are over has no sums.
    for gauge in (figures.DEPTH, figures.OPEN, figures.OLDEST, figures.LANES):
        gauge.clear()
    for each in sums:
        type_ = split_type(each.type)
        for state, count in (("due", each.due), ("pending", each.pending), ("running", each.running)):
            figures.DEPTH.labels(*type_, state).set(count)
        for event, count in (("held", each.held), ("retries", each.retries), ("timeouts", each.timeouts)):
            figures.OPEN.labels(*type_, event).set(count)
        late = now_ms() - each.next_order_time if each.next_order_time else 0
        figures.OLDEST.labels(*type_).set(max(0, late) / 1000)
        figures.LANES.labels(*type_).set(each.lanes)

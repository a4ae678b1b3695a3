"""What this process knows of lanes: their heads, which show due tasks, and all tasks of lanes that are idle.

Heads come from replies, notifications and the database. A lane saves its head within a second of a change. For a faster
hold, the process whose request made a task due in an idle lane announces the lane's head to the other processes by a
PostgreSQL notification. A lost notification delays the next hold by that second.

A lane changes only with an event in its history, and asking the engine for the length of the history costs a third of a
query. After several reads of a lane without a change, all its tasks are read once; later reads only check the history.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import msgspec
from prometheus_client import Gauge

from api.batching import UncachedReadByKey
from domain.tasks.messages import LaneHead, Task, TaskSearch, TaskSearchReply
from domain.tasks.names import LaneName, split_type_id
from infra import log
from infra.database import LISTENING, Database
from stores.tables.tasks import HEADS_CHANNEL
from stores.tasks import lanes
from stores.tasks.lanes import TaskTypeTotals
from workflows.tasks.handle import HistoryPosition

FRESH_SECONDS = 0.4
METRICS_INTERVAL_SECONDS = 5.0
ANNOUNCE_INTERVAL_SECONDS = 0.05
"""At most this often, so that a queue that is emptied and filled all the time costs no more."""

UNCHANGED_READS = 8
"""A lane counts as idle after this many reads without a change: reading it all costs little more than they did."""
IDLE_LANES_MAX = 16
"""Lanes in the cache, with some thousand tasks each."""
PROTECTED_SECONDS = 2.0
"""A lane that was read this recently is not evicted; else lanes that are read in turn would evict each other."""
PAGE_TASKS = 2_000
"""Tasks per query, as other requests wait for the lane meanwhile; a reply may hold fewer."""


DEPTH = Gauge(
    "haulage_task_depth", "Tasks by state: due, pending (includes due), running.", ["project", "type", "state"]
)
OLDEST = Gauge("haulage_task_oldest_due_seconds", "How long the first task has been due.", ["project", "type"])
LANES = Gauge("haulage_task_lanes", "Open lanes.", ["project", "type"])
OPEN_LANE_EVENTS = Gauge(
    "haulage_task_open_lane_events", "Holds, retries and time-outs in open lanes.", ["project", "type", "event"]
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LaneHead).decode
_log = log.get(__name__)


@dataclass(slots=True)
class _CachedHeadsAndReservationsOfType:
    """What is known of the open lanes of a type."""

    heads: dict[int, LaneHead] = field(default_factory=dict)
    reserved: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By lane: tasks that holds under way have requested."""
    order: list[int] | None = None
    read_at: float = float("-inf")
    news: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class LaneHeadCache:
    """Heads of lanes that this process knows."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queues: dict[str, _CachedHeadsAndReservationsOfType] = defaultdict(_CachedHeadsAndReservationsOfType)
        self._reads = UncachedReadByKey(self._read_heads_from_database_into_cache)
        self._announcer = LaneHeadAnnouncer(database)

    def update_and_announce_newly_due(self, lane: LaneName, head: LaneHead) -> None:
        """Update a head from a lane's reply; announce it if the lane was idle and has due tasks now."""
        type_, pos = lane
        known = self._queues[type_].heads.get(pos)
        if not self.update_and_wake_if_newer(lane, head) or not head.due:
            return
        # A gap in the numbers is a batch of another process, which may have held all tasks that were due before.
        if known is None or not known.due or head.number > known.number + 1:
            self._announcer.queue_announcement(lane, head)

    def update_and_wake_if_newer(self, lane: LaneName, head: LaneHead) -> bool:
        """Update a head and wake the waiting holds; False if a newer head is known."""
        type_, pos = lane
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

    def remove_lane(self, lane: LaneName) -> None:
        """Remove a lane that is closed."""
        type_, pos = lane
        queue = self._queues[type_]
        queue.heads.pop(pos, None)
        queue.order = None

    async def refresh_if_stale(self, type_: str) -> None:
        """Read the heads of a type unless they were read lately."""
        if self._queues[type_].read_at + FRESH_SECONDS < time.monotonic():
            await self._reads.read_anew(type_)

    def find_lane_with_unreserved_due_task(self, type_: str, excluded: Collection[int]) -> int | None:
        """Return the lane with the earliest due task, of those that have more due tasks than are reserved."""
        queue = self._queues[type_]
        if queue.order is None:
            queue.order = _sort_by_next_order_time(queue.heads)
        now = get_now_ms()
        for pos in queue.order:
            head = queue.heads[pos]
            # A lane that has due tasks knows it by the engine's clock, which may be ahead of this host's.
            if not head.due and (head.next_order_time is None or head.next_order_time > now):
                continue
            # One task may have become due since the lane counted.
            if max(head.due, 1) > queue.reserved.get(pos, 0) and pos not in excluded:
                return pos
        return None

    async def list_open_lanes(self, type_: str) -> list[int]:
        """Read the open lanes of a type; return their positions, newest first."""
        await self._reads.read_anew(type_)
        return sorted(self._queues[type_].heads, reverse=True)

    @contextmanager
    def reserve_tasks(self, lane: LaneName, tasks: int) -> Iterator[None]:
        """Reserve due tasks of a lane while a hold is under way, so that concurrent holds go to other lanes."""
        type_, pos = lane
        reserved = self._queues[type_].reserved
        reserved[pos] += tasks
        try:
            yield
        finally:
            reserved[pos] -= tasks
            if not reserved[pos]:
                del reserved[pos]

    async def wait_for_due_task(self, type_: str, timeout: float) -> None:
        """Wait until a head shows due tasks, a pending task becomes due, or the time is up."""
        queue = self._queues[type_]
        now = get_now_ms()
        delays = [(head.next_order_time - now) / 1000 for head in queue.heads.values() if head.next_order_time]
        next_delay = min((delay for delay in delays if delay > 0), default=timeout)
        news = queue.news
        queue.waiting += 1
        try:
            # Notifications that arrived since the last read.
            if queue.read_at == float("-inf"):
                await self._reads.read_anew(type_)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout, next_delay + 0.001)):
                    await news.wait()
        finally:
            queue.waiting -= 1

    async def follow_notifications(self) -> None:
        """Follow notifications forever, and read the heads of a type at once if a hold is waiting for it."""
        async for payload in self._database.listen(HEADS_CHANNEL):
            if payload == LISTENING:
                for type_ in [*self._queues]:
                    await self._invalidate_and_reread_if_waited_for(type_)
                continue
            lane, head = parse_lane_and_head_if_announced(payload)
            if head is None:
                await self._invalidate_and_reread_if_waited_for(lane[0])
            else:
                self.update_and_wake_if_newer(lane, head)

    async def send_announcements_forever(self) -> None:
        """Send announcements forever."""
        await self._announcer.send_forever()

    async def sum_lanes_by_type_and_set_gauges_forever(self) -> None:
        """Set the gauges anew every few seconds, from sums over all open lanes."""
        while True:
            try:
                totals = await lanes.sum_open_lanes_by_type(self._database)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt follows in five seconds
                _log.warning("task_metrics_failed", error=repr(error))
            else:
                _set_task_type_gauges(totals)
            await asyncio.sleep(METRICS_INTERVAL_SECONDS)

    async def _invalidate_and_reread_if_waited_for(self, type_: str) -> None:
        queue = self._queues.get(type_)
        if queue is None:
            return
        queue.read_at = float("-inf")
        if queue.waiting:
            try:
                await self._reads.read_anew(type_)
            except Exception as error:  # noqa: BLE001 - waiting holds read the heads themselves within a second
                _log.warning("lane_heads_read_failed", type=type_, error=repr(error))

    async def _read_heads_from_database_into_cache(self, type_: str) -> None:
        read_at = time.monotonic()
        found = await lanes.load_heads(self._database, type_)
        queue = self._queues[type_]
        for pos in queue.heads.keys() - found.keys():
            self.remove_lane((type_, pos))
        for pos, head in found.items():
            self.update_and_wake_if_newer((type_, pos), head)
        queue.read_at = read_at


class LaneHeadAnnouncer:
    """Announces heads to other processes, those of one interval in one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: dict[LaneName, LaneHead] = {}
        self._has_some = asyncio.Event()

    def queue_announcement(self, lane: LaneName, head: LaneHead) -> None:
        """Queue the announcement of a head; it replaces an earlier one of the lane."""
        self._waiting[lane] = head
        self._has_some.set()

    async def send_forever(self) -> None:
        """Send announcements forever. Those that cannot be sent are dropped: the lane saves its head anyway."""
        while True:
            await self._has_some.wait()
            self._has_some.clear()
            payloads = [f"{type_}/{pos} {_encode(head).decode()}" for (type_, pos), head in self._waiting.items()]
            self._waiting.clear()
            try:
                await lanes.notify_head_listeners(self._database, payloads)
            except Exception as error:  # noqa: BLE001 - other processes read the saved heads a second later
                _log.warning("lane_heads_announcement_failed", lanes=len(payloads), error=repr(error))
            await asyncio.sleep(ANNOUNCE_INTERVAL_SECONDS)


def parse_lane_and_head_if_announced(payload: str) -> tuple[LaneName, LaneHead | None]:
    """Parse a notification into its lane, and its head if it is an announcement."""
    lane, _, head = payload.partition(" ")
    type_, _, pos = lane.rpartition("/")
    return (type_, int(pos)), _decode(head) if head else None


def get_now_ms() -> int:
    """Return the time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _sort_by_next_order_time(heads: dict[int, LaneHead]) -> list[int]:
    waiting = [(head.next_order_time, pos) for pos, head in heads.items() if head.next_order_time is not None]
    return [pos for _, pos in sorted(waiting)]


def _set_task_type_gauges(totals: Sequence[TaskTypeTotals]) -> None:
    # A type without open lanes has no totals.
    for gauge in (DEPTH, OPEN_LANE_EVENTS, OLDEST, LANES):
        gauge.clear()
    for each in totals:
        labels = split_type_id(each.type)
        for state, count in (("due", each.due), ("pending", each.pending), ("running", each.running)):
            DEPTH.labels(*labels, state).set(count)
        for event, count in (("held", each.held), ("retries", each.retries), ("timeouts", each.timeouts)):
            OPEN_LANE_EVENTS.labels(*labels, event).set(count)
        late_ms = get_now_ms() - each.next_order_time if each.next_order_time else 0
        OLDEST.labels(*labels).set(max(0, late_ms) / 1000)
        LANES.labels(*labels).set(each.lanes)


@dataclass(slots=True)
class _CachedIdleLane:
    number: int
    reads: int = 0
    read_at: float = 0.0
    position: HistoryPosition | None = None
    tasks: Mapping[str, Task] = field(default_factory=dict)
    loading: asyncio.Task[None] | None = None


class IdleLaneTaskCache:
    """All tasks of lanes that do not change.

    Args:
        read_position: Reads the current history position of a lane.
        search: Queries the tasks of a lane.
    """

    def __init__(
        self,
        read_position: Callable[[LaneName], Awaitable[HistoryPosition]],
        search: Callable[[LaneName, TaskSearch], Awaitable[TaskSearchReply]],
    ) -> None:
        self._read_position = read_position
        self._search = search
        self._lanes: dict[LaneName, _CachedIdleLane] = {}

    def is_cached(self, lane: LaneName) -> bool:
        """Return whether the tasks of a lane are cached; they may be outdated."""
        known = self._lanes.get(lane)
        return known is not None and known.position is not None

    def count_read_of_idle_lane(self, lane: LaneName, number: int) -> None:
        """Record that a lane was queried and that its head has this number."""
        known = self._lanes.pop(lane, None)
        if known is None and not self._try_evict_least_recently_read_if_full():
            return
        if known is None or known.number != number:
            known = _CachedIdleLane(number)
        known.reads += 1
        self._mark_most_recently_read(lane, known)

    async def get_current_tasks(self, lane: LaneName) -> Mapping[str, Task] | None:
        """Return all current tasks of a lane by key; None if they are not cached or have changed."""
        known = self._lanes.get(lane)
        if known is None or known.reads <= UNCHANGED_READS:
            return None
        self._mark_most_recently_read(lane, self._lanes.pop(lane))
        if known.loading is None:
            # In the background: until it is done, the lane is queried as before.
            known.loading = asyncio.create_task(self._load_or_drop_tasks(lane, known))
        if known.position is None:
            return None
        if await self._read_position(lane) == known.position:
            return known.tasks
        self._remove_unless_replaced(lane, known)
        return None

    async def _load_or_drop_tasks(self, lane: LaneName, known: _CachedIdleLane) -> None:
        try:
            # The position first: a change in between makes the tasks look outdated, never outdated tasks look current.
            position = await self._read_position(lane)
            tasks = await self._read_all_tasks(lane, known.number)
        except Exception as error:  # noqa: BLE001 - the next request queries the lane and gets the error
            tasks = None
            _log.warning("idle_lane_read_failed", type=lane[0], pos=lane[1], error=repr(error))
        if tasks is None:
            self._remove_unless_replaced(lane, known)
        else:
            known.tasks, known.position = tasks, position

    def _mark_most_recently_read(self, lane: LaneName, known: _CachedIdleLane) -> None:
        known.read_at = time.monotonic()
        self._lanes[lane] = known

    def _try_evict_least_recently_read_if_full(self) -> bool:
        """Evict the lane that was read least recently, if that is needed; False if it was read too recently."""
        if len(self._lanes) < IDLE_LANES_MAX:
            return True
        name, oldest = next(iter(self._lanes.items()))
        if time.monotonic() - oldest.read_at < PROTECTED_SECONDS:
            return False
        del self._lanes[name]
        return True

    def _remove_unless_replaced(self, lane: LaneName, known: _CachedIdleLane) -> None:
        if self._lanes.get(lane) is known:
            del self._lanes[lane]

    async def _read_all_tasks(self, lane: LaneName, number: int) -> dict[str, Task] | None:
        """Read all tasks of a lane; None if it has changed."""
        tasks: dict[str, Task] = {}
        while True:
            reply = await self._search(lane, TaskSearch(limit=PAGE_TASKS, offset=len(tasks)))
            before = len(tasks)
            tasks |= {task.key: task for task in reply.tasks}
            if reply.head.number != number:
                return None
            if len(tasks) >= _count_unarchived_tasks(reply.head):
                return tasks
            if len(tasks) == before:
                return None


def _count_unarchived_tasks(head: LaneHead) -> int:
    return head.pending + head.running + head.success + head.failed + head.cancelled - head.archived

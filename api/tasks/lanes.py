"""Client of lanes: sends operations in batches, one message of a lane at a time.

A batch has a number, so it is safe to send it again when its reply got lost, or while the lane continues as new. Reads
are sent as a query, which adds nothing to the history, or with the next batch.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from prometheus_client import Histogram
from temporalio.client import Client

from api.batching import BatchItem, RetryWindow
from api.tasks.idle_lanes import HistoryPosition, IdleLaneCache
from api.tasks.lane_batches import LaneBatcher, is_new, validate_operation
from domain.tasks.messages import (
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneBatch,
    LaneHead,
    OperationCode,
    Rules,
    SetOperation,
    Task,
    TaskLookup,
    TaskSearch,
    TaskSearchReply,
)
from domain.tasks.names import LaneName, split_type
from infra import log
from infra.outages import EngineUnresponsive
from workflows.tasks import handle
from workflows.tasks.handle import LaneBusy, LaneUnresponsive

INTERVAL_SECONDS = 0.03
"""Between two large batches of a lane: each costs engine and worker 8 ms, whatever its size."""
CROWD = 120
CROWD_FACTOR = 2
"""After a batch of at least `CROWD` requests the interval is longer, as fewer batches leave more processor time."""
INTERVAL_MAX_SECONDS = 0.2
CONCURRENT_LANES = 2
"""Up to this many lanes in use the interval is not lengthened; idle lanes cost little."""
LANES_MAX = 1_000

HeadHandler: TypeAlias = Callable[[LaneName, LaneHead], None]
Reply = TypeVar("Reply")
Requests: TypeAlias = list[BatchItem[Any, Any]]

BATCH_SIZES = Histogram(
    "haulage_task_group_requests",
    "Requests per batch sent to a lane.",
    ["project", "type"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000),
)

_log = log.get(__name__)


class LaneTimeout(EngineUnresponsive):
    """No lane answered in time; the request may be repeated."""


@dataclass(frozen=True, slots=True)
class CancelOperation:
    """Cancel a task."""

    key: str


@dataclass(frozen=True, slots=True)
class ReadOperation:
    """Read a task."""

    key: str


class LaneClient:
    """Sends the operations of this process to lanes.

    Args:
        handle_head: Called with the head of every reply.
    """

    def __init__(self, engine: Client, handle_head: HeadHandler) -> None:
        self._engine = engine
        self._handle_head = handle_head
        self._batchers: dict[LaneName, LaneBatcher] = {}
        self._active: set[LaneName] = set()
        self._idle_lanes = IdleLaneCache(self._read_position, self.search)
        self._sender = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    async def create(self, lane: LaneName, rules: Rules, task: CreateOperation) -> str:
        """Create a task; return the `OperationCode` once the result is durable."""
        known = self._batchers.get(lane)
        if known is not None and known.is_full and is_new(task):
            return OperationCode.FULL
        code: str = await self._submit(lane, task, rules)
        return code

    async def hold(self, lane: LaneName, rules: Rules, hold: HoldOperation) -> list[Task]:
        """Hold due tasks."""
        tasks: list[Task] = await self._submit(lane, hold, rules)
        return tasks

    async def change(
        self, lane: LaneName, rules: Rules, operation: SetOperation | HeartbeatOperation | CancelOperation
    ) -> str:
        """Set, renew or cancel a task; return the `OperationCode` once the result is durable."""
        code: str = await self._submit(lane, operation, rules)
        return code

    async def read(self, lane: LaneName, key: str) -> Task | None:
        """Read a task; None if it is not in the lane."""
        task: Task | None = await self._submit(lane, ReadOperation(key))
        return task

    async def send_rules(self, lane: LaneName, rules: Rules) -> None:
        """Return when a lane applies these rules or newer ones."""
        await self._submit(lane, rules, rules)

    async def search(self, lane: LaneName, search: TaskSearch) -> TaskSearchReply:
        """Return the live tasks of a lane that match."""
        reply = await self._retry(lambda: handle.search_tasks(self._engine, lane, search))
        self._handle_head(lane, reply.head)
        return reply

    async def read_head(self, lane: LaneName) -> LaneHead:
        """Read the head of a lane."""
        reply = await self._retry(lambda: handle.look_up_tasks(self._engine, lane, TaskLookup(keys=[])))
        self._handle_head(lane, reply.head)
        return reply.head

    def _submit(self, name: LaneName, operation: Any, rules: Rules | None = None) -> asyncio.Future[Any]:
        lane = self._batchers.get(name)
        if lane is None:
            lane = LaneBatcher(name, self._send_batch, self._compute_interval, self._handle_idle)
            self._batchers[name] = lane
        if rules is not None and rules.version > lane.version:
            lane.rules = rules
        answer = lane.submit(operation, validate_operation(operation))
        self._active.add(name)
        return answer

    def _handle_idle(self, name: LaneName) -> None:
        self._active.discard(name)
        if len(self._batchers) > LANES_MAX:
            self._batchers = {name: each for name, each in self._batchers.items() if each.sending}

    def _compute_interval(self, lane: LaneBatcher) -> float:
        busy = sum(not self._idle_lanes.is_cached(name) for name in self._active)
        interval = INTERVAL_SECONDS * (CROWD_FACTOR if lane.last_size >= CROWD else 1)
        return min(interval * max(1.0, busy / CONCURRENT_LANES), INTERVAL_MAX_SECONDS)

    async def _send_batch(self, lane: LaneBatcher, requests: Requests) -> None:
        BATCH_SIZES.labels(*split_type(lane.type)).observe(len(requests))
        by_kind: dict[type, Requests] = defaultdict(list)
        for request in requests:
            by_kind[type(request.value)].append(request)
        if by_kind.keys() == {ReadOperation}:
            await self._look_up(lane, requests)
        else:
            await self._update(lane, by_kind)

    async def _look_up(self, lane: LaneBatcher, requests: Requests) -> None:
        keys = [request.value.key for request in requests]
        tasks = await self._idle_lanes.get_tasks(lane.name)
        if tasks is not None:
            _resolve_in_order(requests, [tasks.get(key) for key in keys])
            return
        reply = await self._retry(lambda: handle.look_up_tasks(self._engine, lane.name, TaskLookup(keys=keys)))
        self._handle_head(lane.name, reply.head)
        self._idle_lanes.record_read(lane.name, reply.head.number)
        lane.requeue(_resolve_in_order(requests, reply.tasks))

    async def _update(self, lane: LaneBatcher, by_kind: dict[type, Requests]) -> None:
        kinds = (CreateOperation, HoldOperation, SetOperation, HeartbeatOperation)
        operations = {kind: [request.value for request in by_kind[kind]] for kind in kinds}
        batch = LaneBatch(
            sender=self._sender,
            number=next(self._numbers),
            creates=operations[CreateOperation],
            holds=operations[HoldOperation],
            sets=operations[SetOperation],
            heartbeats=operations[HeartbeatOperation],
            cancels=[request.value.key for request in by_kind[CancelOperation]],
            reads=[request.value.key for request in by_kind[ReadOperation]],
            rules=lane.rules,
        )
        reply = await self._retry(lambda: handle.apply_batch(self._engine, lane.name, batch))
        if reply.late:
            raise LaneTimeout(f"a batch for {lane.type}/{lane.pos} arrived after a later one")
        lane.version = max(lane.version, reply.version)
        if reply.head.full and not lane.is_full:
            lane.mark_full()
        if lane.rules and lane.rules.version <= lane.version:
            lane.rules = None
        self._handle_head(lane.name, reply.head)
        _resolve_in_order(by_kind[CreateOperation], reply.creates)
        _resolve_in_order(by_kind[SetOperation], reply.sets)
        _resolve_in_order(by_kind[HeartbeatOperation], reply.heartbeats)
        _resolve_in_order(by_kind[CancelOperation], reply.cancels)
        _resolve_in_order(by_kind[Rules], [reply.version] * len(by_kind[Rules]))
        lane.requeue(
            _resolve_in_order(by_kind[HoldOperation], reply.holds)
            + _resolve_in_order(by_kind[ReadOperation], reply.reads)
        )

    async def _read_position(self, lane: LaneName) -> HistoryPosition:
        return await self._retry(lambda: handle.read_history_position(self._engine, lane))

    async def _retry(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """Repeat a call while the lane is busy or does not answer."""
        patience = RetryWindow("a lane", LaneTimeout)
        while True:
            try:
                return await call()
            except LaneBusy as error:
                await patience.wait(error, soon=True)
            except LaneUnresponsive as error:
                _log.warning("lane_call_retried", error=str(error))
                await patience.wait(error)


def _resolve_in_order(requests: Requests, answers: Sequence[object]) -> Requests:
    """Answer requests in order; return those without an answer, because the reply was full."""
    for request, answer in zip(requests, answers, strict=False):
        request.resolve(answer)
    return requests[len(answers) :]

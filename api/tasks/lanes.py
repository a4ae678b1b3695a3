"""Client of lanes: sends operations in batches, one message of a lane at a time.

A request for an idle lane leaves at once. Those that come meanwhile wait some milliseconds for each other and leave as
one batch. Callers that are answered together usually send their next request together, so a batch waits for those of
the previous one. Large batches leave at fixed times of the wall clock, the same in all processes.

A batch has a number, so it is safe to send it again when its reply got lost, or while the lane continues as new. Reads
are sent as a query, which adds nothing to the history, or with the next batch.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec
from prometheus_client import Histogram
from temporalio.client import Client

from api.batching import AbstractBatcher, BatchItem, GrowingPausesUntilRetryTimeout
from api.tasks.lane_caches import IdleLaneTaskCache
from domain.tasks.messages import (
    BATCH_MAX_BYTES,
    BATCH_MAX_OPERATIONS,
    CreateOperation,
    HeartbeatOperation,
    HoldOperation,
    LaneBatch,
    LaneHead,
    OperationCode,
    OperationCodeText,
    SetOperation,
    Task,
    TaskFlags,
    TaskLookup,
    TaskSearch,
    TaskSearchReply,
    TaskTypeRules,
)
from domain.tasks.names import LaneName, split_type_id
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

WAIT_SECONDS = 0.002
"""How long a single request waits for others."""
TICK_SECONDS = 0.01
"""Large batches leave at multiples of this time: two batches that reach the engine together cost a third less each."""
IDLE_SECONDS = 0.06
"""After this time without a request, a batch no longer waits for the callers of the previous one."""
RETURN_SECONDS = 0.012
"""How long after its reply a lane waits for the callers to send their next request."""
LARGE_BATCH = 8
FRAME_BYTES = 1_000
"""Bytes of a batch around its operations."""

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
_encode = msgspec.json.Encoder().encode
_DECODERS = {
    kind: msgspec.json.Decoder(kind)
    for kind in (CreateOperation, HoldOperation, SetOperation, HeartbeatOperation, TaskTypeRules)
}


class LaneTimeout(EngineUnresponsive):
    """No lane answered in time; the request may be repeated."""


@dataclass(frozen=True, slots=True)
class CancelOperation:
    """Cancel a task."""

    key: str


@dataclass(frozen=True, slots=True)
class ReadTaskOperation:
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
        self._idle_lanes = IdleLaneTaskCache(self._read_history_position_with_retries, self.search_tasks)
        self._sender = uuid.uuid4().hex
        self._numbers = itertools.count(1)

    async def create_task(self, lane: LaneName, rules: TaskTypeRules, task: CreateOperation) -> OperationCodeText:
        """Create a task; return the `OperationCode` once the result is durable."""
        known = self._batchers.get(lane)
        if known is not None and known.is_full and is_create_without_chosen_id(task):
            return OperationCode.FULL
        code: str = await self._submit_to_lane_batcher(lane, task, rules)
        return code

    def begin_hold(self, lane: LaneName, rules: TaskTypeRules, hold: HoldOperation) -> asyncio.Future[list[Task]]:
        """Return the future due tasks of a hold."""
        return self._submit_to_lane_batcher(lane, hold, rules)

    async def change_task(
        self, lane: LaneName, rules: TaskTypeRules, operation: SetOperation | HeartbeatOperation | CancelOperation
    ) -> OperationCodeText:
        """Set, renew or cancel a task; return the `OperationCode` once the result is durable."""
        code: str = await self._submit_to_lane_batcher(lane, operation, rules)
        return code

    async def read_task(self, lane: LaneName, key: str) -> Task | None:
        """Read a task; None if it is not in the lane."""
        task: Task | None = await self._submit_to_lane_batcher(lane, ReadTaskOperation(key))
        return task

    async def send_rules_and_wait_until_applied(self, lane: LaneName, rules: TaskTypeRules) -> None:
        """Return when a lane applies these rules or newer ones."""
        await self._submit_to_lane_batcher(lane, rules, rules)

    async def search_tasks(self, lane: LaneName, search: TaskSearch) -> TaskSearchReply:
        """Return the live tasks of a lane that match."""
        reply = await self._retry_while_busy(lambda: handle.search_tasks(self._engine, lane, search))
        self._handle_head(lane, reply.head)
        return reply

    async def read_head(self, lane: LaneName) -> LaneHead:
        """Read the head of a lane."""
        reply = await self._retry_while_busy(lambda: handle.look_up_tasks(self._engine, lane, TaskLookup(keys=[])))
        self._handle_head(lane, reply.head)
        return reply.head

    def _submit_to_lane_batcher(
        self, name: LaneName, operation: Any, rules: TaskTypeRules | None = None
    ) -> asyncio.Future[Any]:
        lane = self._batchers.get(name)
        if lane is None:
            lane = LaneBatcher(
                name, self._send_batch, self._compute_batch_interval_seconds, self._mark_lane_idle_and_limit_batchers
            )
            self._batchers[name] = lane
        if rules is not None and rules.version > max(lane.version, lane.rules.version if lane.rules else 0):
            lane.rules = rules
        answer = lane.submit(operation, validate_and_measure_operation(operation))
        self._active.add(name)
        return answer

    def _mark_lane_idle_and_limit_batchers(self, name: LaneName) -> None:
        self._active.discard(name)
        if len(self._batchers) > LANES_MAX:
            self._batchers = {name: each for name, each in self._batchers.items() if each.sending}

    def _compute_batch_interval_seconds(self, lane: LaneBatcher) -> float:
        busy = sum(not self._idle_lanes.is_cached(name) for name in self._active)
        interval = INTERVAL_SECONDS * (CROWD_FACTOR if lane.last_size >= CROWD else 1)
        return min(interval * max(1.0, busy / CONCURRENT_LANES), INTERVAL_MAX_SECONDS)

    async def _send_batch(self, lane: LaneBatcher, requests: Requests) -> None:
        BATCH_SIZES.labels(*split_type_id(lane.type)).observe(len(requests))
        by_kind: dict[type, Requests] = defaultdict(list)
        for request in requests:
            by_kind[type(request.value)].append(request)
        if by_kind.keys() == {ReadTaskOperation}:
            await self._answer_reads_from_cache_or_lane(lane, requests)
        else:
            await self._send_operations_as_one_update(lane, by_kind)

    async def _answer_reads_from_cache_or_lane(self, lane: LaneBatcher, requests: Requests) -> None:
        keys = [request.value.key for request in requests]
        tasks = await self._idle_lanes.get_current_tasks(lane.name)
        if tasks is not None:
            _resolve_in_order_and_list_unanswered(requests, [tasks.get(key) for key in keys])
            return
        reply = await self._retry_while_busy(
            lambda: handle.look_up_tasks(self._engine, lane.name, TaskLookup(keys=keys))
        )
        self._handle_head(lane.name, reply.head)
        self._idle_lanes.count_read_of_idle_lane(lane.name, reply.head.number)
        lane.put_back_at_front(_resolve_in_order_and_list_unanswered(requests, reply.tasks))

    async def _send_operations_as_one_update(self, lane: LaneBatcher, by_kind: dict[type, Requests]) -> None:
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
            reads=[request.value.key for request in by_kind[ReadTaskOperation]],
            rules=lane.rules,
        )
        reply = await self._retry_while_busy(lambda: handle.apply_batch(self._engine, lane.name, batch))
        if reply.late:
            raise LaneTimeout(f"a batch for {lane.type}/{lane.pos} arrived after a later one")
        lane.version = max(lane.version, reply.version)
        if reply.head.full and not lane.is_full:
            lane.mark_full_and_answer_waiting_creates()
        if lane.rules and lane.rules.version <= lane.version:
            lane.rules = None
        self._handle_head(lane.name, reply.head)
        _resolve_in_order_and_list_unanswered(by_kind[CreateOperation], reply.creates)
        _resolve_in_order_and_list_unanswered(by_kind[SetOperation], reply.sets)
        _resolve_in_order_and_list_unanswered(by_kind[HeartbeatOperation], reply.heartbeats)
        _resolve_in_order_and_list_unanswered(by_kind[CancelOperation], reply.cancels)
        _resolve_in_order_and_list_unanswered(by_kind[TaskTypeRules], [reply.version] * len(by_kind[TaskTypeRules]))
        lane.put_back_at_front(
            _resolve_in_order_and_list_unanswered(by_kind[HoldOperation], reply.holds)
            + _resolve_in_order_and_list_unanswered(by_kind[ReadTaskOperation], reply.reads)
        )

    async def _read_history_position_with_retries(self, lane: LaneName) -> handle.HistoryPosition:
        return await self._retry_while_busy(lambda: handle.read_history_position(self._engine, lane))

    async def _retry_while_busy(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """Repeat a call while the lane is busy or does not answer."""
        retry_window = GrowingPausesUntilRetryTimeout("a lane", LaneTimeout)
        while True:
            try:
                return await call()
            except LaneBusy as error:
                await retry_window.pause_before_retry_or_raise(error, is_short=True)
            except LaneUnresponsive as error:
                _log.warning("lane_call_retried", error=str(error))
                await retry_window.pause_before_retry_or_raise(error)


def _resolve_in_order_and_list_unanswered(requests: Requests, answers: Sequence[object]) -> Requests:
    """Answer requests in order; return those without an answer, because the reply was full."""
    for request, answer in zip(requests, answers, strict=False):
        request.resolve(answer)
    return requests[len(answers) :]


class LaneBatcher(AbstractBatcher[Any, Any]):
    """Requests for one lane that wait for the next batch, and measurements of the previous ones.

    Args:
        send: Sends a batch to the lane and answers its requests.
        get_interval: Returns the seconds between two large batches.
        handle_idle: Called when no request is waiting any more.
    """

    def __init__(
        self,
        name: LaneName,
        send: Callable[[LaneBatcher, list[BatchItem[Any, Any]]], Awaitable[None]],
        get_interval: Callable[[LaneBatcher], float],
        handle_idle: Callable[[LaneName], None],
    ) -> None:
        super().__init__()
        self.name = name
        self.type, self.pos = name
        self._send = send
        self._get_interval = get_interval
        self._mark_lane_idle_and_limit_batchers = handle_idle
        self.sent_at = self.answered_at = 0.0
        self.last_size = self.arrived = 0
        self.is_full = False
        self.was_idle = False
        """Whether no batch was waiting or under way when the next one's first request came."""
        self.rules: TaskTypeRules | None = None
        self.version = 0

    def submit(self, value: Any, weight: int = 1) -> asyncio.Future[Any]:
        """See base class."""
        self.arrived += 1
        self.was_idle = self.was_idle or self.sending is None
        return super().submit(value, weight)

    def make_fit_check(self) -> Callable[[BatchItem[Any, Any]], bool]:
        """See base class. A batch is limited to one message."""
        count, bytes_left = 0, BATCH_MAX_BYTES - FRAME_BYTES

        def count_and_check_operations_and_bytes(request: BatchItem[Any, Any]) -> bool:
            nonlocal count, bytes_left
            count, bytes_left = count + 1, bytes_left - request.weight
            return count <= BATCH_MAX_OPERATIONS and bytes_left >= 0

        return count_and_check_operations_and_bytes

    def take_batch(self) -> list[BatchItem[Any, Any]]:
        """See base class."""
        self.arrived = 0
        batch = super().take_batch()
        self.last_size = len(batch)
        self.sent_at = time.monotonic()
        self.clear_ready_unless_full()
        return batch

    def mark_full_and_answer_waiting_creates(self) -> None:
        """Record that the lane accepts no more tasks, and answer the waiting creates with that."""
        self.is_full = True
        waiting, self.waiting, self.weight = self.waiting, deque(), 0
        for request in waiting:
            if not is_create_without_chosen_id(request.value):
                self.waiting.append(request)
                self.weight += request.weight
            else:
                request.resolve(OperationCode.FULL)

    async def wait_for_batch(self) -> None:
        """See base class. After a large batch it waits longer, but not longer than until all its callers are back.

        A request that finds an idle lane does not wait: what comes while it is under way is the next batch.
        """
        was_idle, self.was_idle = self.was_idle, False
        interval = self._get_interval(self)
        if time.monotonic() - self.answered_at > IDLE_SECONDS:
            self.last_size = 0
        if was_idle and self.last_size <= 1:
            return
        if self.last_size < LARGE_BATCH:
            due = self.sent_at + interval * self.last_size / LARGE_BATCH
            await self.wait_until_ready(max(WAIT_SECONDS, due - time.monotonic()))
            return
        left = max(WAIT_SECONDS, self.answered_at + RETURN_SECONDS - time.monotonic())
        if await self.wait_until_ready(compute_tick_delay(time.time(), left, interval, self.pos * TICK_SECONDS)):
            await asyncio.sleep(compute_tick_delay(time.time(), 0.0, TICK_SECONDS))

    async def send_batch(self, batch: list[BatchItem[Any, Any]]) -> None:
        """See base class."""
        try:
            await self._send(self, batch)
        finally:
            self.answered_at = time.monotonic()
            self.arrived = 0
            self.clear_ready_unless_full()

    def on_idle(self) -> None:
        """See base class."""
        self._mark_lane_idle_and_limit_batchers(self.name)

    def is_ready(self) -> bool:
        """See base class. A batch leaves when it is full, or when all callers of the previous one are back."""
        is_full = len(self.waiting) >= BATCH_MAX_OPERATIONS or self.weight >= BATCH_MAX_BYTES - FRAME_BYTES
        return is_full or self.arrived >= self.last_size > 1


def validate_and_measure_operation(operation: Any) -> int:
    """Return the encoded size of an operation. One that the lane could not decode must not fail the whole batch.

    Raises:
        msgspec.ValidationError: The lane could not decode it.
    """
    encoded = _encode(operation)
    if decoder := _DECODERS.get(type(operation)):
        decoder.decode(encoded)
    return len(encoded)


def is_create_without_chosen_id(operation: object) -> bool:
    """Return whether an operation creates a task that the lane cannot have yet."""
    return isinstance(operation, CreateOperation) and not operation.flags & TaskFlags.KEYED


def compute_tick_delay(now: float, seconds: float, interval: float, offset: float = 0.0) -> float:
    """Return the delay of at least `seconds` that ends at a multiple of `interval`, shifted by `offset`."""
    return seconds + (offset - now - seconds) % interval

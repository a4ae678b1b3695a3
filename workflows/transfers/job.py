"""The workflow of a job: take who joins while its window is open, write them down, ship every shard, end in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as StepTimeout

with workflow.unsafe.imports_passed_through():
    from activities.transfers.activities import TransferActivities
    from domain.transfers import names
    from domain.transfers.activity_models import (
        Berth,
        CancelOrder,
        FetchOrder,
        FreezeOrder,
        JobStatus,
        LookOrder,
        SettleOrder,
        ShardPlace,
        ShipOrder,
    )
    from domain.transfers.joining import JobOrder, JoinGroup, JoinReply, Roll, batches
    from domain.transfers.models import End, Reason, State
    from infra import temporal
    from infra.interceptors import FAULT_TYPE
    from workflows.activity_calls import HEARTBEAT, PROMPT_ACTIVITY, SHIPPING, UNTIL_DONE, is_error_type, read_fault

Argument = TypeVar("Argument")
Result = TypeVar("Result")


FREEZE_TARGETS_MAX = 2_000
"""Half a megabyte; and the first shards are on their way before the last are written down."""
LOOK_TARGETS_MAX = 1_000
"""So many hosts GSE is asked about in one call."""
SLACK_SECONDS = 30.0
"""How long after the deadline a step may still be busy with ending its targets."""

_NO_HOST = End(
    state=State.TIMEOUT,
    reason=Reason.DEADLINE,
    message="The job's time was over and no worker had seen it to its end; if GSE was asked to send it, it may still "
    "arrive. See whether workers run and what they log, then ask again.",
)


@workflow.defn(name=names.JOB_WORKFLOW)
class TransferJob:
    """One file in one time window, for all who asked for it."""

    @workflow.init
    def __init__(self, order: JobOrder) -> None:
        self._order = order
        self._roll = Roll(order)
        self._berths = Berths(order)
        self._status = JobStatus()
        self._is_closed = False

    @workflow.run
    async def run(self, order: JobOrder) -> JobStatus:
        """Read this as the story."""
        if order.retry is None:
            await self._not_without_the_cancelled(self._collect())
        self._is_closed = True
        if self._targets:
            shipping = asyncio.create_task(self._ship_all())
            while not shipping.done():
                await self._not_without_the_cancelled(asyncio.shield(shipping))
            shipping.result()
            self._status.ended = await self._step(TransferActivities.finish, order)
            self._tell("done", self._status.ended.state)
        return self.status()

    @workflow.update(name=names.JOIN)
    def join(self, group: JoinGroup) -> JoinReply:
        """Let a group in, if the window is open and there is room; else it goes into the next window."""
        if self._is_closed or workflow.now() >= self._order.closes_at:
            return JoinReply(is_open=False, groups=self._roll.groups, targets=self._roll.targets)
        return self._roll.take(group, workflow.now())

    @workflow.signal
    def close_to(self, project_id: str) -> None:
        """Take no more targets of a project that has cancelled the job."""
        self._roll.close_to(project_id)

    @workflow.query
    def status(self) -> JobStatus:
        """Where the job stands; the states of its targets stand in the database."""
        return self._status.model_copy(update={"groups": self._roll.groups, "targets": self._targets})

    @workflow.query
    def joined(self, project_id: str) -> int:
        """How many targets a project has here."""
        retry = self._order.retry
        if retry is None:
            return self._roll.targets_of(project_id)
        return retry.targets if retry.project_id == project_id else 0

    @property
    def _targets(self) -> int:
        return self._order.retry.targets if self._order.retry else self._roll.targets

    @property
    def _projects(self) -> list[str]:
        return [self._order.retry.project_id] if self._order.retry else self._roll.projects

    async def _collect(self) -> None:
        """Until the window ends, which is at a fixed time; files are fetched meanwhile."""
        found: set[str] = set()
        while (left := (self._order.closes_at - workflow.now()).total_seconds()) > 0:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: len(self._roll.signatures) > len(found), timeout=left, timeout_summary="window"
                )
            for signature in self._roll.signatures:
                found.add(signature)
                self._berths.find(signature)

    async def _ship_all(self) -> None:
        """Write the shards down, some at a time, and ship each as soon as it is written down."""
        under_way: dict[int, asyncio.Task[None]] = {}
        async for places in self._freeze_all():
            for some in batches(places, LOOK_TARGETS_MAX, lambda place: place.targets):
                look = asyncio.create_task(self._look([place.number for place in some]))
                under_way |= {place.number: asyncio.create_task(self._ship(place, look)) for place in some}
        if not under_way:
            return  # another retry was quicker
        left = (self._order.deadline_at - workflow.now()).total_seconds()
        patience = max(0.0, left) + self._order.terminate_wait_seconds + SLACK_SECONDS
        _, late = await workflow.wait(under_way.values(), timeout=patience)
        if late:
            for task in late:
                task.cancel()
            await self._settle([number for number, task in under_way.items() if task in late], _NO_HOST)
        for task in under_way.values():
            if task not in late:
                task.result()

    async def _freeze_all(self) -> AsyncIterator[list[ShardPlace]]:
        if self._order.retry:
            self._tell("shipping", State.RUNNING)
            places = await self._step(TransferActivities.freeze_retry, self._order)
            self._status.shards = len(places)
            yield places
            return
        shards = self._roll.shards()
        self._status.shards = len(shards)
        self._tell("shipping", State.RUNNING)
        for batch in batches(shards, FREEZE_TARGETS_MAX, lambda shard: len(shard.targets)):
            await self._step(TransferActivities.freeze, FreezeOrder(job=self._order, shards=batch))
            yield [ShardPlace.of(shard) for shard in batch]

    async def _look(self, numbers: list[int]) -> None:
        """Ask once, before anything is sent, whether the agents are there."""
        await self._step(TransferActivities.look, LookOrder(job=self._order, numbers=numbers))

    async def _ship(self, shard: ShardPlace, look: asyncio.Task[None]) -> None:
        """From the host that has the file; from another when that one is gone."""
        # Several shards wait for one look: if one of them is given up, the look is, too, and so are they all.
        await look
        try:
            while not await self._is_shipped(shard.signature, shard.number):
                pass
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            await self._settle([shard.number], _without_file(error))
        self._status.shipped += 1

    async def _is_shipped(self, signature: str, number: int) -> bool:
        """Whether a host saw the shard to its end, and was not lost over it."""
        berth = await asyncio.shield(self._berths.find(signature))
        try:
            await workflow.execute_activity_method(
                TransferActivities.ship,
                ShipOrder(job=self._order, signature=signature, number=number, fetched_at=berth.fetched_at),
                task_queue=berth.queue,
                schedule_to_start_timeout=timedelta(seconds=self._order.host_wait_seconds),
                **SHIPPING,
                summary=f"shard {number}",
            )
        except ActivityError as error:
            if _is_host_lost(error) and workflow.now() < self._order.deadline_at:
                self._berths.lose(signature, berth)
                return False
            raise
        return True

    async def _settle(self, numbers: list[int], end: End) -> None:
        await self._step(TransferActivities.settle, SettleOrder(job=self._order, numbers=numbers, end=end))

    async def _not_without_the_cancelled(self, waiting: Awaitable[None]) -> None:
        """Wait. A workflow that is cancelled from outside still ends in order: all its targets are cancelled."""
        try:
            await waiting
        except asyncio.CancelledError:
            self._is_closed = True
            cancel = CancelOrder(job=self._order, project_ids=self._projects)
            await self._step(TransferActivities.cancel, cancel)

    async def _step(
        self, method: Callable[[TransferActivities, Argument], Awaitable[Result]], argument: Argument
    ) -> Result:
        return await workflow.execute_activity_method(method, argument, **PROMPT_ACTIVITY)

    def _tell(self, phase: str, state: State) -> None:
        """Show a change of phase in the search attributes and the Web UI."""
        self._status.phase = phase
        workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        workflow.set_current_details(
            f"**{phase}**: {self._targets:,} targets in {self._status.shards} shards, {self._order.file.path}"
        )


def _is_host_lost(error: ActivityError) -> bool:
    """Whether nobody on the host took the step: a worker that dies over it has its siblings there go on."""
    return isinstance(error.cause, StepTimeout) and error.cause.type is TimeoutType.SCHEDULE_TO_START


def _without_file(error: ActivityError) -> End:
    """How the targets of a shard end whose file no host could get: a fault is one at once, else the time ran out."""
    if is_error_type(error, FAULT_TYPE):
        return End(state=State.FAILED, reason=Reason.FILE_UNAVAILABLE, message=read_fault(error).sentence)
    last = error.cause.cause if isinstance(error.cause, StepTimeout) else error.cause
    message = f"{_NO_HOST.message} At last: {last}" if last else _NO_HOST.message
    return End(state=State.TIMEOUT, reason=Reason.FILE_UNAVAILABLE, message=message)


class Berths:
    """Where the files of one job lie. Each is fetched once, however many shards need it."""

    def __init__(self, order: JobOrder) -> None:
        self._order = order
        self._searches: dict[str, asyncio.Task[Berth]] = {}
        self._found: dict[str, Berth] = {}

    def find(self, signature: str) -> asyncio.Task[Berth]:
        """The host that has, or is fetching, the file with this content."""
        if signature not in self._searches:
            search = self._searches[signature] = asyncio.create_task(self._fetch(signature))
            search.add_done_callback(_heard)
        return self._searches[signature]

    def lose(self, signature: str, berth: Berth) -> None:
        """The host is gone: who asks next has another fetch the file. Those who notice later change nothing."""
        if self._found.get(signature) is berth:
            del self._found[signature], self._searches[signature]

    async def _fetch(self, signature: str) -> Berth:
        self._found[signature] = await workflow.execute_activity_method(
            TransferActivities.fetch,
            FetchOrder(file=self._order.file, signature=signature),
            task_queue=names.FILE_QUEUE,
            schedule_to_close_timeout=max(timedelta(seconds=1), self._order.deadline_at - workflow.now()),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=UNTIL_DONE,
            summary=f"fetch {signature[:12]}",
        )
        return self._found[signature]


def _heard(search: asyncio.Task[Berth]) -> None:
    """A file that could not be fetched is told to whoever needs it; that nobody does any more is no fault."""
    if not search.cancelled():
        search.exception()

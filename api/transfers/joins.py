"""Joining, in groups: requests for one file wait a few milliseconds for each other and are handed over together.

One group of a file is under way at a time. Its id makes it safe to hand it over again when nobody knows whether it
arrived; a window that has ended answers so, and the group goes into the next one.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from temporalio.client import WithStartWorkflowOperation, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateLost
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from domain.transfers import ids, joining
from domain.transfers.ids import Job
from domain.transfers.joining import GROUP_TARGETS_MAX, GROUPS_MAX, JobOrder, JoinGroup, JoinReply, Lot
from domain.transfers.request import Consignment, File
from domain.transfers.states import State
from domain.transfers.steps import JobStatus
from infra import log, temporal
from infra.services import Services
from workflows import transfers
from workflows.transfers import TransferJob
from workflows.transfers.job import ROOM

ANSWER_TIMEOUT = timedelta(seconds=5)
TASK_TIMEOUT = timedelta(seconds=10)
"""Longer than the house's: who takes up a full job of a dead worker replays 1,500 groups, for 3 s of a processor."""
PATIENCE_SECONDS = 30.0
"""How long a group is handed over again and again before its callers are told to come later."""
AGAIN_SECONDS = 0.05
WINDOWS_MAX = 40
"""So many windows ahead a group may be sent on; if all are closed, a clock is wrong."""

_OUTAGES = (
    RPCStatusCode.UNAVAILABLE,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.ABORTED,
    RPCStatusCode.INTERNAL,
    RPCStatusCode.UNKNOWN,
)

Handle: TypeAlias = WorkflowHandle[TransferJob, JobStatus]

_log = log.get(__name__)


class NotJoined(ConnectionError):
    """No group could be handed over in time; the caller may ask again."""


@dataclass(slots=True)
class _Waiting:
    """One request: what it wants, and the number of the window that it gets into."""

    lot: Lot
    bucket: asyncio.Future[int]


@dataclass(slots=True)
class _Lane:
    """The requests for one file."""

    file: File
    waiting: deque[_Waiting] = field(default_factory=deque)
    full: asyncio.Event = field(default_factory=asyncio.Event)
    targets: int = 0
    bucket: int = 0
    """The first window that is not known to be closed."""
    groups: int = 0
    """How many groups that window has taken, as it said last; 0 where it was not asked yet."""
    crowd: int = 0
    """How many requests were in the last group."""
    serving: asyncio.Task[None] | None = None

    def put(self, waiting: _Waiting) -> None:
        self.waiting.append(waiting)
        self.targets += len(waiting.lot.targets)
        if self.targets >= GROUP_TARGETS_MAX:
            self.full.set()

    def take(self) -> list[_Waiting]:
        """The next group: in order, and not more than one message carries."""
        group: list[_Waiting] = []
        room = GROUP_TARGETS_MAX
        while self.waiting and (not group or len(self.waiting[0].lot.targets) <= room):
            waiting = self.waiting.popleft()
            self.targets -= len(waiting.lot.targets)
            room -= len(waiting.lot.targets)
            if not waiting.bucket.done():
                group.append(waiting)
        if self.targets < GROUP_TARGETS_MAX:
            self.full.clear()
        self.crowd = len(group)
        return group


class Joins:
    """Hands requests over to the jobs of their files."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._settings = services.settings.transfers
        self._lanes: dict[File, _Lane] = {}

    async def join(self, file: File, lot: Lot) -> int:
        """Have targets brought the file; returns the number of their window once that is durable.

        Raises:
            NotJoined: The engine or its workers did not answer in time.
        """
        lane = self._lanes.get(file)
        if lane is None:
            lane = self._lanes[file] = _Lane(file)
        waiting = _Waiting(lot, asyncio.get_running_loop().create_future())
        lane.put(waiting)
        if lane.serving is None:
            lane.serving = asyncio.create_task(self._serve(lane))
        return await waiting.bucket

    async def _serve(self, lane: _Lane) -> None:
        while lane.waiting:
            await self._gather(lane)
            group = lane.take()
            try:
                bucket = await self._hand_over(lane, _grouped(group))
            except Exception as error:  # noqa: BLE001 - every caller is told, whatever it was
                for waiting in group:
                    if not waiting.bucket.done():
                        waiting.bucket.set_exception(error)
            else:
                for waiting in group:
                    if not waiting.bucket.done():
                        waiting.bucket.set_result(bucket)
        del self._lanes[lane.file]

    async def _gather(self, lane: _Lane) -> None:
        """Let requests come together, at a pace that the groups a window takes last as long as it does."""
        left = ids.closes_at(max(lane.bucket, self._bucket_now()), self._settings.window_seconds) - time.time()
        pause = joining.pause_seconds(lane.groups, GROUPS_MAX, left, lane.crowd)
        try:
            async with asyncio.timeout(pause):
                await lane.full.wait()
        except TimeoutError:
            return

    async def _hand_over(self, lane: _Lane, group: JoinGroup) -> int:
        if not group.lots:
            return lane.bucket
        until = time.monotonic() + PATIENCE_SECONDS
        group_id = uuid.uuid4().hex
        if (now := self._bucket_now()) > lane.bucket:
            lane.bucket, lane.groups = now, 0
        for _ in range(WINDOWS_MAX):
            reply = await self._answer(lane, group, group_id, until)
            if reply and reply.joined:
                lane.groups = reply.groups
                return lane.bucket
            lane.bucket, lane.groups = lane.bucket + 1, 0
        raise NotJoined(f"{WINDOWS_MAX} windows in a row are closed; compare the clocks of API and engine")

    async def _answer(self, lane: _Lane, group: JoinGroup, group_id: str, until: float) -> JoinReply | None:
        """What the job says, asked until it says something; None if it is over."""
        while True:
            try:
                return await self._ask(lane, group, group_id)
            except (RPCError, UpdateLost) as error:
                if isinstance(error, RPCError) and error.status not in _OUTAGES:
                    raise
                if time.monotonic() >= until:
                    raise NotJoined(f"a group could not be handed over: {error}") from error
                _log.warning("join_repeated", error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _ask(self, lane: _Lane, group: JoinGroup, group_id: str) -> JoinReply | None:
        try:
            if lane.groups:
                handle: Handle = self._engine.get_workflow_handle(str(Job(lane.file, lane.bucket)))
                return await handle.execute_update(TransferJob.join, group, id=group_id, rpc_timeout=ANSWER_TIMEOUT)
            return await self._engine.execute_update_with_start_workflow(
                TransferJob.join,
                group,
                start_workflow_operation=self._start(lane),
                id=group_id,
                rpc_timeout=ANSWER_TIMEOUT,
            )
        except (WorkflowAlreadyStartedError, WorkflowUpdateFailedError):
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    def _start(self, lane: _Lane) -> WithStartWorkflowOperation[TransferJob, JobStatus]:
        """The job's workflow, unless it runs already; one that is over is not started again."""
        order = self._order(Job(lane.file, lane.bucket))
        attributes = [SearchAttributePair(temporal.ROOM, ROOM), SearchAttributePair(temporal.STATE, State.PENDING)]
        return WithStartWorkflowOperation(
            TransferJob.run,
            order,
            id=order.job_id,
            task_queue=transfers.QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            task_timeout=TASK_TIMEOUT,
            search_attributes=TypedSearchAttributes(attributes),
            static_summary=f"{lane.file.path} to many hosts"[:200],
        )

    def _order(self, job: Job) -> JobOrder:
        settings = self._settings
        closes_at = datetime.fromtimestamp(ids.closes_at(job.bucket, settings.window_seconds), UTC)
        return JobOrder(
            job_id=str(job),
            file=job.file,
            closes_at=closes_at,
            deadline_at=closes_at + timedelta(seconds=settings.timeout_seconds),
            terminate_wait_seconds=settings.terminate_wait_seconds,
            host_wait_seconds=settings.host_wait_seconds,
            shard_targets=settings.shard_targets,
        )

    def _bucket_now(self) -> int:
        return ids.bucket_at(time.time(), self._settings.window_seconds)


def _grouped(group: list[_Waiting]) -> JoinGroup:
    """The requests of a group, with those that want the same put together."""
    lots: dict[Consignment, Lot] = {}
    for waiting in group:
        wanted = waiting.lot
        lot = lots.get(wanted.consignment)
        if lot is None:
            lot = lots[wanted.consignment] = Lot(consignment=wanted.consignment, file_name=wanted.file_name, targets=[])
        lot.targets.extend(wanted.targets)
    return JoinGroup(lots=list(lots.values()))

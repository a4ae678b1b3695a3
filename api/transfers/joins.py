"""Joining, in groups: requests for one file wait a few milliseconds for each other and are handed over together.

One group of a file is under way at a time. Its id makes it safe to hand it over again when nobody knows whether it
arrived; a window that has ended answers so, and the group goes into the next one. What a window has no room for goes
into the next one alone.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from temporalio.client import WorkflowUpdateFailedError
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateLost
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from api.batching import Batcher, BatchItem, RetryWindow
from api.http.problems import RequestRejected
from domain.faults import Exhausted
from domain.transfers import joining, names
from domain.transfers.joining import (
    CONSIGNMENTS_MAX,
    GROUP_TARGETS_MAX,
    GROUPS_MAX,
    TARGETS_MAX,
    JobOrder,
    JoinGroup,
    JoinReply,
    Lot,
    Retry,
)
from domain.transfers.models import Consignment, File
from domain.transfers.names import Job
from infra import log, outages
from infra.temporal import POLLED_WITHIN, WORKFLOW_QUEUE, describe_queue, list_workers
from services.services import Services
from workflows.transfers import handle as transfers_handle

ANSWER_TIMEOUT = timedelta(seconds=5)
WINDOWS_MAX = 40
"""So many windows ahead a group may be sent on; if all are closed, a clock is wrong."""
FULL_WINDOWS_MAX = 4
"""So many windows may have no room for a request; then it is refused."""

_log = log.get(__name__)


WINDOW_FULL = "window_full"
NO_WORKERS = "no_workers"


class NotJoined(outages.EngineUnresponsive):
    """No group could be handed over in time; the caller may ask again."""


class _Lane(Batcher[Lot, int]):
    """The requests for one file; each is answered with the number of the window that it gets into.

    Args:
        pause: How long requests wait for each other before the next group leaves.
        hand_over: Hands a group over, and answers its requests.
        rest: Is told when nothing waits any more.
    """

    def __init__(
        self,
        file: File,
        pause: Callable[[_Lane], float],
        hand_over: Callable[[_Lane, list[BatchItem[Lot, int]]], Awaitable[None]],
        rest: Callable[[_Lane], None],
    ) -> None:
        super().__init__()
        self.file = file
        self._pause = pause
        self._hand_over = hand_over
        self._rest = rest
        # The first window that is not known to be closed, or to take no more groups.
        self.bucket = 0
        # How many groups that window has taken, as it said last; 0 where it was not asked yet.
        self.groups = 0
        # How many requests were in the last group.
        self.crowd = 0

    def make_fit_check(self) -> Callable[[BatchItem[Lot, int]], bool]:
        """See base class. A group is not more than one message carries."""
        consignments: set[Consignment] = set()
        targets = 0

        def has_room(request: BatchItem[Lot, int]) -> bool:
            nonlocal targets
            targets += request.weight
            consignments.add(request.value.consignment)
            return targets <= GROUP_TARGETS_MAX and len(consignments) <= CONSIGNMENTS_MAX

        return has_room

    def is_ready(self) -> bool:
        """See base class."""
        return self.weight >= GROUP_TARGETS_MAX

    async def wait_for_batch(self) -> None:
        """See base class."""
        await self.wait_until_ready(self._pause(self))

    async def send_batch(self, batch: list[BatchItem[Lot, int]]) -> None:
        """See base class."""
        self.crowd = len(batch)
        await self._hand_over(self, batch)

    def on_idle(self) -> None:
        """See base class."""
        self._rest(self)


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
            Refusal: There are no workers.
            Exhausted: No window near has room for it.
        """
        lane = self._lanes.get(file)
        if lane is None:
            lane = self._lanes[file] = _Lane(file, self._pause_seconds, self._join_all, self._rest)
        return await lane.submit(lot, len(lot.targets))

    def _rest(self, lane: _Lane) -> None:
        del self._lanes[lane.file]

    def _pause_seconds(self, lane: _Lane) -> float:
        """How long requests come together, so that the groups that a window takes last as long as it does."""
        left = names.closes_at(max(lane.bucket, self._bucket_now()), self._settings.window_seconds) - time.time()
        return joining.pause_seconds(lane.groups, GROUPS_MAX, left, lane.crowd)

    async def _join_all(self, lane: _Lane, requests: list[BatchItem[Lot, int]]) -> None:
        """Hand a group over; tell each request its window, or that none near has room for it."""
        lots = _grouped([request.value for request in requests])
        found = dict(zip(lots, await self._hand_over(lane, list(lots.values())), strict=True))
        for request in requests:
            bucket = found[request.value.consignment]
            if bucket is None:
                request.reject(_full(self._settings.window_seconds))
            else:
                request.resolve(bucket)

    async def _hand_over(self, lane: _Lane, lots: list[Lot]) -> list[int | None]:
        """Hand lots over to the first windows that take them; returns the window of each, None where none near did."""
        buckets: list[int | None] = [None] * len(lots)
        left = list(range(len(lots)))
        patience = RetryWindow("the job of a file", NotJoined)
        group_id = uuid.uuid4().hex
        if (now := self._bucket_now()) > lane.bucket:
            lane.bucket, lane.groups = now, 0
        bucket, closed, full = lane.bucket, 0, 0
        while left and full < FULL_WINDOWS_MAX:
            group = JoinGroup(lots=[lots[place] for place in left])
            reply = await self._answer(lane, bucket, group, group_id, patience)
            if reply is None or not reply.is_open:
                closed += 1
                if closed == WINDOWS_MAX:
                    raise NotJoined(f"{WINDOWS_MAX} windows in a row are closed; compare the clocks of API and engine")
            else:
                refused = [left[place] for place in reply.refused]
                for place in set(left) - set(refused):
                    buckets[place] = bucket
                left, full = refused, full + 1
            self._learn(lane, bucket, reply)
            bucket += 1
        return buckets

    def _learn(self, lane: _Lane, bucket: int, reply: JoinReply | None) -> None:
        """A window that takes nobody any more is not asked again; one that only some were too many for, is."""
        if bucket != lane.bucket:
            return
        if reply is None or not reply.is_open or reply.groups >= GROUPS_MAX:
            lane.bucket, lane.groups = bucket + 1, 0
        else:
            lane.groups = reply.groups

    async def _answer(
        self, lane: _Lane, bucket: int, group: JoinGroup, group_id: str, patience: RetryWindow
    ) -> JoinReply | None:
        """What the job says, asked until it says something; None if it is over."""
        while True:
            try:
                return await self._ask(lane, bucket, group, group_id)
            except (RPCError, UpdateLost) as error:
                if not outages.is_outage(error):
                    raise
                if isinstance(error, UpdateLost) and not await self._has_workers():
                    raise _without_workers() from error
                _log.warning("join_repeated", error=str(error))
                await patience.wait(error)

    async def _has_workers(self) -> bool:
        """Whether a worker has asked for jobs of late; one that is being replaced is waited for."""
        try:
            return bool(list_workers(await describe_queue(self._engine, names.QUEUE, WORKFLOW_QUEUE)))
        except RPCError:
            return True

    async def _ask(self, lane: _Lane, bucket: int, group: JoinGroup, group_id: str) -> JoinReply | None:
        try:
            if lane.groups and bucket == lane.bucket:
                return await transfers_handle.join(
                    self._engine, str(Job(lane.file, bucket)), group, group_id, ANSWER_TIMEOUT
                )
            order = self._order(Job(lane.file, bucket))
            return await transfers_handle.start_and_join(self._engine, order, group, group_id, ANSWER_TIMEOUT)
        except (WorkflowAlreadyStartedError, WorkflowUpdateFailedError):
            return None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def retry(self, job: Job, retry: Retry) -> bool:
        """Begin a job of targets that failed, at once; whether there was none of that name before."""
        order = self._order(job).model_copy(update={"retry": retry, **self._from_now()})
        return await transfers_handle.start_retry(self._engine, order)

    def _from_now(self) -> dict[str, datetime]:
        now = datetime.now(UTC)
        return {"closes_at": now, "deadline_at": now + timedelta(seconds=self._settings.timeout_seconds)}

    def _order(self, job: Job) -> JobOrder:
        settings = self._settings
        closes_at = datetime.fromtimestamp(names.closes_at(job.bucket, settings.window_seconds), UTC)
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
        return names.bucket_at(time.time(), self._settings.window_seconds)


def _without_workers() -> RequestRejected:
    minutes = round(POLLED_WITHIN.total_seconds() / 60)
    return RequestRejected(
        HTTPStatus.SERVICE_UNAVAILABLE,
        NO_WORKERS,
        f"This was not accepted: no worker has asked for transfers in the last {minutes} minutes.",
        f"Have one started (`haulage worker --queues {names.QUEUE}`), then ask again.",
    )


def _full(window_seconds: int) -> Exhausted:
    return Exhausted(
        WINDOW_FULL,
        f"The next {FULL_WINDOWS_MAX} windows of this file are full: a window takes {TARGETS_MAX:,} targets, and "
        f"{CONSIGNMENTS_MAX} different combinations of project, signature, target_user and target_file_dir.",
        f"Ask again in {window_seconds} s, or use fewer users and folders for one file.",
        retry_after_seconds=window_seconds,
    )


def _grouped(wanted: list[Lot]) -> dict[Consignment, Lot]:
    """The requests of a group, with those that want the same put together."""
    lots: dict[Consignment, Lot] = {}
    for each in wanted:
        lot = lots.get(each.consignment)
        if lot is None:
            lot = lots[each.consignment] = Lot(consignment=each.consignment, file_name=each.file_name, targets=[])
        lot.targets.extend(each.targets)
    return lots

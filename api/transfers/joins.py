"""Join requests to the jobs of their files in batches.

Requests for one file wait a few milliseconds for each other and join as one batch; one batch of a file is sent at a
time, and the next one waits for callers that send request after request. Its id makes it safe to send it again when the
answer is lost. If the window has closed, the batch goes to the next one, and so does each part of it that a full window
refuses.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError as UpdateLost
from temporalio.service import RPCError

from api.batching import AbstractBatcher, BatchItem, GrowingPausesUntilRetryTimeout
from api.http.problems import RequestRejected
from domain.faults import QuotaExhausted
from domain.transfers import joining, names
from domain.transfers.joining import (
    BATCH_TARGETS_MAX,
    BATCHES_MAX,
    JOIN_BYTES_MAX,
    PROJECT_SPECS_MAX,
    SHARDS_MAX,
    SPECS_MAX,
    TARGETS_MAX,
    FailedTargetsRetry,
    JoinBatch,
    JoinResult,
    TargetsWithSameSpec,
    TransferJobInput,
)
from domain.transfers.models import FileByBizAppAndPath, TransferSpec
from domain.transfers.names import TransferJobKey
from infra import log, metrics, outages
from infra.temporal import POLLED_WITHIN, WORKFLOW_QUEUE, describe_queue, list_polling_workers
from services.services import Services
from workflows.transfers import handle as transfers_handle
from workflows.transfers.handle import JobFull, JobOver

ANSWER_TIMEOUT = timedelta(seconds=5)
WINDOWS_MAX = 40
"""How many closed windows in a row a batch tries; if all are closed, a clock is wrong."""
IDLE_SECONDS = 1.0
"""For how long it is remembered which window a file's requests joined."""
FULL_WINDOWS_MAX = 4
"""How many windows may refuse a request before the caller gets an error."""
WINDOW_FULL = "window_full"
NO_WORKERS = "no_workers"

_log = log.get(__name__)


class JoinTimeout(outages.EngineUnresponsive):
    """The engine did not accept a batch in time; the caller may try again."""


class _JoinBatcher(AbstractBatcher[TargetsWithSameSpec, int]):
    """Batches the requests for one file; each is answered with the number of the window that it has joined.

    Args:
        compute_pause: Returns how long to gather requests for the next batch.
        join: Joins the requests of a batch, and answers each.
        on_idle: Called when no request is left.
    """

    def __init__(
        self,
        file: FileByBizAppAndPath,
        compute_pause: Callable[[_JoinBatcher], float],
        join: Callable[[_JoinBatcher, list[BatchItem[TargetsWithSameSpec, int]]], Awaitable[None]],
        on_idle: Callable[[_JoinBatcher], None],
    ) -> None:
        super().__init__()
        self.file = file
        self._compute_pause_before_batch = compute_pause
        self._join = join
        self._on_idle = on_idle
        # The first window that may still accept batches.
        self.window_number = 0
        # How many batches that window had accepted at its last answer; 0 before the first one.
        self.batches = 0
        # How many requests were in the last batch, when they were answered, and how many came since.
        self.requests_in_last_batch = 0
        self.answered_at = 0.0
        self.requests_since_answer = 0
        self.removal: asyncio.TimerHandle | None = None

    def submit(self, value: TargetsWithSameSpec, weight: int = 1) -> asyncio.Future[int]:
        """See base class."""
        self.requests_since_answer += 1
        return super().submit(value, weight)

    def make_fit_check(self) -> Callable[[BatchItem[TargetsWithSameSpec, int]], bool]:
        """See base class. A batch has as many targets and specs as one message carries."""
        specs: set[TransferSpec] = set()
        targets = 0

        def count_and_check_targets_and_specs(request: BatchItem[TargetsWithSameSpec, int]) -> bool:
            nonlocal targets
            targets += request.weight
            specs.add(request.value.spec)
            return targets <= BATCH_TARGETS_MAX and len(specs) <= SPECS_MAX

        return count_and_check_targets_and_specs

    def is_ready(self) -> bool:
        """See base class."""
        return self.weight >= BATCH_TARGETS_MAX

    async def wait_for_batch(self) -> None:
        """See base class. After the pause, it waits until as many requests came as the last batch has answered."""
        until = self.answered_at + joining.compute_time_for_callers_to_return(self.requests_in_last_batch)
        is_full = await self.wait_until_ready(self._compute_pause_before_batch(self))
        while not is_full and self.requests_since_answer < self.requests_in_last_batch and time.monotonic() < until:
            is_full = await self.wait_until_ready(joining.PAUSE_MIN_SECONDS)

    async def send_batch(self, batch: list[BatchItem[TargetsWithSameSpec, int]]) -> None:
        """See base class."""
        try:
            await self._join(self, batch)
        finally:
            self.requests_in_last_batch, self.requests_since_answer = len(batch), 0
            self.answered_at = time.monotonic()

    def on_idle(self) -> None:
        """See base class."""
        self._on_idle(self)


class JobJoiner:
    """Joins requests to the jobs of their files, and starts jobs that retry failed targets."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._settings = services.settings.transfers
        self._batchers: dict[FileByBizAppAndPath, _JoinBatcher] = {}

    async def join_job(self, file: FileByBizAppAndPath, group: TargetsWithSameSpec) -> int:
        """Join targets to a job of the file; return the number of its window once that is durable.

        Raises:
            JoinTimeout: The engine or its workers did not answer in time.
            RequestRejected: No worker serves transfers.
            QuotaExhausted: The next windows are full.
        """
        batcher = self._batchers.get(file)
        if batcher is None:
            batcher = _JoinBatcher(
                file,
                self._compute_pause_before_batch,
                self._join_requests_and_answer_windows,
                self._remove_batcher_once_unused,
            )
            self._batchers[file] = batcher
        return await batcher.submit(group, len(group.targets))

    async def start_retry(self, job: TransferJobKey, retry: FailedTargetsRetry) -> bool:
        """Start a job that retries failed targets at once; return False if the job exists."""
        now = datetime.now(UTC)
        times = {"window_closes_at": now, "deadline_at": now + timedelta(seconds=self._settings.timeout_seconds)}
        job_input = self._build_job_input(job).model_copy(update={"retry": retry, **times})
        return await transfers_handle.start_retry_job(self._engine, job_input)

    def _remove_batcher_once_unused(self, batcher: _JoinBatcher) -> None:
        """Remove a batcher some time after its last request: callers that come back meanwhile find its window there."""
        if batcher.removal is not None:
            batcher.removal.cancel()
        loop = asyncio.get_running_loop()
        batcher.removal = loop.call_later(IDLE_SECONDS, self._remove_batcher_unless_sending, batcher)

    def _remove_batcher_unless_sending(self, batcher: _JoinBatcher) -> None:
        if batcher.sending is None:  # otherwise it is idle again later
            del self._batchers[batcher.file]

    def _compute_pause_before_batch(self, batcher: _JoinBatcher) -> float:
        end = names.compute_window_end(
            max(batcher.window_number, self._get_current_window_number()), self._settings.window_seconds
        )
        return joining.compute_pause_by_batches_and_time_left(batcher.batches, BATCHES_MAX, end - time.time())

    async def _join_requests_and_answer_windows(
        self, batcher: _JoinBatcher, requests: list[BatchItem[TargetsWithSameSpec, int]]
    ) -> None:
        """Join the requests of a batch; answer each with its window, or with an error if no window accepts it."""
        groups = _merge_by_spec([request.value for request in requests])
        try:
            windows = await self._join_and_list_window_numbers(batcher, list(groups.values()))
        except Exception:
            metrics.TRANSFER_JOINS.labels("failed").inc(sum(request.weight for request in requests))
            raise
        window_numbers = dict(zip(groups, windows, strict=True))
        joined = refused = 0
        for request in requests:
            window_number = window_numbers[request.value.spec]
            if window_number is None:
                refused += request.weight
                request.reject(_build_window_full_fault(self._settings.window_seconds))
            else:
                joined += request.weight
                request.resolve(window_number)
        metrics.TRANSFER_JOINS.labels("joined").inc(joined)
        metrics.TRANSFER_JOINS.labels("window_full").inc(refused)

    async def _join_and_list_window_numbers(
        self, batcher: _JoinBatcher, groups: list[TargetsWithSameSpec]
    ) -> list[int | None]:
        """Join groups to the first windows that accept them; return the window of each, None if none accepts it."""
        window_numbers: list[int | None] = [None] * len(groups)
        left = list(range(len(groups)))
        retry_window = GrowingPausesUntilRetryTimeout("the job of a file", JoinTimeout)
        batch_id = uuid.uuid4().hex
        if (now := self._get_current_window_number()) > batcher.window_number:
            batcher.window_number, batcher.batches = now, 0
        window_number, closed, full = batcher.window_number, 0, 0
        while left and full < FULL_WINDOWS_MAX:
            batch = JoinBatch(groups=[groups[place] for place in left])
            result = await self._join_until_answered(batcher, window_number, batch, batch_id, retry_window)
            if result is None or not result.is_open:
                closed += 1
                if closed == WINDOWS_MAX:
                    raise JoinTimeout(
                        f"{WINDOWS_MAX} windows in a row are closed; compare the clocks of API and engine"
                    )
            else:
                refused = [left[place] for place in result.refused]
                for place in set(left) - set(refused):
                    window_numbers[place] = window_number
                left, full = refused, full + 1
            # Where answers take longer than a window lasts, the next one would be over as well, and all that follow.
            following = max(window_number + 1, self._get_current_window_number())
            self._advance_batcher_if_window_closed_or_full(batcher, window_number, result, following)
            window_number = following
        return window_numbers

    def _advance_batcher_if_window_closed_or_full(
        self, batcher: _JoinBatcher, window_number: int, result: JoinResult | None, following: int
    ) -> None:
        # A window that has refused only some groups is tried again with the next batch.
        if window_number != batcher.window_number:
            return
        if result is None or not result.is_open or result.batches >= BATCHES_MAX:
            batcher.window_number, batcher.batches = following, 0
        else:
            batcher.batches = result.batches

    async def _join_until_answered(
        self,
        batcher: _JoinBatcher,
        window_number: int,
        batch: JoinBatch,
        batch_id: str,
        retry_window: GrowingPausesUntilRetryTimeout,
    ) -> JoinResult | None:
        """Send a batch to a job until the job answers; return None if the job ended without it."""
        is_first = True
        while True:
            try:
                return await self._join_or_return_none_if_job_is_over(
                    batcher, window_number, batch, batch_id, is_first=is_first
                )
            except (RPCError, UpdateLost) as error:
                if not outages.is_outage(error):
                    raise
                is_first = False
                if isinstance(error, UpdateLost) and not await self._has_polling_workers_or_unknown():
                    raise _build_no_workers_error() from error
                _log.warning("transfer_join_repeated", error=str(error))
                await retry_window.pause_before_retry_or_raise(error)

    async def _has_polling_workers_or_unknown(self) -> bool:
        """Return whether a worker polled for jobs recently; the engine remembers one that is being replaced."""
        try:
            return bool(list_polling_workers(await describe_queue(self._engine, names.QUEUE, WORKFLOW_QUEUE)))
        except RPCError:
            return True

    async def _join_or_return_none_if_job_is_over(
        self, batcher: _JoinBatcher, window_number: int, batch: JoinBatch, batch_id: str, *, is_first: bool
    ) -> JoinResult | None:
        job = TransferJobKey(batcher.file, window_number)
        try:
            if batcher.batches and window_number == batcher.window_number:
                return await transfers_handle.join_job(self._engine, str(job), batch, batch_id, ANSWER_TIMEOUT)
            job_input = self._build_job_input(job)
            return await transfers_handle.start_and_join_job(self._engine, job_input, batch, batch_id, ANSWER_TIMEOUT)
        except JobFull:
            return JoinResult(refused=list(range(len(batch.groups))), batches=BATCHES_MAX, targets=0)
        except JobOver:
            if is_first:
                return None
            # The job may have taken the batch before its answer was lost: in another job it would be sent twice.
            return await transfers_handle.find_join_result(self._engine, str(job), batch_id, ANSWER_TIMEOUT)

    def _build_job_input(self, job: TransferJobKey) -> TransferJobInput:
        settings = self._settings
        window_closes_at = datetime.fromtimestamp(
            names.compute_window_end(job.window_number, settings.window_seconds), UTC
        )
        return TransferJobInput(
            job_id=str(job),
            file=job.file,
            window_closes_at=window_closes_at,
            deadline_at=window_closes_at + timedelta(seconds=settings.timeout_seconds),
            terminate_wait_seconds=settings.terminate_wait_seconds,
            host_wait_seconds=settings.host_wait_seconds,
            shard_targets=settings.shard_targets,
            targets_max=min(TARGETS_MAX, settings.shard_targets * SHARDS_MAX),
            project_specs_max=PROJECT_SPECS_MAX,
        )

    def _get_current_window_number(self) -> int:
        return names.compute_window_number(time.time(), self._settings.window_seconds)


def _build_no_workers_error() -> RequestRejected:
    minutes = round(POLLED_WITHIN.total_seconds() / 60)
    return RequestRejected(
        HTTPStatus.SERVICE_UNAVAILABLE,
        NO_WORKERS,
        f"This was not answered: no worker has asked for transfers in the last {minutes} minutes.",
        f"Have one started (`haulage worker --queues {names.QUEUE}`), then ask again. "
        "One that starts within the window may still take this request.",
    )


def _build_window_full_fault(window_seconds: int) -> QuotaExhausted:
    return QuotaExhausted(
        WINDOW_FULL,
        f"The next {FULL_WINDOWS_MAX} windows of this file are full: a window takes {TARGETS_MAX:,} targets in "
        f"{JOIN_BYTES_MAX / 1e6:g} MB of requests, and "
        f"{SPECS_MAX} different combinations of project, signature, target_user and target_file_dir, "
        f"{PROJECT_SPECS_MAX} of them of one project.",
        f"Ask again in {window_seconds} s, or use fewer users and folders for one file.",
        retry_after_seconds=window_seconds,
    )


def _merge_by_spec(groups: list[TargetsWithSameSpec]) -> dict[TransferSpec, TargetsWithSameSpec]:
    """Return the groups of a batch by spec, merging those of the same spec."""
    merged: dict[TransferSpec, TargetsWithSameSpec] = {}
    for group in groups:
        same = merged.get(group.spec)
        if same is None:
            same = merged[group.spec] = TargetsWithSameSpec(spec=group.spec, file_name=group.file_name, targets=[])
        same.targets.extend(group.targets)
    return merged

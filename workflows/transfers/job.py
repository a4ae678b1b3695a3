"""The workflow of a job: let targets join while its window is open, save them, send every shard, and end in time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as StepTimeout

with workflow.unsafe.imports_passed_through():
    from activities.transfers.activities import TransferActivities
    from domain.transfers import names
    from domain.transfers.activity_models import (
        CancelProjectTargetsInput,
        CheckAgentsOfShardsInput,
        EndUnfinishedTargetsOfShardsInput,
        FetchedFileHostResult,
        FetchFileInput,
        SaveShardsInput,
        SendShardInput,
        ShardNumberAndTargetCount,
        TransferJobStatus,
    )
    from domain.transfers.joining import (
        JobTargetRegistry,
        JoinBatch,
        JoinResult,
        TransferJobInput,
        group_shards_by_targets,
    )
    from domain.transfers.models import FailureReason, TargetEndAndReason, TransferState
    from infra import temporal
    from infra.interceptors import FAULT_TYPE
    from workflows.activity_calls import (
        ALL_TARGETS,
        HEARTBEAT,
        PROMPT_ACTIVITY,
        SHIPPING,
        UNTIL_DONE,
        build_fault,
        has_error_type,
    )

Argument = TypeVar("Argument")
Result = TypeVar("Result")


SAVE_TARGETS_MAX = 2_000
HOST_WAIT_FACTOR_MAX = 4
"""A busy host is waited for longer each time, but one that dies then must be replaced before the deadline."""
"""Half a megabyte; and the first shards are sent before the last are saved."""
SPEC_AS_TARGETS = 25
"""A spec with a long folder has the size of so many targets."""
CHECK_TARGETS_MAX = 1_000
"""The hosts that GSE is asked about in one call."""
SLACK_SECONDS = 30.0
"""How long after the deadline an activity may take to end its targets."""

_NO_WORKER = TargetEndAndReason(
    state=TransferState.TIMEOUT,
    reason=FailureReason.DEADLINE,
    message="The job's time was over and no worker had finished it; if GSE was asked to send it, it may still "
    "arrive. See whether workers run and what they log, then ask again.",
)


@workflow.defn(name=names.JOB_WORKFLOW)
class TransferJob:
    """Sends one file to all targets that join in one time window, or to the failed targets of an earlier job."""

    @workflow.init
    def __init__(self, job: TransferJobInput) -> None:
        self._job = job
        self._registry = JobTargetRegistry(job)
        self._hosts = FileHostRegistry(job)
        self._status = TransferJobStatus()
        self._is_closed = False

    @workflow.run
    async def run(self, job: TransferJobInput) -> TransferJobStatus:
        """Collect targets until the window ends, send all shards, and return the status."""
        if job.retry is None:
            await self._cancel_targets_if_cancelled(self._fetch_files_until_window_ends())
        self._is_closed = True
        if self._target_count:
            sending = asyncio.create_task(self._save_and_send_all_shards())
            while not sending.done():
                await self._cancel_targets_if_cancelled(asyncio.shield(sending))
            sending.result()
            self._status.ended = await self._run_activity(TransferActivities.mark_job_ended_and_get_outcome, job)
            self._publish_phase("done", self._status.ended.state)
        return self.status()

    @workflow.update(name=names.JOIN)
    def join(self, batch: JoinBatch) -> JoinResult:
        """Let the groups of a batch join if the window is open and the job's limits allow it."""
        if self._is_closed or workflow.now() >= self._job.window_closes_at:
            return JoinResult(is_open=False, batches=self._registry.batches, targets=self._registry.targets)
        return self._registry.register_groups_within_limits(batch, workflow.now())

    @join.validator
    def _refuse_batch_that_history_cannot_take(self, batch: JoinBatch) -> None:
        """Refuse a batch of a full job here: what the handler answers is in the history together with the batch."""
        if not self._registry.has_history_room_for_batch(batch):
            raise ApplicationError("The job takes no further batch.", type=names.JOB_FULL)

    @workflow.signal(name=names.EXCLUDE_PROJECT)
    def refuse_further_targets(self, project_id: str) -> None:
        """Refuse further targets of a project that has cancelled the job."""
        self._registry.refuse_further_targets(project_id)

    @workflow.query
    def status(self) -> TransferJobStatus:
        """Return the status of the job; the states of its targets are in the database."""
        return self._status.model_copy(update={"batches": self._registry.batches, "targets": self._target_count})

    @workflow.query(name=names.COUNT_TARGETS)
    def count_project_targets(self, project_id: str) -> int:
        """Count the targets of a project."""
        retry = self._job.retry
        if retry is None:
            return self._registry.count_project_targets(project_id)
        return retry.targets if retry.project_id == project_id else 0

    @property
    def _target_count(self) -> int:
        return self._job.retry.targets if self._job.retry else self._registry.targets

    @property
    def _project_ids(self) -> list[str]:
        return [self._job.retry.project_id] if self._job.retry else self._registry.projects

    def _find_first_project(self, signature: str) -> str:
        retry = self._job.retry
        return retry.project_id if retry else self._registry.find_first_project(signature)

    async def _fetch_files_until_window_ends(self) -> None:
        """Wait until the window ends, at a fixed time, and have files fetched meanwhile."""
        known: set[str] = set()
        while (left := (self._job.window_closes_at - workflow.now()).total_seconds()) > 0:
            with suppress(asyncio.TimeoutError):
                await workflow.wait_condition(
                    lambda: len(self._registry.signatures) > len(known), timeout=left, timeout_summary="window"
                )
            for signature in self._registry.signatures:
                known.add(signature)
                self._hosts.get_or_start_fetch(signature, self._find_first_project(signature))

    async def _save_and_send_all_shards(self) -> None:
        """Save the shards, some at a time, and send each as soon as it is saved."""
        running: dict[int, asyncio.Task[None]] = {}
        async for saved in self._save_shards_and_yield_batches():
            for group in group_shards_by_targets(saved, CHECK_TARGETS_MAX, lambda shard: shard.targets):
                check = asyncio.create_task(self._fail_targets_without_agent([shard.number for shard in group]))
                running |= {shard.number: asyncio.create_task(self._send_shard(shard, check)) for shard in group}
        if not running:
            return  # another retry has taken all failed targets
        left = (self._job.deadline_at - workflow.now()).total_seconds()
        max_wait = max(0.0, left) + self._job.terminate_wait_seconds + SLACK_SECONDS
        _, late = await workflow.wait(running.values(), timeout=max_wait)
        if late:
            for task in late:
                task.cancel()
            await self._end_unfinished_targets([number for number, task in running.items() if task in late], _NO_WORKER)
        for task in running.values():
            if task not in late:
                task.result()

    async def _save_shards_and_yield_batches(self) -> AsyncIterator[list[ShardNumberAndTargetCount]]:
        if self._job.retry:
            self._publish_phase("sending", TransferState.RUNNING)
            saved = await workflow.execute_activity_method(
                TransferActivities.save_retried_targets, self._job, **ALL_TARGETS
            )
            self._status.shards = len(saved)
            yield saved
            return
        shards = self._registry.build_shards()
        self._status.shards = len(shards)
        self._publish_phase("sending", TransferState.RUNNING)
        for group in group_shards_by_targets(
            shards, SAVE_TARGETS_MAX, lambda shard: max(SPEC_AS_TARGETS, len(shard.targets))
        ):
            await self._run_activity(
                TransferActivities.insert_missing_shards, SaveShardsInput(job=self._job, shards=group)
            )
            yield [ShardNumberAndTargetCount.from_shard(shard) for shard in group]

    async def _fail_targets_without_agent(self, numbers: list[int]) -> None:
        """Fail targets without an agent, once before anything is sent."""
        await self._run_activity(
            TransferActivities.fail_targets_without_agent, CheckAgentsOfShardsInput(job=self._job, numbers=numbers)
        )

    async def _send_shard(self, shard: ShardNumberAndTargetCount, check: asyncio.Task[None]) -> None:
        """Send a shard from the host that has the file, or from another host if that one is lost."""
        # Several shards wait for one check: cancelling one of them cancels the check, and with it all of them.
        await check
        waits: Counter[str] = Counter()
        try:
            while not await self._send_from_host(shard, waits):
                pass
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            outcome = _NO_WORKER if _is_host_lost(error) else _build_outcome_of_unfetched_file(error)
            await self._end_unfinished_targets([shard.number], outcome)
        self._status.sent += 1

    async def _send_from_host(self, shard: ShardNumberAndTargetCount, waits: Counter[str]) -> bool:
        """Send a shard from one host; return False if that host is lost.

        Args:
            waits: By the queue of a host, how often no worker there started this shard in time.
        """
        signature = shard.signature
        host = await asyncio.shield(self._hosts.get_or_start_fetch(signature, self._find_first_project(signature)))
        # A host that has fetched the file once more is no lost one: all its slots are taken. A wait for each would
        # fill the history of a large job.
        left = (self._job.deadline_at - workflow.now()).total_seconds()
        longer = min(2 ** waits[host.queue], HOST_WAIT_FACTOR_MAX)
        wait_seconds = min(self._job.host_wait_seconds * longer, max(left, self._job.host_wait_seconds))
        try:
            await workflow.execute_activity_method(
                TransferActivities.send_shard,
                SendShardInput(job=self._job, signature=signature, number=shard.number, fetched_at=host.fetched_at),
                task_queue=host.queue,
                schedule_to_start_timeout=timedelta(seconds=wait_seconds),
                **SHIPPING,
                # The shards of one project hold slots until its targets end: they wait behind each other alone.
                priority=Priority(fairness_key=shard.project_id),
                summary=f"shard {shard.number}",
            )
        except ActivityError as error:
            if _is_host_lost(error) and workflow.now() < self._job.deadline_at:
                waits[host.queue] += 1
                self._hosts.forget_host_unless_replaced(signature, host)
                return False
            raise
        return True

    async def _end_unfinished_targets(self, numbers: list[int], outcome: TargetEndAndReason) -> None:
        await workflow.execute_activity_method(
            TransferActivities.end_unfinished_targets_of_shards,
            EndUnfinishedTargetsOfShardsInput(job=self._job, numbers=numbers, outcome=outcome),
            **ALL_TARGETS,
        )

    async def _cancel_targets_if_cancelled(self, waiting: Awaitable[None]) -> None:
        """Wait; if the workflow is cancelled meanwhile, cancel all its targets, so that they end in order."""
        try:
            await waiting
        except asyncio.CancelledError:
            self._is_closed = True
            cancel = CancelProjectTargetsInput(job=self._job, project_ids=self._project_ids)
            await self._run_activity(TransferActivities.save_cancellation_of_project_targets, cancel)

    async def _run_activity(
        self, method: Callable[[TransferActivities, Argument], Awaitable[Result]], argument: Argument
    ) -> Result:
        return await workflow.execute_activity_method(method, argument, **PROMPT_ACTIVITY)

    def _publish_phase(self, phase: str, state: TransferState) -> None:
        """Show a change of phase in the search attributes and the Web UI."""
        self._status.phase = phase
        workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        workflow.set_current_details(
            f"**{phase}**: {self._target_count:,} targets in {self._status.shards} shards, {self._job.file.path}"
        )


def _is_host_lost(error: ActivityError) -> bool:
    """Return whether no worker of the host started the activity in time; a worker that dies is no lost host."""
    return isinstance(error.cause, StepTimeout) and error.cause.type is TimeoutType.SCHEDULE_TO_START


def _build_outcome_of_unfetched_file(error: ActivityError) -> TargetEndAndReason:
    """Return how targets end whose file no host could fetch: Failed for a fault, else Timeout."""
    if has_error_type(error, FAULT_TYPE):
        return TargetEndAndReason(
            state=TransferState.FAILED,
            reason=FailureReason.FILE_UNAVAILABLE,
            message=build_fault(error).sentence,
        )
    last = error.cause.cause if isinstance(error.cause, StepTimeout) else error.cause
    message = f"{_NO_WORKER.message} The last error: {last}" if last else _NO_WORKER.message
    return TargetEndAndReason(state=TransferState.TIMEOUT, reason=FailureReason.FILE_UNAVAILABLE, message=message)


class FileHostRegistry:
    """The hosts that have the files of one job. Each file is fetched once, however many shards need it."""

    def __init__(self, job: TransferJobInput) -> None:
        self._job = job
        self._fetches: dict[str, asyncio.Task[FetchedFileHostResult]] = {}
        self._hosts: dict[str, FetchedFileHostResult] = {}

    def get_or_start_fetch(self, signature: str, project_id: str) -> asyncio.Task[FetchedFileHostResult]:
        """Return the task that fetches the file with this signature, starting it in a project's turn if none is."""
        if signature not in self._fetches:
            fetch = self._fetches[signature] = asyncio.create_task(self._fetch_file_by_activity(signature, project_id))
            fetch.add_done_callback(_mark_exception_as_retrieved)
        return self._fetches[signature]

    def forget_host_unless_replaced(self, signature: str, host: FetchedFileHostResult) -> None:
        """Forget a lost host, so that the next request has another one fetch the file; do nothing if it is replaced."""
        if self._hosts.get(signature) is host:
            del self._hosts[signature], self._fetches[signature]

    async def _fetch_file_by_activity(self, signature: str, project_id: str) -> FetchedFileHostResult:
        self._hosts[signature] = await workflow.execute_activity_method(
            TransferActivities.fetch_file_into_host_cache,
            FetchFileInput(file=self._job.file, signature=signature),
            task_queue=names.FILE_QUEUE,
            schedule_to_close_timeout=max(timedelta(seconds=1), self._job.deadline_at - workflow.now()),
            heartbeat_timeout=HEARTBEAT,
            retry_policy=UNTIL_DONE,
            # Signatures that no file has keep a worker busy: those of one project wait behind each other alone.
            priority=Priority(fairness_key=project_id),
            summary=f"fetch {signature[:12]}",
        )
        return self._hosts[signature]


def _mark_exception_as_retrieved(fetch: asyncio.Task[FetchedFileHostResult]) -> None:
    # A failed fetch that no shard waits for any more must not be logged as an exception never retrieved.
    if not fetch.cancelled():
        fetch.exception()

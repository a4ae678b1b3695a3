"""The activities of transfers: save shards, fetch the file, send it, end targets, and purge old jobs."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
import uuid
from datetime import timedelta
from functools import partial

from temporalio import activity

from activities.transfers.journal import GseTaskJournal
from activities.transfers.repository import FileRepositoryClient
from activities.transfers.sending import ShardSender, ShardSpecFileAndDeadlines
from clients.gse import GseFailure
from domain.limits import UncheckedSpending
from domain.quotas import DAY_SECONDS, build_day_bucket_name
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
)
from domain.transfers.gse import explain_certain_agent_absence
from domain.transfers.joining import TransferJobInput
from domain.transfers.models import JobStateAndTargetCounts, derive_job_outcome
from domain.transfers.shards import RetryAndSilenceLimits, ShardProgress
from infra import log, metrics
from infra.component_settings import GseSettings
from infra.heartbeats import send_heartbeats_during_block
from infra.housekeeping import remove_in_batches_within_time
from infra.limits import DatabaseLimiter
from services.services import Services
from stores.transfers import jobs, shards, targets
from stores.transfers.jobs import JobTargetOutcomeCounts
from stores.transfers.shards import ShardLease

HOST_QUEUE = "transfers-host-"
JOURNAL_FOLDER = ".gse-tasks"
AGENT_STATES_SECONDS = 5.0
"""How long a job waits for GSE's answer about the states of agents."""
SEND_HEARTBEAT_SECONDS = 2.0
"""A large job sends hundreds of shards at a time, and each heartbeat is a write of the engine."""
PURGE_BATCH = 10
"""Jobs; a large one has 100,000 targets."""
CANCELLATIONS_RETENTION = timedelta(days=1)
EXPIRED_JOBS_RETENTION = timedelta(days=7)
"""How long the API answers `expired` instead of `not found` for a job whose targets are purged."""


def build_host_queue_name(settings: GseSettings) -> str:
    """Return the task queue of this host. Workers whose source agent is the same share a host, and its files."""
    if not settings.source_agent_id:
        return f"{HOST_QUEUE}{socket.gethostname()}"
    name = f"{settings.source_agent_id}\0{settings.source_container_id}"
    return f"{HOST_QUEUE}{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class TransferActivities:
    """Activities of a job, each safe to repeat."""

    def __init__(self, services: Services) -> None:
        self._settings = services.settings.transfers
        self._database = services.database
        self._files = services.files
        self._gse = services.gse
        self._journal = GseTaskJournal(services.settings.gse.cache_folder / JOURNAL_FOLDER)
        self._journal.delete_expired_entries()
        self._repository = FileRepositoryClient(services)
        self._queue = build_host_queue_name(services.settings.gse)
        gse = services.settings.gse
        self._answer_seconds = gse.connect_timeout_seconds + gse.answer_timeout_seconds

    @activity.defn(name="transfer_save_shards")
    async def insert_missing_shards(self, input_: SaveShardsInput) -> None:
        """Save shards with their targets."""
        await shards.insert_missing_shards(self._database, input_.job, input_.shards)

    @activity.defn(name="transfer_save_retry")
    async def save_retried_targets(self, job: TransferJobInput) -> list[ShardNumberAndTargetCount]:
        """Save the failed targets of an earlier job as shards of this one, and return the shards."""
        if job.retry is None:
            raise ValueError(f"{job.job_id} is no retry")
        async with send_heartbeats_during_block(at_once=False):
            return await shards.insert_failed_targets_as_retry_shards(self._database, job, job.retry)

    @activity.defn(name="transfer_check_agents")
    async def fail_targets_without_agent(self, input_: CheckAgentsOfShardsInput) -> None:
        """Fail targets whose agents GSE reports as absent; do nothing if GSE does not answer in time."""
        if not self._settings.ask_agent_states:
            return
        agents = await targets.list_pending_agents(self._database, input_.job.job_id, input_.numbers)
        try:
            async with asyncio.timeout(AGENT_STATES_SECONDS):
                states = await self._gse.get_agent_states(agents)
        except (GseFailure, TimeoutError) as error:
            log.get(__name__).warning("gse_agent_states_unknown", agents=len(agents), error=repr(error))
            return
        absent = {
            agent_id: why
            for agent_id in agents
            if (why := explain_certain_agent_absence(agent_id, states.get(agent_id)))
        }
        if absent:
            await targets.fail_pending_targets_of_absent_agents(
                self._database, input_.job.job_id, input_.numbers, absent
            )

    @activity.defn(name="transfer_fetch_file")
    async def fetch_file_into_host_cache(self, input_: FetchFileInput) -> FetchedFileHostResult:
        """Fetch the file into the cache of this host, and return the queue of this host."""
        async with send_heartbeats_during_block():
            fetch = self._repository.build_file_writer(input_.file, input_.signature)
            async with self._files.provide_pinned(input_.file.biz_id, input_.signature, fetch):
                return FetchedFileHostResult(queue=self._queue, fetched_at=time.time())

    @activity.defn(name="transfer_send_shard")
    async def send_shard(self, input_: SendShardInput) -> None:
        """Send the file to every target of a shard, and save how each target ends. The file stays pinned meanwhile."""
        job, file = input_.job, input_.job.file
        lease = ShardLease(self._database, job.job_id, input_.number, uuid.uuid4().hex)
        async with send_heartbeats_during_block(pause_seconds=SEND_HEARTBEAT_SECONDS):
            shard = await lease.acquire_and_load_shard()
            settings = self._settings
            rules = RetryAndSilenceLimits(settings.retries, settings.retry_pause_seconds, settings.silence_seconds)
            progress = ShardProgress(shard.targets, rules, shard.tasks, trouble=shard.trouble)
            fetch = self._repository.build_file_writer(file, input_.signature)

            async def check_file() -> None:
                self._files.require_full_verification_at_next_use(file.biz_id, input_.signature)
                async with self._files.provide_pinned(file.biz_id, input_.signature, fetch):
                    pass

            async with self._files.provide_pinned(file.biz_id, input_.signature, fetch) as path:
                context = ShardSpecFileAndDeadlines(
                    spec=shard.spec,
                    path=path,
                    fetched_at=input_.fetched_at or time.time(),
                    deadline=job.deadline_at.timestamp(),
                    terminate_wait_seconds=job.terminate_wait_seconds,
                    journal_wait_seconds=self._answer_seconds,
                    check_file=check_file,
                )
                sent_before = progress.count_succeeded()
                await ShardSender(self._gse, lease, self._journal, progress, context).send_until_all_ended_or_deadline()
                await self._count_bytes_in_metric_and_daily_quota(
                    shard.spec.project_id, (progress.count_succeeded() - sent_before) * path.stat().st_size
                )

    async def _count_bytes_in_metric_and_daily_quota(self, project_id: str, amount: int) -> None:
        """Count what reached targets in this attempt; of one that is killed before this, nothing is counted."""
        metrics.TRANSFER_BYTES.inc(amount)
        bucket = build_day_bucket_name("transfer_bytes_per_day", project_id)
        await DatabaseLimiter(self._database).spend_and_read(UncheckedSpending(bucket, amount, DAY_SECONDS))

    @activity.defn(name="transfer_end_targets")
    async def end_unfinished_targets_of_shards(self, input_: EndUnfinishedTargetsOfShardsInput) -> None:
        """End the unfinished targets of shards that no worker sends any more."""
        async with send_heartbeats_during_block(at_once=False):
            await targets.end_unfinished_targets(self._database, input_.job.job_id, input_.numbers, input_.outcome)

    @activity.defn(name="transfer_cancel_targets")
    async def save_cancellation_of_project_targets(self, input_: CancelProjectTargetsInput) -> None:
        """Save that all targets of these projects are cancelled; workers that send them see it at the next poll."""
        await targets.save_cancellation(self._database, input_.job.job_id, input_.project_ids)

    @activity.defn(name="transfer_finish_job")
    async def mark_job_ended_and_get_outcome(self, job: TransferJobInput) -> JobStateAndTargetCounts:
        """Save that the job has ended, and until when it is kept; return its outcome."""
        retention = timedelta(seconds=self._settings.kept_seconds)
        end = await jobs.mark_job_ended_and_count_outcomes(self._database, job.job_id, retention)
        outcome = derive_job_outcome(end.count_by_state())
        _count_and_log_end(job.job_id, outcome, end)
        return outcome


class TransferHousekeeping:
    """Purges jobs past their retention."""

    def __init__(self, services: Services) -> None:
        self._database = services.database

    @activity.defn(name=names.PURGE)
    async def purge_expired_jobs_and_cancellations(self) -> int:
        """Delete the targets of jobs past their retention in batches, and old jobs; return how many jobs."""
        purged = await remove_in_batches_within_time(
            partial(jobs.purge_expired_targets_and_count_jobs, self._database), PURGE_BATCH
        )
        await jobs.delete_job_rows_after_target_purge(self._database, EXPIRED_JOBS_RETENTION)
        await jobs.purge_cancellations(self._database, CANCELLATIONS_RETENTION)
        if purged:
            log.get(__name__).info("transfers_purged", jobs=purged)
        return purged


def _count_and_log_end(job_id: str, outcome: JobStateAndTargetCounts, end: JobTargetOutcomeCounts) -> None:
    """Count the targets of a job, and log its end in one line; a repeated attempt reports nothing."""
    if end.seconds is None:
        return
    metrics.TRANSFER_JOB_SECONDS.labels(outcome.state).observe(end.seconds)
    metrics.TRANSFER_JOB_TARGETS.observe(sum(end.counts.values()))
    for (state, reason), count in end.counts.items():
        metrics.TRANSFER_TARGETS_ENDED.labels(state, reason).inc(count)
    causes = {reason: count for (_, reason), count in end.counts.items() if reason}
    counts = {state.lower(): count for state, count in outcome.counts.items() if count}
    log.get(__name__).info(
        "transfer_job_ended", job_id=job_id, state=outcome.state, targets=counts, causes=causes, seconds=end.seconds
    )

"""A worker that takes a shard over goes on from all that the last one saved."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from domain.quotas import build_day_bucket_name
from domain.transfers.gse import GseAgentWithUser
from domain.transfers.joining import FailedTargetsRetry, ShardOfTargets, TransferJobInput
from domain.transfers.models import (
    FailureReason,
    FileByBizAppAndPath,
    TargetEndAndReason,
    TransferSpec,
    TransferState,
)
from domain.transfers.shards import GseTask, RetryAndSilenceLimits, ShardProgress
from infra.database import DATABASE_ERRORS, Database
from infra.limits import DatabaseLimiter
from stores.transfers import jobs, shards, targets
from stores.transfers.shards import ShardLease, ShardLeaseLost

pytestmark = pytest.mark.stack

RULES = RetryAndSilenceLimits(retries=2, retry_pause_seconds=5)
NO_FILE = TargetEndAndReason(
    state=TransferState.FAILED, reason=FailureReason.FILE_UNAVAILABLE, message="The repository answered 404."
)
SPEC = TransferSpec(project_id="p", signature="a" * 64, user="root", folder="/data")


async def save_shard(database: Database) -> TransferJobInput:
    """Save a shard of one target; its job."""
    soon = datetime.now(UTC) + timedelta(seconds=60)
    file = FileByBizAppAndPath(biz_id=2, app_id=7, path="/f")
    job = TransferJobInput(job_id="AsyncDownloadJob:2:7:/f:1", file=file, window_closes_at=soon, deadline_at=soon)
    shard = ShardOfTargets(number=1, spec=SPEC, file_name="f", targets=[(1, "agent-1", "")])
    await shards.insert_missing_shards(database, job, [shard])
    return job


async def test_what_gse_answers_outlives_a_worker(database: Database) -> None:
    """Otherwise nothing would clear it once GSE does what was asked; numbers of GSE tasks may be large by then."""
    job = await save_shard(database)
    first, second = (ShardLease(database, job.job_id, 1, name) for name in ("first", "second"))
    saved = await first.acquire_and_load_shard()
    progress = ShardProgress(saved.targets, RULES, saved.tasks, trouble=saved.trouble)
    progress.targets[0].task_number = 2**15
    task = progress.assign_new_task(progress.targets, GseAgentWithUser("source"))
    progress.remove_unaccepted_task_and_reschedule(task, 5.0, "GSE answered 503.")
    await first.write_changes_or_raise_if_lost(progress.targets, list(progress.tasks.values()), progress.trouble)
    taken_over = await second.acquire_and_load_shard()

    assert saved.trouble is None
    assert taken_over.trouble == progress.trouble is not None
    assert taken_over.targets[0].task_number == 2**15 + 1


async def test_a_late_check_of_agents_leaves_a_shard_that_is_sent(database: Database) -> None:
    """An attempt of the check that was held up must not say that nothing was sent."""
    job = await save_shard(database)
    absent = {"agent-1": "GSE does not know this agent"}
    lease = ShardLease(database, job.job_id, 1, "first")
    await lease.acquire_and_load_shard()
    await targets.fail_pending_targets_of_absent_agents(database, job.job_id, [1], absent)
    [sent] = (await lease.acquire_and_load_shard()).targets
    assert sent.state is TransferState.PENDING


async def test_a_check_of_agents_waits_for_a_worker_that_acquires_the_shard(database: Database) -> None:
    """It sends to what it has read: nothing of that may end as never sent."""
    job = await save_shard(database)
    absent = {"agent-1": "GSE does not know this agent"}
    async with database.connection() as connection, connection.transaction():
        await connection.execute("UPDATE transfer_shards SET holder = 'first'")
        check = asyncio.create_task(targets.fail_pending_targets_of_absent_agents(database, job.job_id, [1], absent))
        await asyncio.wait([check], timeout=0.5)
    await check
    [sent] = (await ShardLease(database, job.job_id, 1, "first").acquire_and_load_shard()).targets
    assert sent.state is TransferState.PENDING


async def test_a_job_that_ends_while_its_targets_are_to_be_purged_keeps_them(database: Database) -> None:
    """It ended long after its deadline, and is kept from then on."""
    await save_shard(database)
    async with database.connection() as connection:
        await connection.execute("UPDATE transfer_jobs SET expires_at = now() - interval '1 s'")
        async with connection.transaction():
            await connection.execute("UPDATE transfer_jobs SET expires_at = now() + interval '1 h'")
            purge = asyncio.create_task(jobs.purge_expired_targets_and_count_jobs(database, 10))
            await asyncio.wait([purge], timeout=0.5)
        assert await purge == 0
        assert await connection.fetchval("SELECT count(*) FROM transfer_targets") == 1


async def test_a_job_that_ends_after_it_was_purged_stays_expired(database: Database) -> None:
    """Its targets are gone: nothing can be said of them any more."""
    job = await save_shard(database)
    async with database.connection() as connection:
        await connection.execute("UPDATE transfer_jobs SET expires_at = now() - interval '1 s'")
    assert await jobs.purge_expired_targets_and_count_jobs(database, 10) == 1
    await jobs.mark_job_ended_and_count_outcomes(database, job.job_id, timedelta(hours=1))
    row = await jobs.find_job(database, job.job_id, "p")
    assert row
    assert row.finished_at
    assert row.expires_at < datetime.now(UTC)


async def test_a_worker_that_was_replaced_learns_it(database: Database) -> None:
    """Before it asks GSE to send."""
    job = await save_shard(database)
    first, second = (ShardLease(database, job.job_id, 1, name) for name in ("first", "second"))
    await first.acquire_and_load_shard()
    await first.require_held()
    await second.acquire_and_load_shard()
    with pytest.raises(ShardLeaseLost):
        await first.require_held()
    await second.require_held()


@pytest.mark.parametrize("tasks", [None, []], ids=["targets", "tasks"])
async def test_a_worker_that_was_replaced_writes_nothing(database: Database, tasks: list[GseTask] | None) -> None:
    """What GSE answered it is for the worker that has the shard now to find out."""
    job = await save_shard(database)
    first, second = (ShardLease(database, job.job_id, 1, name) for name in ("first", "second"))
    [target] = (await first.acquire_and_load_shard()).targets
    await second.acquire_and_load_shard()
    target.state = TransferState.SUCCESS
    with pytest.raises(ShardLeaseLost):
        await first.write_changes_or_raise_if_lost([target], tasks)
    [kept] = (await second.acquire_and_load_shard()).targets
    assert kept.state is TransferState.PENDING


@pytest.mark.parametrize(
    ("sending", "failed_in", "may_arrive"),
    [(0, 0, False), (1, 0, True), (2, 2, False)],
    ids=["never", "sent", "failed"],
)
async def test_a_target_that_was_sent_and_whose_file_is_gone_may_still_get_it(
    database: Database, sending: int, failed_in: int, may_arrive: bool
) -> None:
    """A worker that takes over needs the file; GSE may have it from the last one."""
    job = await save_shard(database)
    lease = ShardLease(database, job.job_id, 1, "first")
    [target] = (await lease.acquire_and_load_shard()).targets
    target.task_number, target.failed_in = sending, failed_in
    await lease.write_changes_or_raise_if_lost([target])
    await targets.end_unfinished_targets(database, job.job_id, [1], NO_FILE)
    [ended] = (await lease.acquire_and_load_shard()).targets

    assert (ended.state, ended.reason) == (NO_FILE.state, NO_FILE.reason)
    assert ended.message.startswith(NO_FILE.message)
    assert ("may still arrive" in ended.message) == may_arrive


async def test_a_retry_gives_the_quota_of_what_it_leaves_out_back_as_it_is_saved(database: Database) -> None:
    """Both or none: whatever comes between, the project's quota of the day is neither lost nor given back twice."""
    job = await save_shard(database)
    await targets.end_unfinished_targets(database, job.job_id, [1], NO_FILE)
    retry = FailedTargetsRetry(job_id=job.job_id, project_id="p", targets=3)
    again = job.model_copy(update={"job_id": f"{job.job_id}.1", "retry": retry})
    rename = "ALTER TABLE {} RENAME TO {}"
    async with database.connection() as connection:
        await connection.execute(rename.format("limit_spending", "limit_spending_away"))
    with pytest.raises(DATABASE_ERRORS):
        await shards.insert_failed_targets_as_retry_shards(database, again, retry)
    async with database.connection() as connection:
        await connection.execute(rename.format("limit_spending_away", "limit_spending"))
    saved = [await shards.insert_failed_targets_as_retry_shards(database, again, retry) for _ in range(2)]
    bucket = build_day_bucket_name("transfer_targets_per_day", "p")

    assert [[shard.targets for shard in each] for each in saved] == [[1], [1]]
    assert await DatabaseLimiter(database).read_spent_amount(bucket) == -2

"""Shards in the database: saved when a window ends or a retry begins, and written by the worker that sends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any, Final, TypeAlias

import asyncpg

from domain.limits import UncheckedSpending
from domain.quotas import DAY_SECONDS, build_day_bucket_name
from domain.transfers.activity_models import ShardNumberAndTargetCount
from domain.transfers.gse import FailedGseCalls
from domain.transfers.joining import (
    FailedTargetsRetry,
    JobTargetRegistry,
    JoinBatch,
    ShardOfTargets,
    TargetsWithSameSpec,
    TransferJobInput,
)
from domain.transfers.models import FailureReason, FileByBizAppAndPath, TransferSpec, TransferState
from domain.transfers.permissions import filter_allowed_hosts
from domain.transfers.shards import GseTask, ShardTarget
from infra.database import Database
from infra.limits import spend_in_transaction
from stores.tables.transfers import ALL_TARGETS
from stores.transfers import permissions
from stores.transfers.targets import FINAL_STATES, MESSAGE_MAX_CHARACTERS

UNFINISHED_RETENTION: Final = timedelta(hours=2)
"""How long after its deadline a job is kept whose workflow was terminated; one that waits for GSE to terminate its
targets may run for an hour after it."""

_COLUMNS: Final = (
    *("job", "key", "shard", "agent_id", "container_id"),
    *("state", "sending", "failures", "failed_in", "message", "progress", "speed", "joined_at"),
)

_SELECT_SHARDS: Final = """
    SELECT s.number, s.signature, s.project_id, count(t.key) AS targets
    FROM transfer_shards s LEFT JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE s.job = $1 GROUP BY s.number, s.signature, s.project_id ORDER BY s.number
"""
_INSERT_SHARD_WITHOUT_TARGETS: Final = """
    INSERT INTO transfer_shards (job, number, project_id, signature, target_user, folder, file_name, sendings)
    SELECT $1, s.number, s.project_id, s.signature, s.target_user, s.folder, s.file_name, '[]'
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
    WHERE j.job_id = $2 AND s.project_id = $3 ORDER BY s.number LIMIT 1
"""
_SELECT_FAILED: Final = """
    SELECT t.key, t.agent_id, t.container_id, s.project_id, s.signature, s.target_user, s.folder, s.file_name
    FROM transfer_jobs j JOIN transfer_targets t ON t.job = j.id
    JOIN transfer_shards s ON s.job = j.id AND s.number = t.shard
    WHERE j.job_id = $1 AND s.project_id = $2 AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
        AND ($3::text IS NULL OR t.reason = $3)
    ORDER BY t.key
"""
_MARK_RETRIED: Final = """
    UPDATE transfer_targets t SET is_retried = true FROM transfer_jobs j
    WHERE j.job_id = $1 AND t.job = j.id AND t.key = ANY($2::bigint[]) AND NOT t.is_retried RETURNING t.key
"""
_CHECK_HOLDER: Final = "SELECT FROM transfer_shards WHERE job = $1 AND number = $2 AND holder = $3 FOR SHARE"
_UPDATE_TASKS: Final = """
    UPDATE transfer_shards SET sendings = $4::text::jsonb, gse_trouble = $5::text::jsonb
    WHERE job = $1 AND number = $2 AND holder = $3
"""
_UPDATE_TARGETS: Final = f"""
    UPDATE transfer_targets t
    SET state = n.state, sending = n.sending, failures = n.failures, failed_in = n.failed_in, code = n.code,
        reason = n.reason, message = n.message, progress = n.progress, speed = n.speed,
        failed_code = n.failed_code, failed_message = n.failed_message,
        ended_at = CASE WHEN n.state IN {FINAL_STATES} THEN now() END
    FROM unnest($3::bigint[], $4::text[], $5::int[], $6::smallint[], $7::int[], $8::int[], $9::text[],
        $10::text[], $11::smallint[], $12::bigint[], $13::int[], $14::text[])
        AS n (key, state, sending, failures, failed_in, code, reason, message, progress, speed, failed_code,
            failed_message)
    WHERE t.job = $1 AND t.shard = $2 AND t.key = n.key AND t.state NOT IN {FINAL_STATES}
"""  # noqa: S608 - constants only
_SELECT_CANCELLED: Final = f"""
    SELECT t.key FROM transfer_cancels c
    JOIN transfer_shards s ON s.job = $1 AND s.number = $2 AND s.project_id = c.project_id
    JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number AND c.key IN (t.key, {ALL_TARGETS})
    WHERE c.job_id = $3 AND t.state NOT IN {FINAL_STATES}
"""  # noqa: S608 - constants only

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def insert_missing_shards(database: Database, job: TransferJobInput, shards: Sequence[ShardOfTargets]) -> None:
    """Insert shards with their targets; leave those that exist unchanged."""
    async with database.connection() as connection, connection.transaction():
        await _insert_new_shards_with_targets(connection, await _ensure_job_row(connection, job), shards)


async def insert_failed_targets_as_retry_shards(
    database: Database, job: TransferJobInput, retry: FailedTargetsRetry
) -> list[ShardNumberAndTargetCount]:
    """Insert the failed targets of an earlier job as shards of this one, and return the shards.

    Each failed target goes to one retry only; one that is not permitted for the project now goes to none, since it may
    have failed, or the permissions may have changed, after the request was checked. The project's quota of the day gets
    back what is left out. If that is all, the project sees the job without targets. A repeated call returns the shards
    that exist.
    """
    groups = await _load_failed_targets(database, retry)
    await _leave_out_targets_not_permitted(database, retry.project_id, job.file, groups)
    registry = JobTargetRegistry(job)
    registry.register_groups_within_limits(JoinBatch(groups=groups), job.window_closes_at)
    shards = registry.build_shards()
    async with database.connection() as connection, connection.transaction():
        job_row = await _ensure_job_row(connection, job)
        existing = await connection.fetch(_SELECT_SHARDS, job_row)
        if existing:
            return [ShardNumberAndTargetCount.model_validate(dict(row)) for row in existing if row["targets"]]
        keys = [key for shard in shards for key, _, _ in shard.targets]
        marked = {row["key"] for row in await connection.fetch(_MARK_RETRIED, retry.job_id, keys)}
        for shard in shards:
            shard.targets = [target for target in shard.targets if target[0] in marked]
            shard.joined_at = [job.window_closes_at.timestamp()] * len(shard.targets)
        shards = [shard for shard in shards if shard.targets]
        await _insert_new_shards_with_targets(connection, job_row, shards)
        if not shards:
            await connection.execute(_INSERT_SHARD_WITHOUT_TARGETS, job_row, retry.job_id, retry.project_id)
        left_out = retry.targets - sum(len(shard.targets) for shard in shards)
        if left_out > 0:
            bucket = build_day_bucket_name("transfer_targets_per_day", retry.project_id)
            await spend_in_transaction(connection, UncheckedSpending(bucket, -left_out, DAY_SECONDS))
    return [ShardNumberAndTargetCount.from_shard(shard) for shard in shards]


class ShardLeaseLost(Exception):
    """Another worker has acquired the shard; this one must stop without writing anything."""


@dataclass(frozen=True, slots=True)
class SavedShard:
    """A shard as its last holder saved it."""

    spec: TransferSpec
    targets: list[ShardTarget]
    tasks: dict[int, GseTask]
    """By number."""
    trouble: FailedGseCalls | None


class ShardLease:
    """The exclusive right to write one shard; acquiring it takes it from the previous holder.

    Args:
        holder: A unique name of the new holder.
    """

    def __init__(self, database: Database, job_id: str, number: int, holder: str) -> None:
        self._database = database
        self._job_id = job_id
        self._number = number
        self._holder = holder
        self._job = 0

    async def acquire_and_load_shard(self) -> SavedShard:
        """Acquire the lease, and return what was saved of the shard."""
        async with self._database.connection() as connection, connection.transaction():
            shard = await connection.fetchrow(
                """
                UPDATE transfer_shards SET holder = $3 FROM transfer_jobs
                WHERE transfer_jobs.id = job AND job_id = $1 AND number = $2
                RETURNING job, project_id, signature, target_user, folder, sendings::text AS sendings,
                    gse_trouble::text AS trouble
                """,
                self._job_id,
                self._number,
                self._holder,
            )
            if shard is None:
                raise LookupError(f"shard {self._number} of {self._job_id} is not in the database")
            self._job = shard["job"]
            rows = await connection.fetch(
                "SELECT * FROM transfer_targets WHERE job = $1 AND shard = $2", self._job, self._number
            )
        tasks = [GseTask.model_validate(each) for each in json.loads(shard["sendings"])]
        trouble = FailedGseCalls.model_validate_json(shard["trouble"]) if shard["trouble"] else None
        return SavedShard(
            _build_spec(shard), [_build_target(row) for row in rows], {task.number: task for task in tasks}, trouble
        )

    async def list_cancelled_keys(self) -> set[int]:
        """Return the keys of targets that are cancelled and have not ended."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_SELECT_CANCELLED, self._job, self._number, self._job_id)
        return {row["key"] for row in rows}

    async def require_held(self) -> None:
        """Raise ShardLeaseLost if another worker has acquired the shard; a time limit ends it at once."""
        # In no transaction: the end of one would wait for a server that hangs.
        if not await self._database.look_up(_CHECK_HOLDER, self._job, self._number, self._holder):
            raise self._build_lease_lost()

    async def write_changes_or_raise_if_lost(
        self,
        targets: Sequence[ShardTarget],
        tasks: Sequence[GseTask] | None = None,
        trouble: FailedGseCalls | None = None,
    ) -> None:
        """Update targets, except those that have ended, and if given the GSE tasks with the trouble of a call to GSE.

        Raises:
            ShardLeaseLost: Another worker has acquired the shard; nothing was written.
        """
        async with self._database.connection() as connection, connection.transaction():
            holder = (self._job, self._number, self._holder)
            if tasks is None:
                held = await connection.execute(_CHECK_HOLDER, *holder)
            else:
                encoded = json.dumps([task.model_dump() for task in tasks])
                failing = trouble.model_dump_json() if trouble else None
                held = await connection.execute(_UPDATE_TASKS, *holder, encoded, failing)
            if not str(held).endswith(" 1"):
                raise self._build_lease_lost()
            if targets:
                await connection.execute(_UPDATE_TARGETS, self._job, self._number, *_build_column_arrays(targets))

    def _build_lease_lost(self) -> ShardLeaseLost:
        return ShardLeaseLost(f"another worker has acquired shard {self._number} of {self._job_id}")


async def _ensure_job_row(connection: Connection, job: TransferJobInput) -> int:
    """Return the key of the job's row, which is inserted with the first of its shards."""
    row = await connection.fetchval(
        """
        INSERT INTO transfer_jobs (job_id, closes_at, deadline_at, expires_at, retry_of) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (job_id) DO UPDATE SET job_id = excluded.job_id RETURNING id
        """,
        job.job_id,
        job.window_closes_at,
        job.deadline_at,
        job.deadline_at + UNFINISHED_RETENTION,
        job.retry.job_id if job.retry else None,
    )
    return int(row)


async def _insert_new_shards_with_targets(connection: Connection, job: int, shards: Sequence[ShardOfTargets]) -> None:
    for shard in shards:
        if await _insert_shard_if_new(connection, job, shard):
            # A job that began under the previous version does not know when its targets joined.
            times = [datetime.fromtimestamp(each, UTC) for each in shard.joined_at] or repeat(None)
            rows = [
                (job, key, shard.number, agent_id, container_id, TransferState.PENDING, 0, 0, 0, "", 0, 0, joined_at)
                for (key, agent_id, container_id), joined_at in zip(shard.targets, times, strict=False)
            ]
            await connection.copy_records_to_table("transfer_targets", records=rows, columns=_COLUMNS)


async def _insert_shard_if_new(connection: Connection, job: int, shard: ShardOfTargets) -> bool:
    spec = shard.spec
    inserted = await connection.execute(
        """
        INSERT INTO transfer_shards
            (job, number, project_id, signature, target_user, folder, file_name, sendings)
        VALUES ($1, $2, $3, $4, $5, $6, $7, '[]') ON CONFLICT DO NOTHING
        """,
        job,
        shard.number,
        spec.project_id,
        spec.signature,
        spec.user,
        spec.folder,
        shard.file_name,
    )
    return str(inserted).endswith(" 1")


async def _load_failed_targets(database: Database, retry: FailedTargetsRetry) -> list[TargetsWithSameSpec]:
    """Return the failed targets of a job that no retry has, grouped by spec."""
    async with database.connection() as connection:
        rows = await connection.fetch(_SELECT_FAILED, retry.job_id, retry.project_id, retry.reason)
    groups: dict[TransferSpec, TargetsWithSameSpec] = {}
    for row in rows:
        spec = _build_spec(row)
        group = groups.setdefault(spec, TargetsWithSameSpec(spec=spec, file_name=row["file_name"], targets=[]))
        group.targets.append((row["key"], row["agent_id"], row["container_id"]))
    return list(groups.values())


async def _leave_out_targets_not_permitted(
    database: Database, project_id: str, file: FileByBizAppAndPath, groups: Sequence[TargetsWithSameSpec]
) -> None:
    async with database.session() as session:
        permitted = await permissions.find_permissions_or_none_if_unrestricted(session, project_id)
    if permitted is None:
        return
    for group in groups:
        agent_ids = {agent_id for _, agent_id, _ in group.targets}
        allowed = filter_allowed_hosts(permitted, file, group.spec.user, group.spec.folder, agent_ids)
        group.targets = [target for target in group.targets if target[1] in allowed]


def _build_spec(row: asyncpg.Record) -> TransferSpec:
    return TransferSpec(
        project_id=row["project_id"], signature=row["signature"], user=row["target_user"], folder=row["folder"]
    )


def _build_target(row: asyncpg.Record) -> ShardTarget:
    return ShardTarget(
        key=row["key"],
        agent_id=row["agent_id"],
        container_id=row["container_id"],
        state=TransferState(row["state"]),
        task_number=row["sending"],
        failures=row["failures"],
        failed_in=row["failed_in"],
        code=row["code"],
        reason=FailureReason(row["reason"]) if row["reason"] else None,
        message=row["message"],
        failed_code=row["failed_code"],
        failed_message=row["failed_message"],
        progress=row["progress"],
        speed=row["speed"],
    )


def _build_column_arrays(targets: Sequence[ShardTarget]) -> list[list[Any]]:
    return [
        [target.key for target in targets],
        [target.state for target in targets],
        [target.task_number for target in targets],
        [target.failures for target in targets],
        [target.failed_in for target in targets],
        [target.code for target in targets],
        [target.reason for target in targets],
        [target.message[:MESSAGE_MAX_CHARACTERS] for target in targets],
        [target.progress for target in targets],
        [target.speed for target in targets],
        [target.failed_code for target in targets],
        [target.failed_message[:MESSAGE_MAX_CHARACTERS] for target in targets],
    ]

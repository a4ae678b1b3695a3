"""Counting: what each room has to do, by project, from indexes that hold only what is not done."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import asyncpg

from api.overview.answers import Trouble
from api.overview.standing import Pile, Standing, Standings, merged, together
from domain.addresses.states import State
from domain.tasks.messages import Status
from infra.database import Database
from infra.settings import AddressSettings
from services.addresses import configuration
from stores.addresses import counting

FAILED_WITHIN: Final = timedelta(days=1)
"""Of rooms where what failed is over: nobody wants to hear of it for ever."""
OVERDUE_SECONDS: Final = 60.0
JOBS_AT_A_TIME: Final = 20
"""Jobs that ended, of 100,000 targets at most, which are counted in one look; they are counted once."""

Row: TypeAlias = "asyncpg.Record"
Count: TypeAlias = Callable[[], Awaitable[Standings]]

_DOWNLOADS = """
    SELECT project_id, count(*) FILTER (WHERE state = 'running') AS running,
        min(coalesce(started_at, created_at)) FILTER (WHERE state = 'running') AS running_at,
        count(*) FILTER (WHERE state = 'pending') AS waiting,
        min(created_at) FILTER (WHERE state = 'pending') AS waiting_at, 0 AS failed, NULL::timestamptz AS failed_at
    FROM downloads WHERE state IN ('pending', 'running') GROUP BY project_id
    UNION ALL
    SELECT project_id, 0, NULL, 0, NULL, count(*), min(finished_at)
    FROM downloads WHERE state = 'failed' AND finished_at > now() - $1::interval GROUP BY project_id
"""
_SHIPPING = """
    SELECT s.project_id, count(*) FILTER (WHERE t.state = 'Running') AS running,
        min(j.closes_at) FILTER (WHERE t.state = 'Running') AS running_at,
        count(*) FILTER (WHERE t.state = 'Pending') AS waiting,
        min(j.closes_at) FILTER (WHERE t.state = 'Pending') AS waiting_at,
        count(*) FILTER (WHERE t.state IN ('Failed', 'Timeout')) AS failed,
        min(j.closes_at) FILTER (WHERE t.state IN ('Failed', 'Timeout')) AS failed_at
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.finished_at IS NULL AND j.expires_at > now() GROUP BY s.project_id
"""
_SHIPPED = "SELECT id FROM transfer_jobs WHERE finished_at IS NOT NULL AND expires_at > now() ORDER BY id DESC"
_UNSENT = """
    SELECT j.id, s.project_id, count(*) AS failed, min(j.finished_at) AS failed_at
    FROM transfer_jobs j JOIN transfer_shards s ON s.job = j.id
        JOIN transfer_targets t ON t.job = s.job AND t.shard = s.number
    WHERE j.id = ANY($1::bigint[]) AND t.state IN ('Failed', 'Timeout') AND NOT t.is_retried
    GROUP BY j.id, s.project_id
"""
_SLICES = """
    SELECT p.project_id, count(*) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running_at,
        count(*) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting_at,
        count(failed_at) AS failed, min(failed_at) AS failed_at
    FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL GROUP BY p.project_id
"""
_STANDSTILLS = """
    SELECT project_id, count(unserved_since) AS unserved, count(clock_failed_since) AS clock_unread,
        count(credentials_failed_since) AS credentials_refused
    FROM order_platforms GROUP BY project_id
"""
_STALE = """
    SELECT p.project_id, count(*) FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE s.stale_told_at IS NOT NULL GROUP BY p.project_id
"""
_QUEUES = """
    SELECT t.project_id, sum(h.running)::bigint AS running, NULL::timestamptz AS running_at,
        sum(h.pending)::bigint AS waiting,
        to_timestamp(min(h.next_order_time) FILTER (WHERE h.next_order_time <= $1) / 1000.0) AS waiting_at,
        0 AS failed, NULL::timestamptz AS failed_at,
        coalesce(sum(h.due) FILTER (WHERE h.next_order_time <= $2 AND NOT t.paused), 0)::bigint AS overdue
    FROM task_heads h JOIN task_types t USING (type) GROUP BY t.project_id
"""
_TYPES = "SELECT project_id, count(*) FROM task_types WHERE paused GROUP BY project_id"
_ENDED = """
    SELECT t.project_id, count(*) AS failed, to_timestamp(min(a.modify_time) / 1000.0) AS failed_at
    FROM task_types t JOIN tasks_archive a ON a.type = t.type AND a.status = $1 AND a.create_time > $2
    GROUP BY t.project_id
"""


async def downloads(database: Database) -> Standings:
    """Those that have a row; the others only the engine knows."""
    async with database.connection() as connection:
        return _standings(await connection.fetch(_DOWNLOADS, FAILED_WITHIN))


class Transfers:
    """Targets of jobs that can still be asked about. Those of a job that is over are counted once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over: dict[int, Standings] = {}

    async def count(self) -> Standings:
        """How they stand."""
        async with self._database.connection() as connection:
            shipping = _standings(await connection.fetch(_SHIPPING))
            over = [row["id"] for row in await connection.fetch(_SHIPPED)]
            new = [id_ for id_ in over if id_ not in self._over][:JOBS_AT_A_TIME]
            found = await connection.fetch(_UNSENT, new) if new else []
        by_job: dict[int, dict[str, Standing]] = {id_: {} for id_ in new}
        for row in found:
            by_job[row["id"]][row["project_id"]] = Standing(failed=Pile(row["failed"], row["failed_at"]))
        known = self._over | by_job
        self._over = {id_: known[id_] for id_ in over if id_ in known}
        return merged(shipping, *self._over.values())


async def orders(database: Database) -> Standings:
    """Slices that are not in, those that take too long, and platforms that stand still."""
    async with database.connection() as connection:
        slices = _standings(await connection.fetch(_SLICES))
        stale = _concerns(Trouble.STALE, await connection.fetch(_STALE))
        platforms = await connection.fetch(_STANDSTILLS)
    troubles = (Trouble.UNSERVED, Trouble.CLOCK_UNREAD, Trouble.CREDENTIALS_REFUSED)
    standstills = {
        row["project_id"]: Standing(concerns=+Counter({trouble: row[trouble.value] for trouble in troubles}))
        for row in platforms
    }
    return merged(slices, stale, standstills)


async def tasks(database: Database) -> Standings:
    """Tasks as the hints of their lanes have it, and those that failed."""
    now = datetime.now(UTC)
    moments = (now, now - timedelta(seconds=OVERDUE_SECONDS), now - FAILED_WITHIN)
    now_ms, overdue_ms, failed_ms = (int(moment.timestamp() * 1000) for moment in moments)
    async with database.connection() as connection:
        queues = await connection.fetch(_QUEUES, now_ms, overdue_ms)
        paused = _concerns(Trouble.PAUSED, await connection.fetch(_TYPES))
        ended = await connection.fetch(_ENDED, Status.FAILED, failed_ms)
    overdue = {row["project_id"]: Standing(concerns=Counter({Trouble.OVERDUE: row["overdue"]})) for row in queues}
    failed = {row["project_id"]: Standing(failed=Pile(row["failed"], row["failed_at"])) for row in ended}
    return merged(_standings(queues), overdue, paused, failed)


async def addresses(database: Database, defaults: AddressSettings) -> Standings:
    """Messages that are not done. They belong to no project."""
    retries = (await configuration.in_force(database, defaults)).retries
    counts = await counting.count(database, retries)
    piles: defaultdict[State, Pile] = defaultdict(Pile)
    for each in counts.counts:
        piles[each.state] += Pile(each.messages, each.oldest_at)
    concerns = Counter({Trouble.GIVEN_UP: piles[State.GIVEN_UP].count, Trouble.QUARANTINED: counts.quarantined})
    failed = piles[State.FAILED] + piles[State.GIVEN_UP]
    return {"": Standing(piles[State.PROCESSING], piles[State.WAITING], failed, +concerns)}


def _standings(rows: Iterable[Row]) -> Standings:
    found: defaultdict[str, list[Standing]] = defaultdict(list)
    for row in rows:
        running, waiting, failed = (Pile(row[kind], row[f"{kind}_at"]) for kind in ("running", "waiting", "failed"))
        found[row["project_id"]].append(Standing(running, waiting, failed))
    return {project: together(parts) for project, parts in found.items()}


def _concerns(trouble: Trouble, rows: Sequence[Row]) -> Standings:
    return {row["project_id"]: Standing(concerns=Counter({trouble: row["count"]})) for row in rows}

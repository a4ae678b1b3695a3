"""flowSvr's own schema on PostgreSQL: a statement for each request, or (`--grouped yes`) one for all that have come.

Written to be fast where the document allows it: prepared statements over a pool, the position's table known, and the
lock of hold, in the original a Redis key, is SKIP LOCKED in the one statement that selects and marks. There is neither
retry, time-out, roll nor lease here, which would cost more.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import asyncpg

from bench.peers.tasks import front
from bench.peers.tasks.front import QUEUE, Held

CONNECTIONS = 16
AT_A_TIME = 1_000
GROUPS_AT_A_TIME = 2

_SCHEMA = """
    CREATE TABLE t_bench_task_1 (
        id bigserial PRIMARY KEY, user_id varchar(256) NOT NULL DEFAULT '', task_id varchar(256) NOT NULL UNIQUE,
        task_type varchar(128) NOT NULL, task_stage varchar(128) NOT NULL DEFAULT '', status smallint NOT NULL,
        crt_retry_num int NOT NULL DEFAULT 0, max_retry_num int NOT NULL DEFAULT 3,
        max_retry_interval int NOT NULL DEFAULT 30, schedule_log varchar(4096) NOT NULL DEFAULT '',
        priority int NOT NULL DEFAULT 0, task_content varchar(4096) NOT NULL DEFAULT '', order_time bigint NOT NULL,
        create_time timestamptz NOT NULL DEFAULT now(), modify_time timestamptz NOT NULL DEFAULT now());
    CREATE INDEX ON t_bench_task_1 (status, order_time);
"""
_CREATE = """
    INSERT INTO t_bench_task_1 (task_id, task_type, task_content, status, order_time) VALUES ($1, 'bench', $2, 1, $3)
"""
_CREATE_MANY = """
    INSERT INTO t_bench_task_1 (task_id, task_type, task_content, status, order_time)
    SELECT task_id, 'bench', content, 1, $3 FROM unnest($1::text[], $2::text[]) AS n (task_id, content)
"""
_STATUS = "SELECT task_id, status FROM t_bench_task_1 WHERE task_id = $1"
_STATUS_MANY = "SELECT task_id, status FROM t_bench_task_1 WHERE task_id = ANY ($1::text[])"
_HOLD = """
    UPDATE t_bench_task_1 SET status = 2, modify_time = now() WHERE id = ANY (ARRAY(
        SELECT id FROM t_bench_task_1 WHERE status = 1 AND order_time <= $1 ORDER BY order_time LIMIT $2
        FOR UPDATE SKIP LOCKED))
    RETURNING task_id, task_content
"""
_SET = "UPDATE t_bench_task_1 SET status = 3, modify_time = now() WHERE task_id = $1 AND status = 2 RETURNING task_id"
_SET_MANY = _SET.replace("= $1", "= ANY ($1::text[])")
_COUNTS = "SELECT status, count(*) FROM t_bench_task_1 GROUP BY status"
_GROW = """
    INSERT INTO t_bench_task_1 (task_id, task_type, task_content, status, order_time)
    SELECT 'old_' || n, 'bench', repeat('x', 100), 3, $2 FROM generate_series(1, $1::int) AS n
"""


class SingleStatements:
    """A statement a request."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def create(self, content: str) -> str:
        """One row."""
        task_id = _new_id()
        await self._pool.execute(_CREATE, task_id, content, _now())
        return task_id

    async def status(self, task_id: str) -> int | None:
        """One row by its id."""
        row = await self._pool.fetchrow(_STATUS, task_id)
        return row and row["status"]

    async def hold(self, limit: int) -> list[Held]:
        """Select and mark."""
        rows = await self._pool.fetch(_HOLD, _now(), limit)
        return [(row["task_id"], row["task_content"], 0) for row in rows]

    async def finish(self, task_id: str, lease: Any) -> bool:
        """One row."""
        return await self._pool.fetchval(_SET, task_id) is not None

    async def counts(self) -> dict[int, int]:
        """Over all rows."""
        return dict(map(tuple, await self._pool.fetch(_COUNTS)))

    async def grow(self, tasks: int) -> None:
        """As one statement."""
        await self._pool.execute(_GROW, tasks, _now())
        await self._pool.execute("VACUUM ANALYZE t_bench_task_1")


class GroupedStatements(SingleStatements):
    """A statement for all requests of a kind that have come while the ones before were under way."""

    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        super().__init__(pool)
        self._creates = _Group(self._create_all)
        self._reads = _Group(self._read_all)
        self._holds = _Group(self._hold_all)
        self._sets = _Group(self._set_all)

    async def create(self, content: str) -> str:
        """With others."""
        task_id: str = await self._creates.ask((_new_id(), content))
        return task_id

    async def status(self, task_id: str) -> int | None:
        """With others."""
        status: int | None = await self._reads.ask(task_id)
        return status

    async def hold(self, limit: int) -> list[Held]:
        """With others."""
        held: list[Held] = await self._holds.ask(limit)
        return held

    async def finish(self, task_id: str, lease: Any) -> bool:
        """With others."""
        return bool(await self._sets.ask(task_id))

    async def _create_all(self, tasks: Sequence[tuple[str, str]]) -> Sequence[str]:
        ids, contents = map(list, zip(*tasks, strict=True))
        await self._pool.execute(_CREATE_MANY, ids, contents, _now())
        return ids

    async def _read_all(self, ids: Sequence[str]) -> Sequence[int | None]:
        found = dict(map(tuple, await self._pool.fetch(_STATUS_MANY, list(ids))))
        return [found.get(task_id) for task_id in ids]

    async def _hold_all(self, limits: Sequence[int]) -> Sequence[list[Held]]:
        tasks = iter(await super().hold(sum(limits)))
        return [[task for _, task in zip(range(limit), tasks, strict=False)] for limit in limits]

    async def _set_all(self, ids: Sequence[str]) -> Sequence[bool]:
        done = {row["task_id"] for row in await self._pool.fetch(_SET_MANY, list(ids))}
        return [task_id in done for task_id in ids]


class _Group:
    """Requests that go together, a few groups at a time."""

    def __init__(self, do: Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]) -> None:
        self._do = do
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._serving: set[asyncio.Task[None]] = set()

    def ask(self, what: Any) -> asyncio.Future[Any]:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((what, answer))
        if len(self._serving) < GROUPS_AT_A_TIME:
            serving = asyncio.create_task(self._serve())
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)
        return answer

    async def _serve(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:AT_A_TIME], self._waiting[AT_A_TIME:]
            try:
                answers = await self._do([what for what, _ in group])
            except Exception as error:  # noqa: BLE001 - every waiter gets it
                for _, answer in group:
                    answer.set_exception(error)
            else:
                for (_, answer), told in zip(group, answers, strict=True):
                    answer.set_result(told)


def _new_id() -> str:
    return f"{uuid4()}_{QUEUE}_1"


def _now() -> int:
    return int(time.time())


@asynccontextmanager
async def _open_store(given: argparse.Namespace) -> AsyncIterator[SingleStatements]:
    async with asyncpg.create_pool(given.database, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        await pool.execute(_SCHEMA)
        yield GroupedStatements(pool) if given.grouped else SingleStatements(pool)


if __name__ == "__main__":
    front.serve(_open_store, "database", "grouped")

"""What a caller meets when PostgreSQL takes no writes or no connection, ends a transaction, or cuts connections."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError
from sqlmodel import select

import infra.database
from infra import outages
from infra.database import DATABASE_ERRORS, LISTENING, Database
from stores import worker_heartbeats
from stores.tables.shared import Project
from tests.support.waiting import PATIENCE_SECONDS, eventually

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


async def test_a_database_that_takes_no_writes_is_away(database: Database) -> None:
    """A primary that became a standby says so at the first write; SQLAlchemy wraps it as it wraps a mistake."""
    async with database.session() as session:
        await session.execute(text("SET TRANSACTION READ ONLY"))
        with pytest.raises(DBAPIError, match="read-only") as caught:
            await session.execute(text("DELETE FROM downloads"))
        await session.rollback()

    assert outages.find_component_in_outage(caught.value) is outages.Component.DATABASE


async def test_a_database_without_a_connection_left_is_away(database: Database) -> None:
    """The server answers, and accepts no connection."""
    async with database.session() as session:
        await session.execute(text("CREATE ROLE crowded LOGIN PASSWORD 'crowded' CONNECTION LIMIT 0"))
    url = make_url(database.settings.url.get_secret_value()).set(username="crowded", password="crowded")
    crowded = Database(
        database.settings.model_copy(update={"url": SecretStr(url.render_as_string(hide_password=False))})
    )
    try:
        with pytest.raises(DATABASE_ERRORS, match="too many connections") as caught:
            await crowded.check_health()
    finally:
        await crowded.close()
        async with database.session() as session:
            await session.execute(text("DROP ROLE crowded"))

    assert outages.find_component_in_outage(caught.value) is outages.Component.DATABASE


async def _write_rows(database: Database) -> None:
    """Insert three rows that statements lock in the order of their ids."""
    async with database.session() as session:
        session.add_all([Project(project_id=name, name="", created_at=NOON) for name in ("1", "2", "3")])


@asynccontextmanager
async def _crossing_locks(database: Database) -> AsyncIterator[None]:
    """Hold the third row while the block runs, and ask for the first one before the block waits for the third.

    PostgreSQL looks for a deadlock once in each wait: the block is held up at the second row until the other one waits,
    so that the look of the block finds it, however long anything takes.
    """
    async with database.session() as gate, database.session() as other:
        await gate.execute(text("SELECT 1 FROM projects WHERE id = '2' FOR UPDATE"))
        await other.execute(text("SET LOCAL deadlock_timeout = '10min'"))
        await other.execute(text("SELECT 1 FROM projects WHERE id = '3' FOR UPDATE"))

        async def cross() -> None:
            await _wait_until_waiting(database, 1)
            await other.execute(text("UPDATE projects SET name = name || 'other' WHERE id = '1'"))
            await other.commit()

        async def open_gate() -> None:
            await _wait_until_waiting(database, 2)
            await gate.commit()

        async with asyncio.TaskGroup() as group:
            group.create_task(cross())
            group.create_task(open_gate())
            yield


LOCKS_BOTH = "UPDATE projects SET name = name || 'mine' WHERE id IN (SELECT id FROM projects ORDER BY id FOR UPDATE)"


_LIST_WAITING = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


async def _wait_until_waiting(database: Database, statements: int) -> None:
    """Wait until so many statements wait for a lock."""

    async def are_waiting() -> bool:
        return len(await database.look_up(_LIST_WAITING)) == statements

    await eventually(are_waiting)


async def _update_by_session(database: Database) -> None:
    async with database.session() as session:
        await session.execute(text(LOCKS_BOTH))


async def _update_by_driver(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(LOCKS_BOTH)


async def _update_second(database: Database) -> None:
    async with database.session() as session:
        await session.execute(text("SELECT 1"))
        await session.execute(text(LOCKS_BOTH))


@pytest.mark.parametrize("update", [_update_by_session, _update_by_driver])
async def test_a_statement_that_is_a_whole_transaction_is_repeated_after_a_deadlock(
    database: Database, update: Callable[[Database], Awaitable[None]]
) -> None:
    """Once: both transactions take effect, and no caller gets an error."""
    await _write_rows(database)

    async with _crossing_locks(database):
        await update(database)

    async with database.session() as session:
        names = (await session.exec(select(Project.name).order_by(Project.project_id))).all()
    assert names == ["othermine", "mine", "mine"]


async def test_a_later_statement_of_a_transaction_is_not_repeated_after_a_deadlock(database: Database) -> None:
    """What came before it in the transaction is undone, so the caller gets the deadlock, as an outage."""
    await _write_rows(database)

    async with _crossing_locks(database):
        with pytest.raises(DBAPIError, match="deadlock") as caught:
            await _update_second(database)

    assert outages.find_component_in_outage(caught.value) is outages.Component.DATABASE


async def test_a_value_that_the_driver_cannot_send_is_no_outage(database: Database) -> None:
    """SQLAlchemy gives it the name of a lost connection; to ask again would not help."""
    with pytest.raises(DBAPIError, match="int32") as caught:
        async with database.session() as session:
            await session.execute(text("SELECT CAST(:number AS integer)"), {"number": 2**40})

    assert not outages.is_outage(caught.value)


async def test_connections_that_were_cut_are_replaced(database: Database) -> None:
    """After a restart of the server the next session just works."""
    await database.check_health()
    await cut_connections(database)
    await database.check_health()

    async with database.session() as session:
        assert (await session.execute(text("SELECT 1"))).scalar_one() == 1


async def test_a_ping_without_a_server_fails(database: Database, unused_tcp_port: int) -> None:
    """No answer is an error, not a wait."""
    url = f"postgresql+asyncpg://haulage:haulage@127.0.0.1:{unused_tcp_port}/haulage"
    lost = Database(database.settings.model_copy(update={"url": SecretStr(url)}))
    with pytest.raises(OSError, match="refused"):
        await lost.check_health()
    await lost.close()


async def test_a_listener_comes_back_after_its_connection_was_cut(database: Database) -> None:
    """It says that it may have missed something, and hears again."""
    listener = database.listen("done")
    assert await anext(listener) == LISTENING
    await cut_connections(database)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await anext(listener) == LISTENING
        async with database.session() as session:
            await database.notify_on_commit(session, "done", "dl_1")
        assert await anext(listener) == "dl_1"
    await listener.aclose()


async def cut_connections(database: Database) -> None:
    """Do to this database's connections what a restart of the server does."""
    outsider = Database(database.settings)
    async with outsider.connection() as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    await outsider.close()


_LIST_COPIES = "SELECT FROM pg_stat_activity WHERE wait_event = 'ClientRead' AND query LIKE 'COPY%'"


async def test_a_copy_whose_rows_do_not_come_is_ended(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hangs within a COPY keeps no lock that others wait for; other statements go on."""
    monkeypatch.setattr(infra.database, "IDLE_TIMEOUT_SECONDS", 1.0)
    hasty = Database(database.settings.model_copy(update={"statement_timeout_seconds": 0.5}))
    never = asyncio.Event()

    async def wait_for_rows() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    async def hang() -> None:
        async with hasty.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE copied")
            await connection.copy_to_table("copied", source=wait_for_rows())

    async def count() -> int:
        async with database.session() as session:
            return int((await session.execute(text("SELECT count(*) FROM copied"))).scalar_one())

    async with database.session() as session:
        await session.execute(text("CREATE TABLE copied (number integer)"))
    hanging = asyncio.create_task(hang())
    await eventually(lambda: database.look_up(_LIST_COPIES))
    waiting = asyncio.create_task(count())
    await _wait_until_waiting(database, 1)
    await asyncio.sleep(1.5)
    is_held_up = not waiting.done()
    for _ in range(2):
        await database.terminate_stalled_copies()

    assert is_held_up, "PostgreSQL's own time-out ended it"
    assert await waiting == 0
    never.set()
    with pytest.raises(DATABASE_ERRORS):
        await hanging
    await hasty.close()


async def test_a_copy_whose_rows_come_slowly_goes_on(database: Database) -> None:
    """It waits for its client whenever one looks, and moves all the same."""
    looks = 0

    async def make_rows() -> AsyncIterator[bytes]:
        nonlocal looks
        while looks < 6:
            yield b"1\n" * 70_000  # more than one read of the server's
            await asyncio.sleep(0.2)
            await database.terminate_stalled_copies()
            looks += 1

    async with database.session() as session:
        await session.execute(text("CREATE TABLE copied (number integer)"))
    async with database.connection() as connection:
        await connection.copy_to_table("copied", source=make_rows())
        assert await connection.fetchval("SELECT count(*) FROM copied") == 6 * 70_000


async def test_a_pool_in_use_is_no_outage(database: Database) -> None:
    """Whatever waits for the pool, the database is found to serve, and this process to be alive."""
    busy = Database(database.settings.model_copy(update={"pool_size": 1}))
    async with busy.session() as session, asyncio.timeout(PATIENCE_SECONDS):
        await session.execute(text("SELECT 1"))
        await busy.check_health()
        await worker_heartbeats.write_heartbeat(busy, "1@here", ["tasks"])
    assert [each.identity for each in await worker_heartbeats.list_heartbeats(database)] == ["1@here"]
    await busy.close()


async def _hold_session(database: Database, wait: Callable[[], Awaitable[None]]) -> None:
    async with database.session() as session:
        await session.execute(text("SELECT 1"))
        await wait()


async def _hold_driver_transaction(database: Database, wait: Callable[[], Awaitable[None]]) -> None:
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SELECT 1")
        await wait()


@pytest.mark.parametrize("hold", [_hold_session, _hold_driver_transaction])
async def test_a_cancellation_is_none_the_less_one_where_the_connection_breaks(
    database: Database, hold: Callable[[Database, Callable[[], Awaitable[None]]], Coroutine[Any, Any, None]]
) -> None:
    """What waits for the end of an outage would take the error of the rollback for one, and go on."""
    began = asyncio.Event()

    async def wait_and_break() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await cut_connections(database)

    holding = asyncio.create_task(hold(database, wait_and_break))
    await began.wait()
    holding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await holding


async def test_a_cancelled_transaction_does_not_wait_for_a_server_that_hangs(database: Database) -> None:
    """Its connection is given up without an answer."""
    sleeping, pid = await _begin_to_sleep_in_transaction(database)
    os.kill(pid, signal.SIGSTOP)
    try:
        sleeping.cancel()
        await asyncio.wait([sleeping], timeout=PATIENCE_SECONDS)
        assert sleeping.cancelled()
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_cancelled_transaction_ends_its_statement_on_the_server(database: Database) -> None:
    """Its locks would stay until the statement's time limit."""
    sleeping, pid = await _begin_to_sleep_in_transaction(database)
    await eventually(lambda: _is_sleeping(database, pid))
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping

    async def has_ended() -> bool:
        return not await _is_sleeping(database, pid)

    await eventually(has_ended, timeout=database.settings.statement_timeout_seconds / 2)


async def _begin_to_sleep_in_transaction(database: Database) -> tuple[asyncio.Task[None], int]:
    """Return the task, and the process of the server that it keeps busy."""
    pid = asyncio.get_running_loop().create_future()

    async def sleep() -> None:
        async with database.connection() as connection, connection.transaction():
            pid.set_result(await connection.fetchval("SELECT pg_backend_pid()"))
            await connection.execute("SELECT pg_sleep(600)")

    sleeping = asyncio.create_task(sleep())
    return sleeping, await pid


async def _is_sleeping(database: Database, pid: int) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%pg_sleep%' AND state = 'active'"
    return bool(await database.look_up(query, pid))

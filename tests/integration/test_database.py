"""Sessions, COPY and notifications on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from traceback import format_exception
from typing import Any

import asyncpg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlmodel import select

from infra.database import LISTENING, PAYLOAD_MAX_BYTES, Database
from stores.tables.downloads import Download
from stores.tables.shared import ApiKey, Project
from tests.support.waiting import PATIENCE_SECONDS, eventually

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


def a_download(task_id: str = "dl_1", **changes: Any) -> Download:
    """A row as the start of a run writes it."""
    start = {
        "project_id": "prj_1",
        "file_name": "订单.csv",
        "type": "csv",
        "state": "running",
        "created_at": NOON,
        "request": {},
    }
    values: dict[str, Any] = start | changes
    return Download(task_id=task_id, **values)


async def test_a_session_commits_what_it_wrote(database: Database) -> None:
    """Numbers past 32 bits, JSON and times come back as they were."""
    file = {"bucket": "haulage", "key": "files/订单.csv", "manifest": {"parts": [1, 2.5, None]}}
    async with database.session() as session:
        session.add(a_download(rows=2**40, total_rows=2**41, bytes=2**42, file=file, expires_at=NOON))
    async with database.session() as session:
        found = (await session.exec(select(Download))).one()

    assert (found.rows, found.total_rows, found.bytes) == (2**40, 2**41, 2**42)
    assert found.file == file
    assert found.expires_at == NOON


async def test_a_session_that_raises_leaves_nothing(database: Database) -> None:
    """An error undoes the whole block, and the next session is clean."""

    async def write_and_fail() -> None:
        async with database.session() as session:
            session.add(a_download())
            await session.flush()
            raise LookupError

    with pytest.raises(LookupError):
        await write_and_fail()

    async with database.session() as session:
        assert (await session.exec(select(Download))).all() == []


async def test_a_cancelled_session_leaves_nothing_and_returns_its_connection(database: Database) -> None:
    """More cancellations than connections do not starve the pool."""
    for _ in range(database.settings.pool_size + 1):
        written = asyncio.Event()
        task = asyncio.create_task(_write_and_wait(database, written))
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async with database.session() as session:
        assert (await session.exec(select(Download))).all() == []


async def _write_and_wait(database: Database, written: asyncio.Event) -> None:
    async with database.session() as session:
        session.add(a_download())
        await session.flush()
        written.set()
        await asyncio.Event().wait()


async def test_absent_json_is_null(database: Database) -> None:
    """No file and no fault are SQL's NULL, so that `IS NULL` finds them."""
    async with database.session() as session:
        session.add(a_download(file=None, fault=None))
    async with database.session() as session:
        count = await session.execute(text("SELECT count(*) FROM downloads WHERE file IS NULL AND fault IS NULL"))

    assert count.scalar_one() == 1


async def test_times_are_moments_in_utc(database: Database) -> None:
    """What was written in another zone is read in UTC; what names no zone is refused."""
    tokyo = timezone(timedelta(hours=9))
    async with database.session() as session:
        session.add(a_download(created_at=NOON.astimezone(tokyo)))
    async with database.session() as session:
        found = (await session.exec(select(Download))).one()
        zone = (await session.execute(text("SHOW timezone"))).scalar_one()
    with pytest.raises(StatementError, match="has no time zone"):
        async with database.session() as session:
            session.add(a_download("dl_2", created_at=NOON.replace(tzinfo=None)))

    assert (found.created_at, found.created_at.tzinfo, zone) == (NOON, UTC, "UTC")


async def test_an_unknown_state_is_refused_by_name(database: Database) -> None:
    """The constraint has the name that migrations know it by."""
    with pytest.raises(IntegrityError, match="ck_downloads_state"):
        async with database.session() as session:
            session.add(a_download(state="sleeping"))


def an_api_key(key_id: str, project_id: str, secret_hash: bytes) -> ApiKey:
    """The row of a key that only reads."""
    return ApiKey(key_id=key_id, project_id=project_id, secret_hash=secret_hash, key_right="read", created_at=NOON)


async def test_a_key_belongs_to_a_project_and_its_hash_to_one_key(database: Database) -> None:
    """Keys of no project and twin hashes are refused."""
    async with database.session() as session:
        session.add(Project(project_id="prj_1", name="Billing", created_at=NOON))
        await session.flush()
        session.add(an_api_key("1", "prj_1", b"\x00\xff"))
    with pytest.raises(IntegrityError, match="uq_api_keys_hash"):
        async with database.session() as session:
            session.add(an_api_key("2", "prj_1", b"\x00\xff"))
    with pytest.raises(IntegrityError, match="fk_api_keys_project_id_projects"):
        async with database.session() as session:
            session.add(an_api_key("3", "prj_2", b"3"))


async def test_errors_do_not_show_values(database: Database) -> None:
    """What a row holds may be secret, and errors end in logs and histories with all their causes."""
    row = a_download(operator_id="hunter2", state="sleeping")
    columns = ["task_id", "project_id", "file_name", "type", "state", "created_at", "processings", "request"]
    record = ("dl_1", "prj_1", "hunter2", "csv", "sleeping", NOON, 1, "{}")
    with pytest.raises(IntegrityError) as inserted:
        async with database.session() as session:
            session.add(row)
    with pytest.raises(asyncpg.CheckViolationError) as copied:
        async with database.connection() as connection:
            await connection.copy_records_to_table("downloads", records=[record], columns=columns)

    for error in (inserted.value, copied.value):
        said = "".join(format_exception(error))
        assert "ck_downloads_state" in said
        assert "hunter2" not in said


async def test_rows_are_copied_on_a_raw_connection(database: Database) -> None:
    """COPY takes records, with JSON as text, and ends with its own transaction."""
    columns = ["task_id", "project_id", "file_name", "type", "state", "created_at", "processings", "file", "request"]
    rows = [(f"dl_{n}", "prj_1", "a", "csv", "running", NOON, 1, '{"key": "k"}', "{}") for n in range(1_000)]
    async with database.connection() as connection, connection.transaction():
        await connection.copy_records_to_table("downloads", records=rows, columns=columns)
    async with database.session() as session:
        found = (await session.exec(select(Download))).all()

    assert len(found) == 1_000
    assert found[0].file == {"key": "k"}


async def test_a_broken_copy_does_not_reach_the_next_borrower(database: Database) -> None:
    """An open transaction ends with the block that raised."""

    async def break_off() -> None:
        async with database.connection() as connection:
            await connection.execute("BEGIN; CREATE TABLE half (id int)")
            raise LookupError

    for _ in range(database.settings.pool_size + 1):
        with pytest.raises(LookupError):
            await break_off()

    async with database.session() as session:
        assert (await session.execute(text("SELECT to_regclass('half')"))).scalar_one() is None


async def test_a_statement_that_takes_too_long_is_stopped(database: Database) -> None:
    """The limit of the settings holds on every connection, under our name."""
    hasty = Database(
        database.settings.model_copy(update={"statement_timeout_seconds": 1.0, "application_name": "hasty"})
    )
    async with hasty.session() as session:
        assert (await session.execute(text("SHOW application_name"))).scalar_one() == "hasty"
    with pytest.raises(DBAPIError, match="statement timeout"):
        async with hasty.session() as session:
            await session.execute(text("SELECT pg_sleep(10)"))
    await hasty.close()


async def test_a_lookup_is_planned_once_and_not_for_its_values(database: Database) -> None:
    """Planning took most of what the state of a transfer cost PostgreSQL."""
    found = "SELECT n FROM unnest($1::int[]) AS n"
    for number in range(10):
        assert [row["n"] for row in await database.look_up(found, [number])] == [number]
    counts = "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement = $1"
    [row] = await database.look_up(counts, found)

    assert (row["generic_plans"] > 0, row["custom_plans"]) == (True, 0)


async def test_a_lookup_that_waits_leaves_another_connection(database: Database) -> None:
    """One that fails or is cancelled leaves it to the next one, too."""
    sleeping = asyncio.create_task(database.look_up("SELECT pg_sleep(60)"))
    await asyncio.sleep(0)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await database.look_up("SELECT 1 / 0")
    assert [tuple(row) for row in await database.look_up("SELECT 1")] == [(1,)]
    sleeping.cancel()
    await asyncio.wait([sleeping])
    answers = await asyncio.gather(*(database.look_up("SELECT 1") for _ in range(4)))

    assert [tuple(row) for rows in answers for row in rows] == [(1,)] * 4


async def test_a_notification_reaches_every_listener_when_it_commits(database: Database) -> None:
    """Each hears what was committed on its channel, in order, and nothing else."""
    first, second = database.listen("done"), database.listen("done")
    assert [await anext(first), await anext(second)] == [LISTENING, LISTENING]

    async def notify_and_fail() -> None:
        async with database.session() as session:
            await database.notify_on_commit(session, "done", "undone")
            raise LookupError

    with pytest.raises(LookupError):
        await notify_and_fail()
    async with database.session() as session:
        await database.notify_on_commit(session, "other", "elsewhere")
        await database.notify_on_commit(session, "done", "dl_1")
        await database.notify_on_commit(session, "done", "订单")
    async with asyncio.timeout(PATIENCE_SECONDS):
        heard = [[await anext(listener), await anext(listener)] for listener in (first, second)]
    await first.aclose()
    await second.aclose()

    assert heard == [["dl_1", "订单"], ["dl_1", "订单"]]


async def test_a_listener_that_stops_leaves_no_connection(database: Database) -> None:
    """Leaving the loop closes what it opened."""
    listener = database.listen("done")
    await anext(listener)
    assert await count_listeners(database) == 1
    await listener.aclose()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await count_listeners(database):
            pass


@pytest.mark.parametrize("payload", ["", "x" * (PAYLOAD_MAX_BYTES + 1), "页" * 2_667])
async def test_a_payload_that_cannot_be_carried_is_refused(database: Database, payload: str) -> None:
    """An empty one would look like `LISTENING`, a large one is PostgreSQL's limit; the error says what to send."""
    async with database.session() as session:
        with pytest.raises(ValueError, match="Send an id"):
            await database.notify_on_commit(session, "done", payload)
        await database.notify_on_commit(session, "done", "x" * PAYLOAD_MAX_BYTES)


async def count_listeners(database: Database) -> int:
    """How many connections to this database wait for notifications."""
    async with database.session() as session:
        found = await session.execute(
            text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
        )
    return int(found.scalar_one())


async def test_connections_in_use_at_the_close_are_closed_when_they_are_given_back(database: Database) -> None:
    """What outlives the process's services leaves no connection behind, and opens none."""
    async with database.connection() as lent:
        await lent.execute("SELECT pg_advisory_lock(1)")
        looking = asyncio.create_task(database.look_up("SELECT pg_advisory_lock(1)"))

        async def is_looking() -> bool:
            return bool(await lent.fetchval(_DOES_ANY_WAIT))

        await eventually(is_looking)
        await database.close()
        assert await lent.fetchval("SELECT pg_advisory_unlock(1)")
        await looking

    assert lent.is_closed()
    assert all(each is None or each.is_closed() for each in database._idle_lookups)
    with pytest.raises(RuntimeError, match="as it stops"):
        await database.look_up("SELECT 1")
    with pytest.raises(RuntimeError, match="as it stops"):
        async with database.session() as session:
            await session.execute(text("SELECT 1"))


_DOES_ANY_WAIT = """
    SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database())
"""

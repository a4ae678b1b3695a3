"""PostgreSQL: the base of all tables, sessions, COPY, and NOTIFY and LISTEN."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final, cast

import asyncpg
from sqlalchemy import DateTime, Dialect, MetaData, NullPool, event, func, orm, select, text
from sqlalchemy.exc import DBAPIError, DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.ext.asyncio import AsyncSession as PlainSession
from sqlalchemy.types import TypeDecorator
from sqlalchemy.util import await_only
from sqlmodel import Session as SyncSession
from sqlmodel import SQLModel
from sqlmodel.ext.asyncio.session import AsyncSession

from infra import log, metrics, outages, tls
from infra.component_settings import DatabaseSettings
from infra.driver_connection import DEADLOCK_PAUSE_SECONDS, DriverConnection

CONNECT_TIMEOUT_SECONDS = 5.0
PING_TIMEOUT_SECONDS = 5.0
IDLE_TIMEOUT_SECONDS = 10.0
"""After this an idle transaction, and a COPY whose rows do not come, is ended: others wait for its locks."""
PAYLOAD_MAX_BYTES = 7_999
"""PostgreSQL's limit on the payload of a notification."""
LOOKUP_CONNECTIONS = 2
"""Connections of `Database.look_up` in each process: while one waits for a lock, the other serves."""
LOOKUP_PLAN_SECONDS = 1
"""How long a plan is kept that costs more than its lookup: it suits tables as large as they were when it was made."""

LISTENING = ""
"""`listen` yields this whenever it begins to listen: notifications before that moment are lost, so read the tables."""

DATABASE_ERRORS = (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Every error that PostgreSQL and its driver raise; `infra.outages` knows which are outages."""

CONSTRAINT_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Migrations rely on these names."""

_RECONNECT_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
_SILENCE_SECONDS = 30.0

_IS_READ_ONLY: Final = text("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'")
_SPILL: Final = text("SELECT count(*) FROM generate_series(1, 10000)")
"""Writes some 200 kB into a temporary file: a trivial statement succeeds on a full disk as well."""
_WAITING_COPIES: Final = text(
    "SELECT pid, query_start, bytes_processed FROM pg_stat_progress_copy JOIN pg_stat_activity AS a USING (pid) WHERE"
    " wait_event = 'ClientRead' AND a.datname = current_database() AND usename = user AND application_name = :name"
)
_END: Final = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND query_start = :began")

_log = log.get(__name__)


class TableRow(SQLModel):
    """The base of every table."""

    metadata = MetaData(naming_convention=CONSTRAINT_NAMES)


class UtcTime(TypeDecorator[datetime]):
    """A `timestamptz` that takes only times with a time zone, and returns UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a time zone."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone. Write it as UTC, like datetime.now(UTC).")
        return value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the same moment in UTC."""
        return None if value is None else value.astimezone(UTC)


class _FirstStatementDeadlockRetryingSession(SyncSession):
    """Run the first statement of a transaction once more where PostgreSQL chose it to end a deadlock.

    A later one is not repeated: what the transaction did before it is undone, and only its caller can do that again.
    """

    def execute(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return self._run_and_retry_deadlock(orm.Session.execute, *arguments, **options)

    def exec(self, *arguments: Any, **options: Any) -> Any:
        """See base class."""
        return self._run_and_retry_deadlock(SyncSession.exec, *arguments, **options)

    def _run_and_retry_deadlock(self, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        is_first = not self.in_transaction()
        try:
            return run(self, *arguments, **options)
        except DBAPIError as error:
            if not is_first or not outages.is_deadlock(error):
                raise
            self.rollback()
        _log.warning("database_deadlock_retried")
        await_only(asyncio.sleep(DEADLOCK_PAUSE_SECONDS))
        return run(self, *arguments, **options)


class Session(AsyncSession):
    """SQLModel's session without its warning at each `execute`, which is the only way to run text and DDL."""

    sync_session_class = _FirstStatementDeadlockRetryingSession
    execute = PlainSession.execute

    async def copy_rows_into(self, table: str, columns: Sequence[str], rows: bytes) -> None:
        """Copy rows in the binary form of COPY into a table in this transaction: many times faster than INSERT."""
        connection = await self.connection()
        driver = await _get_driver_connection(connection)
        if not driver.is_in_transaction():
            # SQLAlchemy begins the transaction with its own first statement, which COPY is not.
            await connection.execute(select(1))
        try:
            await driver.copy_to_table(table, source=io.BytesIO(rows), columns=columns, format="binary")
        except BaseException as error:
            # The state that a broken COPY leaves must not reach the next borrower of the connection.
            await connection.invalidate()
            _remove_error_details(error)
            raise


class Database:
    """One pool of connections, a connection beside it, a few more for lookups, and one for each listener."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.settings = settings
        self._is_closed = False
        self._pool = self._create_engine(pool_size=settings.pool_size, max_overflow=0)
        self._beside_pool = self._create_engine(pool_size=1, max_overflow=0)
        self._single = self._create_engine(poolclass=NullPool)
        self._for_lookups = self._create_engine(is_for_lookups=True, poolclass=NullPool)
        self._lookup_turns = asyncio.Semaphore(LOOKUP_CONNECTIONS)
        self._idle_lookups: list[asyncpg.Connection[asyncpg.Record] | None] = [None] * LOOKUP_CONNECTIONS
        self._waiting_copies: set[tuple[Any, ...]] = set()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises."""
        with _measure_use_and_keep_cancellation():
            async with Session(self._pool, expire_on_commit=False) as session:
                yield session
                await session.commit()

    @asynccontextmanager
    async def connection(self, *, beside_pool: bool = False) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Lend the driver's connection, without a transaction. JSON goes in and out as text.

        The one beside the pool is for short statements that must not wait while all of the pool are in use.
        """
        with _measure_use_and_keep_cancellation():
            async with (self._beside_pool if beside_pool else self._pool).connect() as connection:
                try:
                    yield await _get_driver_connection(connection)
                except BaseException as error:
                    # The state that a broken COPY leaves must not reach the next borrower of the connection.
                    await connection.invalidate()
                    _remove_error_details(error)
                    raise

    async def look_up(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Return the few rows that a statement finds by indexes, for much less than a loan and a plan cost."""
        with _measure_use_and_keep_cancellation():
            async with self._lookup_turns:
                connection = self._idle_lookups.pop()
                try:
                    if connection is None or connection.is_closed():
                        connection = await self._connect_for_lookups()
                    return await connection.fetch(statement, *arguments)
                except BaseException as error:
                    if connection is not None:
                        connection.terminate()
                    _remove_error_details(error)
                    raise
                finally:
                    if self._is_closed and connection is not None:
                        connection.terminate()
                    self._idle_lookups.append(connection)

    async def _connect_for_lookups(self) -> asyncpg.Connection[asyncpg.Record]:
        connection = await self._for_lookups.connect()
        driver = await _get_driver_connection(connection)
        (await connection.get_raw_connection()).detach()
        return driver

    async def now(self) -> datetime:
        """Return the time of the database's clock, which all processes share."""
        return cast("datetime", (await self.look_up("SELECT now()"))[0][0])

    async def read_server_version(self) -> str:
        """Return the version of PostgreSQL."""
        return str((await self.look_up("SHOW server_version"))[0][0])

    async def notify_on_commit(self, session: AsyncSession, channel: str, payload: str) -> None:
        """Notify all listeners of a channel if and when the session commits."""
        if not 1 <= (length := len(payload.encode())) <= PAYLOAD_MAX_BYTES:
            raise ValueError(
                f"A notification of {length:,} bytes for {channel!r}: it carries 1 to {PAYLOAD_MAX_BYTES:,}. "
                "Send an id and let listeners read the rest."
            )
        await session.execute(select(func.pg_notify(channel, payload)))

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """Yield the payloads sent to a channel; reconnect whenever the connection breaks.

        Yields `LISTENING` at first and after each reconnection: no notification after it is missed.
        """
        failures = 0
        while True:
            try:
                async with self._single.connect() as connection:
                    async for payload in _iterate_notifications_until_broken(
                        await _get_driver_connection(connection), channel
                    ):
                        failures = 0
                        yield payload
            except DATABASE_ERRORS as error:
                _log.warning("listener_disconnected", channel=channel, error=str(error))
            await asyncio.sleep(_RECONNECT_PAUSES_SECONDS[min(failures, len(_RECONNECT_PAUSES_SECONDS) - 1)])
            failures += 1

    async def check_health(self) -> None:
        """Check that the database answers and can be written, also while all of the pool are in use.

        Raises:
            DatabaseReadOnly: It is a standby, or was made read-only.
            DBAPIError: Its disk is full: a small sort that spills to the disk fails.
        """
        async with asyncio.timeout(PING_TIMEOUT_SECONDS), self._beside_pool.connect() as connection:
            if (await connection.execute(_IS_READ_ONLY)).scalar_one():
                raise outages.DatabaseReadOnly("PostgreSQL takes no writes.")
            await connection.execute(text("SET LOCAL work_mem = '64kB'"))
            await connection.execute(_SPILL)

    async def terminate_stalled_copies(self) -> None:
        """End each COPY that has got nothing from its client since the last call.

        No timeout of PostgreSQL's ends the COPY of a process that hangs in the midst of it, and its locks stay.
        """
        async with self._beside_pool.connect() as connection:
            found = await connection.execute(_WAITING_COPIES, {"name": self.settings.application_name})
            before, self._waiting_copies = self._waiting_copies, {tuple(row) for row in found}
            for pid, began, _ in before & self._waiting_copies:
                await connection.execute(_END, {"pid": pid, "began": began})
                _log.warning("stalled_copy_ended", pid=pid)

    async def close(self) -> None:
        """Close all connections; one that is in use is closed when it is given back, and none is opened any more."""
        self._is_closed = True
        idle_lookups, self._idle_lookups = self._idle_lookups, [None] * LOOKUP_CONNECTIONS
        for connection in filter(None, idle_lookups):
            with suppress(*DATABASE_ERRORS):
                await connection.close(timeout=PING_TIMEOUT_SECONDS)
        await self._pool.dispose()
        await self._beside_pool.dispose()

    def _create_engine(self, *, is_for_lookups: bool = False, **pool: Any) -> AsyncEngine:
        engine = _build_engine(self.settings, is_for_lookups=is_for_lookups, **pool)
        event.listen(engine.sync_engine, "do_connect", self._refuse_connection_after_close)
        event.listen(engine.sync_engine, "do_connect", connect_or_raise_unreachable)
        event.listen(engine.sync_engine, "checkin", self._close_returned_connection_after_close)
        return engine

    def _refuse_connection_after_close(self, *_: object) -> None:
        if self._is_closed:
            raise RuntimeError("This process has closed its connections to PostgreSQL, as it stops.")

    def _close_returned_connection_after_close(self, _connection: object, record: Any) -> None:
        if self._is_closed:
            record.invalidate()


@contextmanager
def _measure_use_and_keep_cancellation() -> Iterator[None]:
    """Measure a transaction or a loan of a connection; one that a caller's own error ends counts as done.

    Where the block is cancelled and its rollback fails, raise the cancellation: callers that repeat what an outage
    interrupts would go on for ever.
    """
    began, outcome = time.perf_counter(), "done"
    task = asyncio.current_task()
    cancellations = task.cancelling() if task else 0
    try:
        yield
    except DATABASE_ERRORS as error:
        outcome = "failed"
        if task is not None and task.cancelling() > cancellations:
            raise asyncio.CancelledError from error
        raise
    finally:
        metrics.DATABASE_SECONDS.labels(outcome).observe(time.perf_counter() - began)


def _build_engine(settings: DatabaseSettings, *, is_for_lookups: bool = False, **pool: Any) -> AsyncEngine:
    engine = create_async_engine(
        settings.url.get_secret_value(),
        hide_parameters=True,
        connect_args={
            **build_tls_arguments(settings),
            "timeout": CONNECT_TIMEOUT_SECONDS,
            "connection_class": DriverConnection,
            "server_settings": {
                "application_name": settings.application_name,
                "statement_timeout": str(round(settings.statement_timeout_seconds * 1000)),
                "idle_in_transaction_session_timeout": str(round(IDLE_TIMEOUT_SECONDS * 1000)),
                "timezone": "UTC",
                **({"plan_cache_mode": "force_generic_plan"} if is_for_lookups else {}),
            },
            **({"max_cached_statement_lifetime": LOOKUP_PLAN_SECONDS} if is_for_lookups else {}),
        },
        **pool,
    )
    event.listen(engine.sync_engine, "handle_error", lambda context: _remove_error_details(context.original_exception))
    event.listen(engine.sync_engine, "checkout", _require_open_connection)
    return engine


def build_tls_arguments(settings: DatabaseSettings) -> dict[str, Any]:
    """Return the driver's arguments for TLS; none without it, so that `?ssl=` in the address still counts."""
    return {"ssl": tls.build_client_tls_context(settings.tls, tls.DATABASE)} if settings.secure else {}


def _require_open_connection(connection: Any, _record: object, _borrower: object) -> None:
    """Replace a connection that a restarted server has closed; to ask the server costs three messages."""
    if connection.driver_connection.is_closed():
        raise DisconnectionError


def connect_or_raise_unreachable(
    dialect: Dialect, _record: object, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Connect; raise DatabaseUnreachable for TLS, and for a socket's error, which by itself names no component."""
    try:
        return dialect.connect(*arguments, **options)
    except Exception as error:
        sentence = tls.explain_tls_error(error, tls.DATABASE)
        if sentence is None and not isinstance(error, OSError):
            raise
        raise outages.DatabaseUnreachable(sentence or str(error) or "There was no connection in time.") from error


def _remove_error_details(error: BaseException | None) -> None:
    """Remove PostgreSQL's "Failing row contains (…)": values belong neither in logs nor in histories."""
    while error is not None:
        if isinstance(error, asyncpg.PostgresError):
            error.detail = None
        error = error.__cause__


async def _get_driver_connection(connection: AsyncConnection) -> asyncpg.Connection[asyncpg.Record]:
    raw = await connection.get_raw_connection()
    return cast("asyncpg.Connection[asyncpg.Record]", raw.driver_connection)


async def _iterate_notifications_until_broken(
    connection: asyncpg.Connection[asyncpg.Record], channel: str
) -> AsyncIterator[str]:
    received: asyncio.Queue[str | None] = asyncio.Queue()
    connection.add_termination_listener(lambda _: received.put_nowait(None))
    await connection.add_listener(channel, lambda _connection, _pid, _channel, payload: received.put_nowait(payload))
    yield LISTENING
    while True:
        try:
            # Not wait_for: until Python 3.12 it loses a cancellation that comes together with a notification, and a
            # process that stops would then wait for its listener for ever.
            async with asyncio.timeout(_SILENCE_SECONDS):
                payload = await received.get()
        except TimeoutError:
            # A peer that vanished without closing the connection is noticed only by a statement.
            await connection.execute("SELECT 1", timeout=PING_TIMEOUT_SECONDS)
            continue
        if payload is None:
            raise ConnectionResetError("PostgreSQL closed the listener's connection.")
        yield payload

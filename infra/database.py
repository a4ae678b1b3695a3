"""PostgreSQL: sessions, a raw connection for COPY, and NOTIFY and LISTEN."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

import asyncpg
from sqlalchemy import Dialect, NullPool, event, func, select, text
from sqlalchemy.exc import DisconnectionError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.ext.asyncio import AsyncSession as PlainSession
from sqlmodel.ext.asyncio.session import AsyncSession

from infra import log, outages
from infra.settings import DatabaseSettings

CONNECT_TIMEOUT_SECONDS = 5.0
PING_TIMEOUT_SECONDS = 5.0
IDLE_TIMEOUT_SECONDS = 10.0
"""A transaction that nothing is heard of for so long belongs to a process that hangs, and others wait for its locks."""
PAYLOAD_MAX_BYTES = 7_999
"""PostgreSQL's own limit on what a notification carries."""

LISTENING = ""
"""What `listen` yields whenever it begins to hear: notifications before that moment are lost, so look for yourself."""

FAILURES = (OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""What is raised when PostgreSQL does not serve, for whatever reason; `infra.outages` knows whether it is away."""

_RECONNECT_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
_SILENCE_SECONDS = 30.0

_log = log.get(__name__)


class Session(AsyncSession):
    """SQLModel's session, without the warning at each `execute`: text and DDL have no other way."""

    execute = PlainSession.execute

    async def copy(self, table: str, columns: Sequence[str], rows: bytes) -> None:
        """Copy rows, packed by infra.packing, into a table in this transaction: many times faster than to insert."""
        connection = await self.connection()
        driver = await _driver(connection)
        if not driver.is_in_transaction():
            # It begins with the first statement that does not go past SQLAlchemy.
            await connection.execute(select(1))
        try:
            await driver.copy_to_table(table, source=io.BytesIO(rows), columns=columns, format="binary")
        except BaseException as error:
            # What a broken COPY leaves behind must not reach the next borrower.
            await connection.invalidate()
            _forget_values(error)
            raise


class Database:
    """One pool of connections, and one connection more for each listener."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.settings = settings
        self._pool = _engine(settings, pool_size=settings.pool_size, max_overflow=0)
        event.listen(self._pool.sync_engine, "checkout", _check_open)
        self._single = _engine(settings, poolclass=NullPool)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A transaction: committed when the block ends, rolled back when it raises."""
        async with Session(self._pool, expire_on_commit=False) as session:
            yield session
            await session.commit()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A driver's connection, for COPY; open a transaction on it yourself. JSON goes in and out as text."""
        async with self._pool.connect() as connection:
            try:
                yield await _driver(connection)
            except BaseException as error:
                # What a broken COPY leaves behind must not reach the next borrower.
                await connection.invalidate()
                _forget_values(error)
                raise

    async def now(self) -> datetime:
        """The time by the clock that all processes have in common."""
        async with self._pool.connect() as connection:
            now: datetime = (await connection.execute(select(func.now()))).scalar_one()
            return now

    async def server_version(self) -> str:
        """The version of PostgreSQL."""
        async with self._pool.connect() as connection:
            version: str = (await connection.execute(text("SHOW server_version"))).scalar_one()
            return version

    async def notify(self, session: AsyncSession, channel: str, payload: str) -> None:
        """Tell all listeners of a channel, if and when the session commits."""
        length = len(payload.encode())
        if not 1 <= length <= PAYLOAD_MAX_BYTES:
            raise ValueError(
                f"A notification of {length:,} bytes for {channel!r}: it carries 1 to {PAYLOAD_MAX_BYTES:,}. "
                "Send an id and let listeners read the rest."
            )
        await session.execute(select(func.pg_notify(channel, payload)))

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """The payloads sent to a channel, on a connection of its own that is made anew whenever it breaks.

        Yields `LISTENING` at first and after each break: from then on nothing is missed.
        """
        failures = 0
        while True:
            try:
                async with self._single.connect() as connection:
                    async for payload in _notifications(await _driver(connection), channel):
                        failures = 0
                        yield payload
            except FAILURES as error:
                _log.warning("listener_disconnected", channel=channel, error=str(error))
            await asyncio.sleep(_RECONNECT_PAUSES_SECONDS[min(failures, len(_RECONNECT_PAUSES_SECONDS) - 1)])
            failures += 1

    async def ping(self) -> None:
        """Ask for an answer; raises when there is none in time."""
        async with asyncio.timeout(PING_TIMEOUT_SECONDS), self._pool.connect() as connection:
            await connection.execute(select(1))

    async def close(self) -> None:
        """Close all connections that are not in use."""
        await self._pool.dispose()


def _engine(settings: DatabaseSettings, **pool: Any) -> AsyncEngine:
    engine = create_async_engine(
        settings.url.get_secret_value(),
        hide_parameters=True,
        connect_args={
            "timeout": CONNECT_TIMEOUT_SECONDS,
            "server_settings": {
                "application_name": settings.application_name,
                "statement_timeout": str(round(settings.statement_timeout_seconds * 1000)),
                "idle_in_transaction_session_timeout": str(round(IDLE_TIMEOUT_SECONDS * 1000)),
                "timezone": "UTC",
            },
        },
        **pool,
    )
    event.listen(engine.sync_engine, "handle_error", lambda context: _forget_values(context.original_exception))
    event.listen(engine.sync_engine, "do_connect", _connect)
    return engine


def _check_open(connection: Any, _record: object, _borrower: object) -> None:
    """Have a connection that a restarted server closed made anew, before a caller meets it.

    The driver has heard of it by then. To ask the server each time would be three messages more for each borrower.
    """
    if connection.driver_connection.is_closed():
        raise DisconnectionError


def _connect(dialect: Dialect, _record: object, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Connect; say of a socket's error, which could be any part's, that it was PostgreSQL that could not be reached."""
    try:
        return dialect.connect(*arguments, **options)
    except OSError as error:
        raise outages.DatabaseUnreachable(str(error) or repr(error)) from error


def _forget_values(error: BaseException | None) -> None:
    """Drop PostgreSQL's "Failing row contains (…)": values belong neither in logs nor in histories."""
    while error is not None:
        if isinstance(error, asyncpg.PostgresError):
            error.detail = None
        error = error.__cause__


async def _driver(connection: AsyncConnection) -> asyncpg.Connection[asyncpg.Record]:
    raw = await connection.get_raw_connection()
    return cast("asyncpg.Connection[asyncpg.Record]", raw.driver_connection)


async def _notifications(connection: asyncpg.Connection[asyncpg.Record], channel: str) -> AsyncIterator[str]:
    """What one connection hears until it breaks."""
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    connection.add_termination_listener(lambda _: heard.put_nowait(None))
    await connection.add_listener(channel, lambda _connection, _pid, _channel, payload: heard.put_nowait(payload))
    yield LISTENING
    while True:
        try:
            # Not wait_for: until Python 3.12 it loses a cancellation that comes together with a notification, and the
            # process that wants to stop then waits for its listener for ever.
            async with asyncio.timeout(_SILENCE_SECONDS):
                payload = await heard.get()
        except TimeoutError:
            # A peer that vanished without a word is noticed only by who speaks to it.
            await connection.execute("SELECT 1", timeout=PING_TIMEOUT_SECONDS)
            continue
        if payload is None:
            raise ConnectionResetError("PostgreSQL closed the listener's connection.")
        yield payload

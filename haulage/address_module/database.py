"""A DB-API database: connections lent to threads, and one SQL dialect for three databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, LifoQueue
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Cursor(Protocol):
    """A cursor by PEP 249."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement changed."""

    def execute(self, operation: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """Return the next row."""

    def fetchall(self) -> Any:
        """Return all remaining rows."""

    def close(self) -> Any:
        """End the last statement."""


class Connection(Protocol):
    """A connection by PEP 249, usable by any thread, one at a time."""

    def cursor(self) -> Any:
        """Open a cursor."""

    def commit(self) -> Any:
        """Commit the transaction."""

    def close(self) -> Any:
        """Close the connection, and roll its transaction back."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of a database."""

    placeholder: str
    begin: str
    """The statement that begins a transaction, which must see what was committed before each of its statements."""
    insert_new: str
    """Insert unless the key exists; `{}` is what follows INTO."""
    for_update: str


SQLITE = Dialect("?", "BEGIN IMMEDIATE", "INSERT OR IGNORE INTO {}", "")
POSTGRESQL = Dialect(
    "%s", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "INSERT INTO {} ON CONFLICT DO NOTHING", " FOR UPDATE"
)
MYSQL = Dialect("%s", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "INSERT IGNORE INTO {}", " FOR UPDATE")


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction. Statements use `?` for values."""

    cursor: Cursor
    dialect: Dialect

    def run(self, statement: str, *values: object) -> int:
        """Run a statement, and return the number of changed rows."""
        self.cursor.execute(statement.replace("?", self.dialect.placeholder), values)
        return self.cursor.rowcount

    def insert_new(self, into: str, *values: object) -> bool:
        """Insert a row unless its key exists, and return whether it was inserted, as far as the driver reports it."""
        return self.run(self.dialect.insert_new.format(into), *values) == 1

    def fetch_row(self, statement: str, *values: object) -> Sequence[Any] | None:
        """Return the first row, or None."""
        self.run(statement, *values)
        found: Sequence[Any] | None = self.cursor.fetchone()
        return found

    def fetch_rows(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        self.run(statement, *values)
        found: Sequence[Sequence[Any]] = self.cursor.fetchall()
        return found

    def select_existing(self, column: str, table: str, values: Sequence[object]) -> list[Any]:
        """Return those of the values that a column of a table has."""
        if not values:
            return []
        places = ", ".join("?" * len(values))
        statement = f"SELECT {column} FROM {table} WHERE {column} IN ({places})"  # noqa: S608 - constants only
        return [row[0] for row in self.fetch_rows(statement, *values)]

    def fetch_locked_row(self, statement: str, *values: object) -> Sequence[Any] | None:
        """Return the first row, locked until the transaction ends."""
        return self.fetch_row(statement + self.dialect.for_update, *values)


class DatabaseUnreachable(Exception):
    """No transaction could be begun on a new connection, so that nothing was done."""


class Database:
    """Runs transactions in threads, each on a connection of its own."""

    def __init__(self, connect: Callable[[], Connection], dialect: Dialect, threads: int) -> None:
        self._connect = connect
        self._dialect = dialect
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="addresses")
        self._idle: LifoQueue[Connection] = LifoQueue()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a transaction on a thread, commit it, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_sync, work)

    def run_sync(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in this thread. If anything fails, the transaction is rolled back."""
        connection, cursor = self._begin_transaction()
        try:
            answer = work(Transaction(cursor, self._dialect))
            connection.commit()
        except BaseException:
            # The connection itself may be broken, and then idle ones are as well.
            _close_quietly(connection, cursor)
            self._close_idle()
            raise
        self._idle.put(connection)
        return answer

    def _begin_transaction(self) -> tuple[Connection, Cursor]:
        """Begin a transaction; replace idle connections that the database has closed meanwhile."""
        while True:
            connection = self._get_idle_or_none()
            is_new = connection is None
            cursor: Cursor | None = None
            try:
                if connection is None:
                    connection = self._connect()
                    self._require_autocommit_off_and_commit(connection)
                cursor = connection.cursor()
                cursor.execute(self._dialect.begin)
            except Exception as error:
                _close_quietly(connection, cursor)
                if is_new:
                    raise DatabaseUnreachable(f"The database of addresses cannot be reached: {error}") from error
                self._close_idle()
            else:
                return connection, cursor

    def close(self) -> None:
        """Wait for running transactions, and close all connections."""
        self._threads.shutdown()
        self._close_idle()

    def _require_autocommit_off_and_commit(self, connection: Connection) -> None:
        if self._dialect != SQLITE and _is_in_autocommit_mode(connection):
            raise ValueError(
                "`connect` opens connections in autocommit mode, in which an operation could be applied in part. "
                "Turn it off."
            )
        # What `connect` sets may have begun a transaction, and then its isolation can no longer be chosen.
        connection.commit()

    def _get_idle_or_none(self) -> Connection | None:
        with suppress(Empty):
            return self._idle.get_nowait()
        return None

    def _close_idle(self) -> None:
        while (connection := self._get_idle_or_none()) is not None:
            _close_quietly(connection, None)


def _is_in_autocommit_mode(connection: Any) -> bool:
    # The drivers of MySQL have a method, and those of PostgreSQL an attribute.
    get_autocommit = getattr(connection, "get_autocommit", None)
    return bool(get_autocommit()) if get_autocommit else getattr(connection, "autocommit", False) is True


def _close_quietly(connection: Connection | None, cursor: Cursor | None) -> None:
    """Close a connection that may be broken: some drivers raise then.

    The cursor goes first. In SQLite an open statement keeps a closed connection and its lock alive for as long as the
    traceback of an exception refers to the cursor.
    """
    for each in (cursor, connection):
        if each is not None:
            with suppress(Exception):
                each.close()

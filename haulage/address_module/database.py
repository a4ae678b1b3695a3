"""A DB-API database: connections lent to threads, and one spelling of statements for three of them."""

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
    """As PEP 249 has it."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement changed."""

    def execute(self, operation: str, parameters: Any = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """The next row."""

    def fetchall(self) -> Any:
        """All rows that are left."""

    def close(self) -> Any:
        """End the statement that was run last."""


class Connection(Protocol):
    """As PEP 249 has it, usable by any thread, one at a time."""

    def cursor(self) -> Any:
        """A cursor."""

    def commit(self) -> Any:
        """End the transaction well."""

    def close(self) -> Any:
        """End the connection, and the transaction with it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database differs from others."""

    placeholder: str
    begin: str
    """What a transaction begins with: it must see what was committed before each of its statements."""
    insert_new: str
    """Inserts unless the key is there; `{}` is what follows INTO."""
    for_update: str


SQLITE = Dialect("?", "BEGIN IMMEDIATE", "INSERT OR IGNORE INTO {}", "")
POSTGRESQL = Dialect(
    "%s", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "INSERT INTO {} ON CONFLICT DO NOTHING", " FOR UPDATE"
)
MYSQL = Dialect("%s", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "INSERT IGNORE INTO {}", " FOR UPDATE")


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction. Statements are written with `?`."""

    cursor: Cursor
    dialect: Dialect

    def run(self, statement: str, *values: object) -> int:
        """Run a statement; returns how many rows it changed."""
        self.cursor.execute(statement.replace("?", self.dialect.placeholder), values)
        return self.cursor.rowcount

    def insert_new(self, into: str, *values: object) -> bool:
        """Insert unless the key is there; returns whether it was not, as far as the driver tells."""
        return self.run(self.dialect.insert_new.format(into), *values) == 1

    def row(self, statement: str, *values: object) -> Sequence[Any] | None:
        """The first row, if there is one."""
        self.run(statement, *values)
        found: Sequence[Any] | None = self.cursor.fetchone()
        return found

    def rows(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """All rows."""
        self.run(statement, *values)
        found: Sequence[Sequence[Any]] = self.cursor.fetchall()
        return found

    def known(self, column: str, table: str, values: Sequence[object]) -> list[Any]:
        """Those of the values that a column of a table has."""
        if not values:
            return []
        places = ", ".join("?" * len(values))
        return [row[0] for row in self.rows(f"SELECT {column} FROM {table} WHERE {column} IN ({places})", *values)]  # noqa: S608 - names of ours

    def locked_row(self, statement: str, *values: object) -> Sequence[Any] | None:
        """The first row, which nobody else changes until the transaction ends."""
        return self.row(statement + self.dialect.for_update, *values)


class Unreachable(Exception):
    """No connection to the database could be opened."""


class Database:
    """Runs transactions in threads, each on a connection that it has for itself."""

    def __init__(self, connect: Callable[[], Connection], dialect: Dialect, threads: int) -> None:
        self._connect = connect
        self._dialect = dialect
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="addresses")
        self._idle: LifoQueue[Connection] = LifoQueue()

    async def run(self, work: Callable[[Transaction], T]) -> T:
        """The answer of this work, committed."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.run_here, work)

    def run_here(self, work: Callable[[Transaction], T]) -> T:
        """The same in this thread. Whatever goes wrong, the transaction is undone."""
        connection = self._taken()
        try:
            answer = self._committed(connection, work)
        except BaseException:
            # It may be the connection that is broken, and then those that lie idle are so too.
            connection.close()
            self._close_idle()
            raise
        self._idle.put(connection)
        return answer

    def _committed(self, connection: Connection, work: Callable[[Transaction], T]) -> T:
        cursor: Cursor = connection.cursor()
        try:
            cursor.execute(self._dialect.begin)
            answer = work(Transaction(cursor, self._dialect))
            connection.commit()
        except BaseException:
            # A statement that nobody ends keeps a closed connection of SQLite, and its lock, for as long as the error
            # lives whose trace names the cursor.
            with suppress(Exception):
                cursor.close()
            raise
        return answer

    def close(self) -> None:
        """Wait for what runs, and close every connection."""
        self._threads.shutdown()
        self._close_idle()

    def _taken(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._opened()

    def _opened(self) -> Connection:
        try:
            return self._connect()
        except Exception as error:
            raise Unreachable(f"The database of addresses cannot be reached: {error}") from error

    def _close_idle(self) -> None:
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

"""One module: its tables in a SQLite file, its orders in flight, and what was asked of it."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from haulage.address_module import SQLITE, AddressTable, Transaction, address_module, table_statements

TABLES = ";\n".join(
    [*table_statements(SQLITE), "CREATE TABLE IF NOT EXISTS orders_in_flight (address_id INTEGER PRIMARY KEY)"]
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as it was sent."""

    method: str
    op_ids: tuple[str, ...]
    fault: str | None


@dataclass(frozen=True, slots=True)
class State:
    """An address as the tables have it."""

    address_id: int
    uprn: int | None
    record: dict[str, Any]


class Broken(Exception):
    """An operation that was to break broke."""


@dataclass
class OssModule:
    """Keeps addresses as the reference handler does, in a file that outlives it."""

    name: str
    file: Path
    token: str
    calls: list[Call] = field(default_factory=list)
    cursed: Counter[int] = field(default_factory=Counter)
    """UPRNs whose operations break, for as long as the affected calls last."""

    def __post_init__(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)

    def connect(self) -> sqlite3.Connection:
        """A connection for any thread."""
        connection = sqlite3.connect(self.file, timeout=30, isolation_level=None, check_same_thread=False)
        # What the process wrote survives its death; that of the machine is nothing to play.
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def app(self) -> web.Application:
        """The contract over these tables."""
        return address_module(
            self.connect, SQLITE, _has_in_flight_orders, token=self.token, addresses=self._table(), threads=1
        )

    def _table(self) -> Callable[[Transaction], AddressTable]:
        cursed = self.cursed

        class Table(AddressTable):
            def find_id(self, uprn: int) -> int | None:
                if uprn in cursed:
                    raise Broken(f"The transaction of UPRN {uprn} broke, as was ordered.")
                return super().find_id(uprn)

        return Table

    def states(self) -> list[State]:
        """All addresses, in order of their ids; those that are deleted logically have no UPRN."""
        rows = self._rows(
            "SELECT address_id, uprn, record FROM haulage_addresses "
            "UNION ALL SELECT address_id, NULL, record FROM haulage_deleted ORDER BY address_id"
        )
        return [State(address_id, uprn, json.loads(record)) for address_id, uprn, record in rows]

    def live(self) -> dict[int, State]:
        """The live addresses, by UPRN."""
        return {state.uprn: state for state in self.states() if state.uprn is not None}

    def applied(self) -> list[str]:
        """The ids of what took effect, in the order in which it did."""
        return [row[0] for row in self._rows("SELECT op_id FROM haulage_operations ORDER BY rowid")]

    def begin_orders(self, address_ids: Iterable[int]) -> None:
        """Let addresses have orders in flight."""
        self._change("INSERT OR IGNORE INTO orders_in_flight VALUES (?)", address_ids)

    def end_orders(self, address_ids: Iterable[int]) -> None:
        """Let them have none."""
        self._change("DELETE FROM orders_in_flight WHERE address_id = ?", address_ids)

    def forget(self, address_ids: Iterable[int]) -> None:
        """Lose addresses, as no operation would."""
        self._change("DELETE FROM haulage_addresses WHERE address_id = ?", address_ids)

    def spoil(self, address_ids: Iterable[int]) -> None:
        """Damage their records."""
        self._change("UPDATE haulage_addresses SET record = '{\"spoiled\": true}' WHERE address_id = ?", address_ids)

    def insert(self, state: State) -> None:
        """Put in a live address, as no operation would."""
        with closing(self.connect()) as connection:
            connection.execute(
                "INSERT INTO haulage_addresses (address_id, uprn, record) VALUES (?, ?, ?)",
                (state.address_id, state.uprn, json.dumps(state.record)),
            )

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            return connection.execute(statement).fetchall()

    def _change(self, statement: str, address_ids: Iterable[int]) -> None:
        with closing(self.connect()) as connection:
            connection.executemany(statement, [(each,) for each in address_ids])


def _has_in_flight_orders(transaction: Transaction, address_id: int) -> bool:
    return transaction.fetch_row("SELECT 1 FROM orders_in_flight WHERE address_id = ?", address_id) is not None

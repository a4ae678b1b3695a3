"""One module: its tables in a SQLite file, its orders in flight, and the calls that it received."""

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

from haulage.address_module import (
    SQLITE,
    AddressTable,
    Transaction,
    build_address_module,
    build_create_table_statements,
)

TABLES = ";\n".join(
    [
        *build_create_table_statements(SQLITE),
        "CREATE TABLE IF NOT EXISTS orders_in_flight (address_id INTEGER PRIMARY KEY)",
    ]
)


@dataclass(frozen=True, slots=True)
class OssCall:
    """One call, as it was received."""

    method: str
    op_ids: tuple[str, ...]
    fault: str | None


@dataclass(frozen=True, slots=True)
class AddressState:
    """An address in the tables."""

    address_id: int
    uprn: int | None
    record: dict[str, Any]


class OperationBroken(Exception):
    """An operation failed, as the scenario demands."""


@dataclass
class OssModule:
    """Keeps addresses like the reference handler, in a file that survives the process."""

    name: str
    file: Path
    token: str
    calls: list[OssCall] = field(default_factory=list)
    cursed: Counter[int] = field(default_factory=Counter)
    """UPRNs whose operations break, for as long as the affected calls last."""

    def __post_init__(self) -> None:
        with closing(self.connect()) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(TABLES)

    def connect(self) -> sqlite3.Connection:
        """Return a connection for any thread."""
        connection = sqlite3.connect(self.file, timeout=30, isolation_level=None, check_same_thread=False)
        # A killed process loses nothing; a power failure is not simulated.
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    def app(self) -> web.Application:
        """Return the HTTP application of the module over these tables."""
        return build_address_module(
            self.connect, SQLITE, _has_in_flight_orders, token=self.token, addresses=self._table(), threads=1
        )

    def _table(self) -> Callable[[Transaction], AddressTable]:
        cursed = self.cursed

        class Table(AddressTable):
            def find_id(self, uprn: int) -> int | None:
                if uprn in cursed:
                    raise OperationBroken(f"The transaction of UPRN {uprn} failed, as the scenario demands.")
                return super().find_id(uprn)

        return Table

    def states(self) -> list[AddressState]:
        """Return all addresses by id; logically deleted ones have no UPRN."""
        rows = self._rows(
            "SELECT address_id, uprn, record FROM haulage_addresses "
            "UNION ALL SELECT address_id, NULL, record FROM haulage_deleted ORDER BY address_id"
        )
        return [AddressState(address_id, uprn, json.loads(record)) for address_id, uprn, record in rows]

    def live(self) -> dict[int, AddressState]:
        """Return the live addresses by UPRN."""
        return {state.uprn: state for state in self.states() if state.uprn is not None}

    def list_applied(self) -> list[str]:
        """Return the ids of the operations that took effect, in order."""
        return [row[0] for row in self._rows("SELECT op_id FROM haulage_operations ORDER BY rowid")]

    def begin_orders(self, address_ids: Iterable[int]) -> None:
        """Begin orders in flight at addresses."""
        self._change("INSERT OR IGNORE INTO orders_in_flight VALUES (?)", address_ids)

    def end_orders(self, address_ids: Iterable[int]) -> None:
        """End the orders in flight at addresses."""
        self._change("DELETE FROM orders_in_flight WHERE address_id = ?", address_ids)

    def forget(self, address_ids: Iterable[int]) -> None:
        """Delete live addresses without an operation."""
        self._change("DELETE FROM haulage_addresses WHERE address_id = ?", address_ids)

    def spoil(self, address_ids: Iterable[int]) -> None:
        """Replace the records of addresses with others."""
        self._change("UPDATE haulage_addresses SET record = '{\"spoiled\": true}' WHERE address_id = ?", address_ids)

    def insert(self, state: AddressState) -> None:
        """Insert a live address without an operation."""
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

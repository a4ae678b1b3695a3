"""The tables of one module in memory, operations for it, and connections that break at a chosen step."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

from domain.addresses import operations as ours
from haulage.address_module import SQLITE, AddressTable, Operation, OperationResult
from haulage.address_module.database import Database, Transaction
from haulage.address_module.executor import OperationExecutor
from sims.oss.module import TABLES
from tests.support.address_oracle import ModuleOracle


class Breaks(Exception):
    """The connection broke."""


@dataclass
class Breaking:
    """A connection that breaks before its nth statement; commits count as one, and so does what follows a commit."""

    connection: sqlite3.Connection
    after: int | None

    def step(self) -> None:
        """One more statement."""
        if self.after is None:
            return
        self.after -= 1
        if self.after < 0:
            raise Breaks

    def cursor(self) -> Any:
        """A cursor that breaks, too."""
        return BreakingCursor(self, self.connection.cursor())

    def commit(self) -> None:
        """Commit; then it may still break, so that the caller does not learn of the commit."""
        self.step()
        self.connection.commit()
        self.step()

    def close(self) -> None:
        """What is not committed is undone; the database in memory stays."""
        self.connection.rollback()


@dataclass
class BreakingCursor:
    """A cursor of one."""

    owner: Breaking
    cursor: sqlite3.Cursor

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement, or break."""
        self.owner.step()
        self.cursor.execute(operation, parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)


@dataclass
class Tables:
    """A module in memory."""

    busy: set[int] = field(default_factory=set)
    connection: sqlite3.Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.executescript(TABLES)
        # Many are made, in examples that have no end of their own.
        weakref.finalize(self, self.connection.close)

    def send(self, *operations: ours.Operation, breaks_after: int | None = None) -> list[OperationResult]:
        """Apply operations in one transaction, as a batch is; raises Breaks after `breaks_after` statements."""
        database = Database(lambda: Breaking(self.connection, breaks_after), SQLITE, 1)
        read = [Operation.model_validate_json(each.json_bytes) for each in operations]

        def work(transaction: Transaction) -> list[OperationResult]:
            executor = OperationExecutor(
                transaction, AddressTable(transaction), lambda _, address_id: address_id in self.busy
            )
            return [executor.apply_unless_repeated_or_stale(operation) for operation in read]

        try:
            return database.run_sync(work)
        finally:
            database.close()

    def content(self) -> tuple[list[Any], ...]:
        """All that the tables hold, but for times."""
        return (
            self.addresses(),
            self._all("SELECT op_id, result FROM haulage_operations ORDER BY op_id"),
            self._all("SELECT * FROM haulage_marks WHERE record_seq + swap_seq > 0 ORDER BY uprn"),
        )

    def addresses(self) -> list[tuple[Any, ...]]:
        """Address id, UPRN, record, and the delete of those logically deleted."""
        return self._all(
            "SELECT address_id, uprn, record, NULL FROM haulage_addresses "
            "UNION ALL SELECT address_id, NULL, record, deleted_seq FROM haulage_deleted ORDER BY 1, 2"
        )

    def _all(self, statement: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement).fetchall()


def book_addresses(book: ModuleOracle, text: Callable[[Any], str]) -> list[tuple[Any, ...]]:
    """The same of an oracle."""
    live = [(address_id, uprn, text(record), None) for uprn, (address_id, record) in book.live.items()]
    logical = [(address_id, None, text(record), seq) for address_id, (seq, record) in book.logical.items()]
    return sorted([*live, *logical])


def swap(seq: int, uprn: int, uprn_2: int, **more: Any) -> ours.Operation:
    """A swap."""
    return ours.Operation(op_id=str(seq), seq=seq, kind=ours.OperationKind.SWAP, uprn=uprn, uprn_2=uprn_2, **more)


def upsert(seq: int, uprn: int, address_id: int, **record: Any) -> ours.Operation:
    """A createUpdate."""
    return ours.Operation(
        op_id=str(seq), seq=seq, kind=ours.OperationKind.UPSERT, uprn=uprn, address_id=address_id, record=record
    )


def delete(seq: int, uprn: int, address_id: int | None = None) -> ours.Operation:
    """A delete."""
    return ours.Operation(op_id=str(seq), seq=seq, kind=ours.OperationKind.DELETE, uprn=uprn, address_id=address_id)


def purge(seq: int, uprn: int, address_id: int, attempt: int = 1) -> ours.Operation:
    """A purge of what the delete `seq` left."""
    return ours.Operation(
        op_id=ours.build_purge_operation_id(address_id, str(attempt)),
        seq=seq,
        kind=ours.OperationKind.PURGE,
        uprn=uprn,
        address_id=address_id,
    )


UPRNS = st.integers(1, 4)
ADDRESSES = st.integers(11, 15)


@cache
def operations(seq: int) -> st.SearchStrategy[ours.Operation]:
    """Any operation with this seq, on few addresses, so that they meet."""
    return st.one_of(
        st.builds(swap, st.just(seq), UPRNS, UPRNS, delete_after=st.booleans()),
        st.builds(upsert, st.just(seq), UPRNS, ADDRESSES, street=st.integers(0, 9)),
        st.builds(delete, st.just(seq), UPRNS, st.none() | ADDRESSES),
        st.builds(purge, st.just(seq), UPRNS, ADDRESSES, st.just(seq)),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[ours.Operation]:
    """Operations as they may come: some twice, some late."""
    known = [draw(operations(seq)) for seq in range(1, draw(st.integers(1, 12)) + 1)]
    order = draw(st.lists(st.integers(0, len(known) - 1), max_size=12))
    # Mostly in order, as a cycle sends them; then what was delayed and repeated.
    return [*known, *(known[place] for place in order)] if draw(st.booleans()) else [known[place] for place in order]

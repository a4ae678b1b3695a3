"""The addresses of a module: what the rules need of its tables, and tables that will do where there are none yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import to_json

from haulage.address_module.database import Transaction

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a UPRN has, as it is compared."""

    uprn: int
    address_id: int
    record: Record


class Addresses(Protocol):
    """A module's own tables, within one transaction: what each UPRN has, and what was deleted logically."""

    def at(self, uprn: int) -> int | None:
        """The id of the address that has this UPRN; locked."""

    def live(self, uprns: Sequence[int]) -> list[int]:
        """Those of these UPRNs that an address has."""

    def lives(self, address_id: int, *, beside: int) -> bool:
        """Whether any UPRN but this one has an address of this id."""

    def insert(self, uprn: int, address_id: int, record: Record) -> None:
        """Give an address to a UPRN that has none. What was deleted logically under its id is no more."""

    def replace(self, uprn: int, record: Record) -> None:
        """Give the address of a UPRN this record."""

    def exchange(self, one: int, other: int) -> None:
        """Give each of two UPRNs what the other has: id, record and all."""

    def remove(self, uprn: int) -> None:
        """Take the address from a UPRN, for good."""

    def put_away(self, uprn: int, address_id: int, seq: int) -> None:
        """Take the address from a UPRN, and keep it logically deleted under its id, with what deleted it."""

    def deleted(self, address_id: int) -> int | None:
        """What logically deleted the address of this id; locked."""

    def purge(self, address_id: int) -> None:
        """Remove the logically deleted address of this id."""

    def page(self, after: int, limit: int) -> Sequence[Shown]:
        """What UPRNs have, in their order, from the first above `after`."""


class AddressTable:
    """`haulage_addresses` and `haulage_deleted`, as the page for module owners lays them out."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def at(self, uprn: int) -> int | None:
        """The id of the address that has this UPRN; locked."""
        row = self._transaction.locked_row("SELECT address_id FROM haulage_addresses WHERE uprn = ?", uprn)
        return row[0] if row else None

    def live(self, uprns: Sequence[int]) -> list[int]:
        """Those of these UPRNs that an address has."""
        return self._transaction.known("uprn", "haulage_addresses", uprns)

    def lives(self, address_id: int, *, beside: int) -> bool:
        """Whether any UPRN but this one has an address of this id."""
        statement = "SELECT 1 FROM haulage_addresses WHERE address_id = ? AND uprn <> ? LIMIT 1"
        return self._transaction.row(statement, address_id, beside) is not None

    def insert(self, uprn: int, address_id: int, record: Record) -> None:
        """Give an address to a UPRN that has none. What was deleted logically under its id is no more."""
        self.purge(address_id)
        self._transaction.run(
            "INSERT INTO haulage_addresses (uprn, address_id, record) VALUES (?, ?, ?)", uprn, address_id, _text(record)
        )

    def replace(self, uprn: int, record: Record) -> None:
        """Give the address of a UPRN this record."""
        self._transaction.run("UPDATE haulage_addresses SET record = ? WHERE uprn = ?", _text(record), uprn)

    def exchange(self, one: int, other: int) -> None:
        """Give each of two UPRNs what the other has; as no two may be alike, one is its negative in between."""
        for before, after in ((one, -one), (other, one), (-one, other)):
            self._transaction.run("UPDATE haulage_addresses SET uprn = ? WHERE uprn = ?", after, before)

    def remove(self, uprn: int) -> None:
        """Take the address from a UPRN, for good."""
        self._transaction.run("DELETE FROM haulage_addresses WHERE uprn = ?", uprn)

    def put_away(self, uprn: int, address_id: int, seq: int) -> None:
        """Take the address from a UPRN, and keep it logically deleted under its id, with what deleted it."""
        self.purge(address_id)
        self._transaction.run(
            "INSERT INTO haulage_deleted (address_id, uprn, record, deleted_seq) "
            "SELECT address_id, uprn, record, ? FROM haulage_addresses WHERE uprn = ?",
            seq,
            uprn,
        )
        self.remove(uprn)

    def deleted(self, address_id: int) -> int | None:
        """What logically deleted the address of this id; locked."""
        statement = "SELECT deleted_seq FROM haulage_deleted WHERE address_id = ?"
        row = self._transaction.locked_row(statement, address_id)
        return row[0] if row else None

    def purge(self, address_id: int) -> None:
        """Remove the logically deleted address of this id."""
        self._transaction.run("DELETE FROM haulage_deleted WHERE address_id = ?", address_id)

    def page(self, after: int, limit: int) -> Sequence[Shown]:
        """What UPRNs have, in their order, from the first above `after`."""
        found = self._transaction.rows(
            "SELECT uprn, address_id, record FROM haulage_addresses WHERE uprn > ? ORDER BY uprn LIMIT ?", after, limit
        )
        return [Shown(each[0], each[1], _record(each[2])) for each in found]


def _text(record: Record) -> str:
    return to_json(record).decode()


def _record(stored: Any) -> Record:
    """Some drivers read JSON themselves."""
    record: Record = json.loads(stored) if isinstance(stored, (str, bytes)) else stored
    return record

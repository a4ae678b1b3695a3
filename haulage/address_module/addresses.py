"""The addresses of a module: what the rules need of its table, and a table that will do where there is none yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from haulage.address_module.database import Transaction

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Address:
    """An address; a logically deleted one has no UPRN."""

    address_id: int
    uprn: int | None
    deleted_seq: int | None = None
    """Of a logically deleted one: the delete."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An address with all that is compared."""

    address_id: int
    uprn: int
    record: Record
    logical: bool


class Addresses(Protocol):
    """A module's own table, within one transaction. Reads lock what they find."""

    def by_uprn(self, uprn: int) -> Address | None:
        """The live address that has this UPRN."""

    def by_id(self, address_id: int) -> Address | None:
        """The address of this id, live or logically deleted."""

    def insert(self, address_id: int, uprn: int, record: Record) -> None:
        """A new address."""

    def replace(self, address_id: int, uprn: int, record: Record) -> None:
        """Give an address this record, and this UPRN: a logically deleted one lives again."""

    def exchange(self, first: Address, second: Address) -> None:
        """Give each the UPRN of the other."""

    def put_away(self, address_id: int, seq: int) -> None:
        """Delete logically: its UPRN becomes free, and is remembered with the delete."""

    def remove(self, address_id: int) -> None:
        """Delete for good."""

    def page(self, after: int, limit: int) -> Sequence[Shown]:
        """Addresses in order of their ids, from the first above `after`."""


class AddressTable:
    """`haulage_addresses`, as the page for module owners lays it out."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def by_uprn(self, uprn: int) -> Address | None:
        """The live address that has this UPRN."""
        return self._found("SELECT address_id, uprn, deleted_seq FROM haulage_addresses WHERE uprn = ?", uprn)

    def by_id(self, address_id: int) -> Address | None:
        """The address of this id, live or logically deleted."""
        return self._found(
            "SELECT address_id, uprn, deleted_seq FROM haulage_addresses WHERE address_id = ?", address_id
        )

    def insert(self, address_id: int, uprn: int, record: Record) -> None:
        """A new address."""
        self._transaction.run(
            "INSERT INTO haulage_addresses (address_id, uprn, last_uprn, record) VALUES (?, ?, ?, ?)",
            address_id,
            uprn,
            uprn,
            _text(record),
        )

    def replace(self, address_id: int, uprn: int, record: Record) -> None:
        """Give an address this record, and this UPRN: a logically deleted one lives again."""
        self._transaction.run(
            "UPDATE haulage_addresses SET uprn = ?, last_uprn = ?, record = ?, deleted_seq = NULL WHERE address_id = ?",
            uprn,
            uprn,
            _text(record),
            address_id,
        )

    def exchange(self, first: Address, second: Address) -> None:
        """Give each the UPRN of the other; in between, the first has none, because no two may have the same."""
        self._name(first.address_id, None)
        self._name(second.address_id, first.uprn)
        self._name(first.address_id, second.uprn)

    def put_away(self, address_id: int, seq: int) -> None:
        """Delete logically: its UPRN becomes free, and is remembered with the delete."""
        self._transaction.run(
            "UPDATE haulage_addresses SET uprn = NULL, deleted_seq = ? WHERE address_id = ?", seq, address_id
        )

    def remove(self, address_id: int) -> None:
        """Delete for good."""
        self._transaction.run("DELETE FROM haulage_addresses WHERE address_id = ?", address_id)

    def page(self, after: int, limit: int) -> Sequence[Shown]:
        """Addresses in order of their ids, from the first above `after`."""
        found = self._transaction.rows(
            "SELECT address_id, last_uprn, record, uprn IS NULL FROM haulage_addresses WHERE address_id > ? "
            "ORDER BY address_id LIMIT ?",
            after,
            limit,
        )
        return [Shown(each[0], each[1], _record(each[2]), bool(each[3])) for each in found]

    def _name(self, address_id: int, uprn: int | None) -> None:
        self._transaction.run(
            "UPDATE haulage_addresses SET uprn = ?, last_uprn = COALESCE(?, last_uprn) WHERE address_id = ?",
            uprn,
            uprn,
            address_id,
        )

    def _found(self, statement: str, value: int) -> Address | None:
        row = self._transaction.locked_row(statement, value)
        return Address(*row) if row else None


def _text(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def _record(stored: Any) -> Record:
    """Some drivers read JSON themselves."""
    record: Record = json.loads(stored) if isinstance(stored, (str, bytes)) else stored
    return record

"""The addresses of a module: what operations need of its tables, and tables for modules that have none yet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic_core import to_json

from haulage.address_module.database import Transaction

Record = dict[str, Any]
ROWS_PER_STATEMENT: Final = 100
PAGE_MAX_BYTES: Final = 16 * 1024 * 1024
"""Records of a page of several addresses; Haulage requests fewer if they are larger."""


class PageTooLarge(Exception):
    """The records of a page are too large to be loaded together."""


@dataclass(frozen=True, slots=True)
class AddressRow:
    """The address of a UPRN."""

    uprn: int
    address_id: int
    record: Record


class AddressStore(Protocol):
    """A module's own tables within one transaction: the address of each UPRN, and logically deleted addresses."""

    def find_id(self, uprn: int) -> int | None:
        """Return the id of the address that has this UPRN, and lock it."""

    def list_live(self, uprns: Sequence[int]) -> list[int]:
        """Return those of these UPRNs that have an address."""

    def is_used(self, address_id: int, *, excluded_uprn: int) -> bool:
        """Whether another UPRN than `excluded_uprn` has an address with this id."""

    def insert(self, uprn: int, address_id: int, record: Record) -> None:
        """Give a UPRN without an address this one. A logically deleted address with this id is removed."""

    def replace(self, uprn: int, record: Record) -> None:
        """Replace the record of a UPRN's address."""

    def exchange_addresses_of_uprns(self, one: int, other: int) -> None:
        """Exchange the addresses of two UPRNs: id, record and all."""

    def remove(self, uprn: int) -> None:
        """Remove the address of a UPRN for good."""

    def delete_logically(self, uprn: int, address_id: int, seq: int) -> None:
        """Remove the address of a UPRN, and keep it under its id with the seq of its delete."""

    def find_and_lock_delete_seq(self, address_id: int) -> int | None:
        """Return the seq of the operation that logically deleted this address, and lock it."""

    def purge(self, address_id: int) -> None:
        """Remove the logically deleted address with this id."""

    def list_page(self, after: int, limit: int) -> Sequence[AddressRow]:
        """Return addresses in the order of their UPRNs, from the first above `after`.

        Raises:
            PageTooLarge: Their records together are too large to be loaded; fewer are requested then.
        """


class AddressTable:
    """The store over `haulage_addresses` and `haulage_deleted`, see `build_create_table_statements`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def find_id(self, uprn: int) -> int | None:
        row = self._transaction.fetch_locked_row("SELECT address_id FROM haulage_addresses WHERE uprn = ?", uprn)
        return row[0] if row else None

    def list_live(self, uprns: Sequence[int]) -> list[int]:
        return self._transaction.select_existing("uprn", "haulage_addresses", uprns)

    def is_used(self, address_id: int, *, excluded_uprn: int) -> bool:
        statement = "SELECT 1 FROM haulage_addresses WHERE address_id = ? AND uprn <> ? LIMIT 1"
        return self._transaction.fetch_row(statement, address_id, excluded_uprn) is not None

    def insert(self, uprn: int, address_id: int, record: Record) -> None:
        self.purge(address_id)
        self._transaction.run(
            "INSERT INTO haulage_addresses (uprn, address_id, record) VALUES (?, ?, ?)",
            uprn,
            address_id,
            _encode_record(record),
        )

    def replace(self, uprn: int, record: Record) -> None:
        self._transaction.run("UPDATE haulage_addresses SET record = ? WHERE uprn = ?", _encode_record(record), uprn)

    def exchange_addresses_of_uprns(self, one: int, other: int) -> None:
        """Exchange two addresses; UPRNs are unique, so one is negative in between."""
        for before, after in ((one, -one), (other, one), (-one, other)):
            self._transaction.run("UPDATE haulage_addresses SET uprn = ? WHERE uprn = ?", after, before)

    def remove(self, uprn: int) -> None:
        self._transaction.run("DELETE FROM haulage_addresses WHERE uprn = ?", uprn)

    def delete_logically(self, uprn: int, address_id: int, seq: int) -> None:
        self.purge(address_id)
        self._transaction.run(
            "INSERT INTO haulage_deleted (address_id, uprn, record, deleted_seq) "
            "SELECT address_id, uprn, record, ? FROM haulage_addresses WHERE uprn = ?",
            seq,
            uprn,
        )
        self.remove(uprn)

    def find_and_lock_delete_seq(self, address_id: int) -> int | None:
        statement = "SELECT deleted_seq FROM haulage_deleted WHERE address_id = ?"
        row = self._transaction.fetch_locked_row(statement, address_id)
        return row[0] if row else None

    def purge(self, address_id: int) -> None:
        self._transaction.run("DELETE FROM haulage_deleted WHERE address_id = ?", address_id)

    def list_page(self, after: int, limit: int) -> Sequence[AddressRow]:
        statement = "SELECT uprn, address_id, record FROM haulage_addresses WHERE uprn > ? ORDER BY uprn LIMIT ?"
        found: list[AddressRow] = []
        size, has_more = 0, True
        # A few at a time: drivers load all rows of a statement.
        while has_more and len(found) < limit:
            wanted = min(ROWS_PER_STATEMENT, limit - len(found))
            rows = self._transaction.fetch_rows(statement, found[-1].uprn if found else after, wanted)
            found += [AddressRow(each[0], each[1], _decode_record(each[2])) for each in rows]
            size += sum(_measure_record(each[2]) for each in rows)
            if size > PAGE_MAX_BYTES and len(found) > 1:
                raise PageTooLarge(f"The records of {len(found)} addresses have {size:,} bytes. Request fewer.")
            has_more = len(rows) == wanted
        return found


def _measure_record(stored: Any) -> int:
    return len(stored) if isinstance(stored, (str, bytes)) else len(to_json(stored))


def _encode_record(record: Record) -> str:
    return to_json(record).decode()


def _decode_record(stored: Any) -> Record:
    """Return the stored record; some drivers decode JSON themselves."""
    record: Record = json.loads(stored) if isinstance(stored, (str, bytes)) else stored
    return record

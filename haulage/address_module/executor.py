"""Execute an operation in one transaction: once, in order, and completely or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from haulage.address_module.addresses import AddressStore
from haulage.address_module.database import Transaction
from haulage.address_module.models import Operation, OperationKind, OperationOutcome, OperationResult

HasInFlightOrders = Callable[[Transaction, int], bool]
"""Whether an address has orders in flight, as this transaction sees it."""


@dataclass(slots=True)
class NewestSeqByUprn:
    """The highest seq that took effect on each UPRN, by sort of operation, locked in the database."""

    transaction: Transaction
    records: dict[int, int]
    swaps: dict[int, int]

    @classmethod
    def lock_and_read(cls, transaction: Transaction, uprns: list[int]) -> Self:
        """Lock and read the marks of some UPRNs, in this order."""
        marks = cls(transaction, {}, {})
        for uprn in uprns:
            marks._lock_row(uprn)
        return marks

    def _lock_row(self, uprn: int) -> None:
        statement = "SELECT record_seq, swap_seq FROM haulage_marks WHERE uprn = ?"
        row = self.transaction.fetch_locked_row(statement, uprn)
        new = "haulage_marks (uprn, record_seq, swap_seq) VALUES (?, 0, 0)"
        if row is None and not self.transaction.insert_new(new, uprn):
            row = self.transaction.fetch_locked_row(statement, uprn)
        self.records[uprn], self.swaps[uprn] = row or (0, 0)

    def get_newest(self, operation: Operation) -> int:
        """Return the highest seq of the operation's own sort on its UPRNs."""
        known = self.swaps if operation.kind is OperationKind.SWAP else self.records
        return max(known.values())

    def set_newest_seq(self, operation: Operation) -> None:
        """Record that an operation took effect."""
        if operation.kind is OperationKind.SWAP:
            for uprn in operation.uprns:
                self._set_mark_column("swap_seq", operation.seq, uprn)
        if operation.kind is not OperationKind.SWAP or operation.delete_after:
            self._set_mark_column("record_seq", max(operation.seq, self.records[operation.uprn]), operation.uprn)

    def _set_mark_column(self, column: str, seq: int, uprn: int) -> None:
        self.transaction.run(f"UPDATE haulage_marks SET {column} = ? WHERE uprn = ?", seq, uprn)  # noqa: S608


class OperationExecutor:
    """Executes operations within one transaction."""

    def __init__(self, transaction: Transaction, addresses: AddressStore, in_flight: HasInFlightOrders) -> None:
        self._transaction = transaction
        self._addresses = addresses
        self._in_flight = in_flight

    def apply_unless_repeated_or_stale(self, operation: Operation) -> OperationResult:
        """Apply an operation, unless it was applied before."""
        marks = NewestSeqByUprn.lock_and_read(self._transaction, operation.uprns)
        if before := self._find_stored_result(operation.op_id):
            return self._build_repeated_result(operation, before)
        if operation.kind is not OperationKind.PURGE and operation.seq <= marks.get_newest(operation):
            return _build_result(
                operation, OperationOutcome.STALE, error=f"seq {marks.get_newest(operation)} was applied before."
            )
        result = self._execute_by_kind(operation)
        if operation.kind is OperationKind.PURGE:
            # A purge depends on the delete that it names, is decided each time, and records no mark.
            return result
        if result.outcome in (OperationOutcome.APPLIED, OperationOutcome.LOGICAL):
            self._store_result(result)
            marks.set_newest_seq(operation)
        return result

    def _find_stored_result(self, op_id: str) -> OperationResult | None:
        row = self._transaction.fetch_row("SELECT result FROM haulage_operations WHERE op_id = ?", op_id)
        return OperationResult.model_validate_json(row[0]) if row else None

    def _build_repeated_result(self, operation: Operation, before: OperationResult) -> OperationResult:
        """Return the first result, without an address that this operation no longer keeps."""
        again: dict[str, Any] = {"outcome": OperationOutcome.ALREADY, "was": before.outcome}
        kept = before.logical_address_id
        if kept is not None and self._addresses.find_and_lock_delete_seq(kept) != operation.seq:
            again |= {"logical_address_id": None, "in_flight": False}
        return before.model_copy(update=again)

    def _store_result(self, result: OperationResult) -> None:
        self._transaction.run(
            "INSERT INTO haulage_operations (op_id, result) VALUES (?, ?)",
            result.op_id,
            result.model_dump_json(exclude_defaults=True),
        )

    def _execute_by_kind(self, operation: Operation) -> OperationResult:
        match operation.kind:
            case OperationKind.SWAP:
                return self._swap(operation)
            case OperationKind.UPSERT:
                return self._upsert(operation)
            case OperationKind.DELETE:
                return self._delete(operation)
            case OperationKind.PURGE:
                return self._purge(operation)

    def _swap(self, operation: Operation) -> OperationResult:
        one, other = operation.uprn, operation.uprn_2 or operation.uprn
        if one == other:
            return _build_result(operation, OperationOutcome.REFUSED, error=f"Both sides of the swap are UPRN {one}.")
        ids = {uprn: self._addresses.find_id(uprn) for uprn in operation.uprns}
        if missing := [uprn for uprn in (one, other) if ids[uprn] is None]:
            return _build_result(operation, OperationOutcome.MISSING, missing=missing)
        self._addresses.exchange_addresses_of_uprns(one, other)
        # The first UPRN now has the other address.
        kept_id = self._remove_or_delete_logically(one, ids[other], operation.seq) if operation.delete_after else None
        return _build_result(
            operation, OperationOutcome.APPLIED, logical_address_id=kept_id, in_flight=kept_id is not None
        )

    def _upsert(self, operation: Operation) -> OperationResult:
        uprn, address_id, record = operation.uprn, operation.address_id or 0, operation.record or {}
        current_id, kept_id = self._addresses.find_id(uprn), None
        if current_id == address_id:
            self._addresses.replace(uprn, record)
        else:
            kept_id = self._remove_or_delete_logically(uprn, current_id, operation.seq)
            self._addresses.insert(uprn, address_id, record)
        return _build_result(
            operation,
            OperationOutcome.APPLIED,
            address_id=address_id,
            logical_address_id=kept_id,
            in_flight=kept_id is not None,
        )

    def _delete(self, operation: Operation) -> OperationResult:
        current_id = self._addresses.find_id(operation.uprn)
        kept_id = self._remove_or_delete_logically(operation.uprn, current_id, operation.seq)
        return _build_result(
            operation,
            OperationOutcome.APPLIED if kept_id is None else OperationOutcome.LOGICAL,
            address_id=current_id,
            logical_address_id=kept_id,
            in_flight=kept_id is not None,
        )

    def _purge(self, operation: Operation) -> OperationResult:
        address_id = operation.address_id or 0
        deleted = self._addresses.find_and_lock_delete_seq(address_id)
        if (deleted or 0) > operation.seq or (deleted is None and self._addresses.is_used(address_id, excluded_uprn=0)):
            error = f"Address {address_id} was written after the delete {operation.seq}."
            return _build_result(operation, OperationOutcome.STALE, address_id=address_id, error=error)
        if deleted is not None and self._in_flight(self._transaction, address_id):
            return _build_result(
                operation,
                OperationOutcome.LOGICAL,
                address_id=address_id,
                logical_address_id=address_id,
                in_flight=True,
            )
        self._addresses.purge(address_id)
        return _build_result(operation, OperationOutcome.APPLIED, address_id=address_id)

    def _remove_or_delete_logically(self, uprn: int, address_id: int | None, seq: int) -> int | None:
        """Remove the address of a UPRN, if it has one; return its id if it is kept logically deleted."""
        if address_id is None:
            return None
        if self._in_flight(self._transaction, address_id) and not self._addresses.is_used(
            address_id, excluded_uprn=uprn
        ):
            self._addresses.delete_logically(uprn, address_id, seq)
            return address_id
        self._addresses.remove(uprn)
        return None


def list_applied_operations(transaction: Transaction, op_ids: list[str]) -> list[str]:
    """Return those of the operations that took effect."""
    return transaction.select_existing("op_id", "haulage_operations", op_ids)


def _build_result(operation: Operation, outcome: OperationOutcome, **facts: Any) -> OperationResult:
    return OperationResult(op_id=operation.op_id, outcome=outcome, **facts)

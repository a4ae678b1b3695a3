"""What an operation does, in one transaction: once, in order, and never half."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from haulage.address_module.addresses import Addresses
from haulage.address_module.database import Transaction
from haulage.address_module.models import Operation, OperationKind, OperationOutcome, OperationResult

HasInFlightOrders = Callable[[Transaction, int], bool]
"""Whether an address has orders in flight, as this transaction sees it."""


@dataclass(slots=True)
class Marks:
    """The highest seq that took effect on each UPRN, by sort. Who holds them is alone with these UPRNs."""

    transaction: Transaction
    records: dict[int, int]
    swaps: dict[int, int]

    @classmethod
    def locked(cls, transaction: Transaction, uprns: list[int]) -> Self:
        """Those of some UPRNs, locked in this order."""
        marks = cls(transaction, {}, {})
        for uprn in uprns:
            marks._lock(uprn)
        return marks

    def _lock(self, uprn: int) -> None:
        statement = "SELECT record_seq, swap_seq FROM haulage_marks WHERE uprn = ?"
        row = self.transaction.locked_row(statement, uprn)
        new = "haulage_marks (uprn, record_seq, swap_seq) VALUES (?, 0, 0)"
        if row is None and not self.transaction.insert_new(new, uprn):
            row = self.transaction.locked_row(statement, uprn)
        self.records[uprn], self.swaps[uprn] = row or (0, 0)

    def newest(self, operation: Operation) -> int:
        """The highest seq of the operation's own sort on its UPRNs."""
        known = self.swaps if operation.kind is OperationKind.SWAP else self.records
        return max(known.values())

    def move(self, operation: Operation) -> None:
        """Note that an operation took effect."""
        if operation.kind is OperationKind.SWAP:
            for uprn in operation.uprns:
                self._set("swap_seq", operation.seq, uprn)
        if operation.kind is not OperationKind.SWAP or operation.delete_after:
            self._set("record_seq", max(operation.seq, self.records[operation.uprn]), operation.uprn)

    def _set(self, column: str, seq: int, uprn: int) -> None:
        self.transaction.run(f"UPDATE haulage_marks SET {column} = ? WHERE uprn = ?", seq, uprn)  # noqa: S608


class Applying:
    """Applies operations within one transaction."""

    def __init__(self, transaction: Transaction, addresses: Addresses, in_flight: HasInFlightOrders) -> None:
        self._transaction = transaction
        self._addresses = addresses
        self._in_flight = in_flight

    def apply(self, operation: Operation) -> OperationResult:
        """Apply it, unless that was done before."""
        marks = Marks.locked(self._transaction, operation.uprns)
        if before := self._before(operation.op_id):
            return self._again(operation, before)
        if operation.kind is not OperationKind.PURGE and operation.seq <= marks.newest(operation):
            return _result(
                operation, OperationOutcome.STALE, error=f"seq {marks.newest(operation)} was applied before."
            )
        result = self._applied(operation)
        if operation.kind is OperationKind.PURGE:
            # A purge is decided anew each time, by the delete that it names; it moves no mark.
            return result
        if result.outcome in (OperationOutcome.APPLIED, OperationOutcome.LOGICAL):
            self._remember(result)
            marks.move(operation)
        return result

    def _before(self, op_id: str) -> OperationResult | None:
        row = self._transaction.row("SELECT result FROM haulage_operations WHERE op_id = ?", op_id)
        return OperationResult.model_validate_json(row[0]) if row else None

    def _again(self, operation: Operation, before: OperationResult) -> OperationResult:
        """What was said before, but for an address that this operation keeps no longer."""
        again: dict[str, Any] = {"outcome": OperationOutcome.ALREADY, "was": before.outcome}
        kept = before.logical_address_id
        if kept is not None and self._addresses.deleted(kept) != operation.seq:
            again |= {"logical_address_id": None, "in_flight": False}
        return before.model_copy(update=again)

    def _remember(self, result: OperationResult) -> None:
        self._transaction.run(
            "INSERT INTO haulage_operations (op_id, result) VALUES (?, ?)",
            result.op_id,
            result.model_dump_json(exclude_defaults=True),
        )

    def _applied(self, operation: Operation) -> OperationResult:
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
            return _result(operation, OperationOutcome.REFUSED, error=f"Both sides of the swap are UPRN {one}.")
        ids = {uprn: self._addresses.at(uprn) for uprn in operation.uprns}
        if missing := [uprn for uprn in (one, other) if ids[uprn] is None]:
            return _result(operation, OperationOutcome.MISSING, missing=missing)
        self._addresses.exchange(one, other)
        # What was the other's now has the first UPRN.
        left = self._taken_away(one, ids[other], operation.seq) if operation.delete_after else None
        return _result(operation, OperationOutcome.APPLIED, logical_address_id=left, in_flight=left is not None)

    def _upsert(self, operation: Operation) -> OperationResult:
        uprn, address_id, record = operation.uprn, operation.address_id or 0, operation.record or {}
        here, left = self._addresses.at(uprn), None
        if here == address_id:
            self._addresses.replace(uprn, record)
        else:
            left = self._taken_away(uprn, here, operation.seq)
            self._addresses.insert(uprn, address_id, record)
        return _result(
            operation,
            OperationOutcome.APPLIED,
            address_id=address_id,
            logical_address_id=left,
            in_flight=left is not None,
        )

    def _delete(self, operation: Operation) -> OperationResult:
        here = self._addresses.at(operation.uprn)
        left = self._taken_away(operation.uprn, here, operation.seq)
        return _result(
            operation,
            OperationOutcome.APPLIED if left is None else OperationOutcome.LOGICAL,
            address_id=here,
            logical_address_id=left,
            in_flight=left is not None,
        )

    def _purge(self, operation: Operation) -> OperationResult:
        address_id = operation.address_id or 0
        deleted = self._addresses.deleted(address_id)
        if (deleted or 0) > operation.seq or (deleted is None and self._addresses.lives(address_id, beside=0)):
            error = f"Address {address_id} was written after the delete {operation.seq}."
            return _result(operation, OperationOutcome.STALE, address_id=address_id, error=error)
        if deleted is not None and self._in_flight(self._transaction, address_id):
            return _result(
                operation,
                OperationOutcome.LOGICAL,
                address_id=address_id,
                logical_address_id=address_id,
                in_flight=True,
            )
        self._addresses.purge(address_id)
        return _result(operation, OperationOutcome.APPLIED, address_id=address_id)

    def _taken_away(self, uprn: int, address_id: int | None, seq: int) -> int | None:
        """Take the address from a UPRN, if it has one; returns its id if it is kept logically deleted."""
        if address_id is None:
            return None
        if self._in_flight(self._transaction, address_id) and not self._addresses.lives(address_id, beside=uprn):
            self._addresses.put_away(uprn, address_id, seq)
            return address_id
        self._addresses.remove(uprn)
        return None


def known_operations(transaction: Transaction, op_ids: list[str]) -> list[str]:
    """Those that took effect."""
    return transaction.known("op_id", "haulage_operations", op_ids)


def _result(operation: Operation, outcome: OperationOutcome, **facts: Any) -> OperationResult:
    return OperationResult(op_id=operation.op_id, outcome=outcome, **facts)

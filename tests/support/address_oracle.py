"""What a module must do, in plain Python: dictionaries instead of tables, the rules word by word as in the contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from domain.addresses.messages import ChangeMessage, CreateUpdateMessage, DeleteMessage, SwapMessage
from domain.addresses.operations import Operation, OperationKind, OperationOutcome, build_operation_id

Record = dict[str, Any]


@dataclass
class ModuleOracle:
    """One module's addresses."""

    live: dict[int, tuple[int, Record]] = field(default_factory=dict)
    """By UPRN: address id and record."""
    logical: dict[int, tuple[int, Record]] = field(default_factory=dict)
    """By address id: the delete's seq and the record."""
    busy: set[int] = field(default_factory=set)
    """Addresses with orders in flight."""
    done: dict[str, OperationOutcome] = field(default_factory=dict)
    record_seq: dict[int, int] = field(default_factory=dict)
    swap_seq: dict[int, int] = field(default_factory=dict)

    def apply(self, operation: Operation) -> OperationOutcome:
        """Apply an operation and say what became of it."""
        if operation.op_id in self.done:
            return OperationOutcome.ALREADY
        marks = self.swap_seq if operation.kind is OperationKind.SWAP else self.record_seq
        uprns = {operation.uprn, operation.uprn_2 or operation.uprn}
        if operation.kind is not OperationKind.PURGE and any(marks.get(uprn, 0) >= operation.seq for uprn in uprns):
            return OperationOutcome.STALE
        outcome: OperationOutcome = getattr(self, f"_{operation.kind}")(operation)
        if operation.kind is not OperationKind.PURGE and outcome in (
            OperationOutcome.APPLIED,
            OperationOutcome.LOGICAL,
        ):
            self.done[operation.op_id] = outcome
            marks |= dict.fromkeys(uprns, operation.seq)
            if operation.delete_after:
                self.record_seq[operation.uprn] = max(self.record_seq.get(operation.uprn, 0), operation.seq)
        return outcome

    def _swap(self, operation: Operation) -> OperationOutcome:
        first, second = operation.uprn, operation.uprn_2 or 0
        if first == second:
            return OperationOutcome.REFUSED
        if first not in self.live or second not in self.live:
            return OperationOutcome.MISSING
        self.live[first], self.live[second] = self.live[second], self.live[first]
        if operation.delete_after:
            self._take_away(first, operation.seq)
        return OperationOutcome.APPLIED

    def _upsert(self, operation: Operation) -> OperationOutcome:
        address_id = operation.address_id or 0
        if operation.uprn in self.live and self.live[operation.uprn][0] != address_id:
            self._take_away(operation.uprn, operation.seq)
        self.logical.pop(address_id, None)
        self.live[operation.uprn] = address_id, operation.record or {}
        return OperationOutcome.APPLIED

    def _delete(self, operation: Operation) -> OperationOutcome:
        if operation.uprn in self.live and self._take_away(operation.uprn, operation.seq):
            return OperationOutcome.LOGICAL
        return OperationOutcome.APPLIED

    def _purge(self, operation: Operation) -> OperationOutcome:
        address_id = operation.address_id or 0
        if address_id not in self.logical:
            return OperationOutcome.STALE if self._lives(address_id) else OperationOutcome.APPLIED
        if self.logical[address_id][0] > operation.seq:
            return OperationOutcome.STALE
        if address_id in self.busy:
            return OperationOutcome.LOGICAL
        del self.logical[address_id]
        return OperationOutcome.APPLIED

    def _take_away(self, uprn: int, seq: int) -> bool:
        address_id, record = self.live.pop(uprn)
        if address_id not in self.busy or self._lives(address_id):
            return False
        self.logical[address_id] = seq, record
        return True

    def _lives(self, address_id: int) -> bool:
        return any(address_id == other for other, _ in self.live.values())


def build_operation(log_id: int, content: ChangeMessage) -> Operation:
    """Build the operation that a message asks of a module."""
    op_id = build_operation_id(log_id)
    match content:
        case SwapMessage():
            return Operation(
                op_id=op_id,
                seq=log_id,
                kind=OperationKind.SWAP,
                uprn=content.uprn_1,
                uprn_2=content.uprn_2,
                delete_after=content.delete_after,
            )
        case CreateUpdateMessage():
            return Operation(
                op_id=op_id,
                seq=log_id,
                kind=OperationKind.UPSERT,
                uprn=content.uprn_1,
                address_id=content.address_id,
                record=content.record,
            )
        case DeleteMessage():
            return Operation(op_id=op_id, seq=log_id, kind=OperationKind.DELETE, uprn=content.uprn_1)

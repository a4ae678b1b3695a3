"""What a module must do, in plain Python: dictionaries instead of tables, the rules word by word as in the contract."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from domain.addresses.operations import Kind, Operation, Outcome

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
    done: dict[str, Outcome] = field(default_factory=dict)
    record_seq: dict[int, int] = field(default_factory=dict)
    swap_seq: dict[int, int] = field(default_factory=dict)

    def apply(self, operation: Operation) -> Outcome:
        """Apply an operation and say what became of it."""
        if operation.op_id in self.done:
            return Outcome.ALREADY
        marks = self.swap_seq if operation.kind is Kind.SWAP else self.record_seq
        uprns = {operation.uprn, operation.uprn_2 or operation.uprn}
        if operation.kind is not Kind.PURGE and any(marks.get(uprn, 0) >= operation.seq for uprn in uprns):
            return Outcome.STALE
        outcome: Outcome = getattr(self, f"_{operation.kind}")(operation)
        if operation.kind is not Kind.PURGE and outcome in (Outcome.APPLIED, Outcome.LOGICAL):
            self.done[operation.op_id] = outcome
            marks |= dict.fromkeys(uprns, operation.seq)
            if operation.delete_after:
                self.record_seq[operation.uprn] = max(self.record_seq.get(operation.uprn, 0), operation.seq)
        return outcome

    def _swap(self, operation: Operation) -> Outcome:
        first, second = operation.uprn, operation.uprn_2 or 0
        if first == second:
            return Outcome.REFUSED
        if first not in self.live or second not in self.live:
            return Outcome.MISSING
        self.live[first], self.live[second] = self.live[second], self.live[first]
        if operation.delete_after:
            self._take_away(first, operation.seq)
        return Outcome.APPLIED

    def _upsert(self, operation: Operation) -> Outcome:
        address_id = operation.address_id or 0
        if operation.uprn in self.live and self.live[operation.uprn][0] != address_id:
            self._take_away(operation.uprn, operation.seq)
        self.logical.pop(address_id, None)
        self.live[operation.uprn] = address_id, operation.record or {}
        return Outcome.APPLIED

    def _delete(self, operation: Operation) -> Outcome:
        if operation.uprn in self.live and self._take_away(operation.uprn, operation.seq):
            return Outcome.LOGICAL
        return Outcome.APPLIED

    def _purge(self, operation: Operation) -> Outcome:
        address_id = operation.address_id or 0
        if address_id not in self.logical:
            return Outcome.STALE if self._lives(address_id) else Outcome.APPLIED
        if self.logical[address_id][0] > operation.seq:
            return Outcome.STALE
        if address_id in self.busy:
            return Outcome.LOGICAL
        del self.logical[address_id]
        return Outcome.APPLIED

    def _take_away(self, uprn: int, seq: int) -> bool:
        address_id, record = self.live.pop(uprn)
        if address_id not in self.busy or self._lives(address_id):
            return False
        self.logical[address_id] = seq, record
        return True

    def _lives(self, address_id: int) -> bool:
        return any(address_id == other for other, _ in self.live.values())

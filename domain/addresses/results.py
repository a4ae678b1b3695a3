"""What the answers of the modules amount to: the outcome of a change message, and that of a purge.

OD, WFM and ED report orders in flight. A logically deleted address is removable once all three have reported none; each
module checks again in the transaction that removes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from domain.addresses.operations import (
    Module,
    Operation,
    OperationKind,
    OperationOutcome,
    OperationResult,
    UnansweredResult,
    build_purge_operation_id,
)
from domain.addresses.ordering import WaitKind, WaitReason

IN_FLIGHT_MODULES: Final = (Module.OD, Module.WFM, Module.ED)
"""Modules whose orders in flight the table of logical deletes records."""


@dataclass(frozen=True, slots=True)
class NewLogicalDelete:
    """An address that a message left logically deleted."""

    address_id: int
    uprn: int
    log_id: int
    in_flight: frozenset[Module]

    def merge_reports_of_modules(self, other: NewLogicalDelete) -> NewLogicalDelete:
        """Combine the reports of two modules; of two deletes, the younger one counts."""
        if self.log_id != other.log_id:
            return max(self, other, key=lambda each: each.log_id)
        return NewLogicalDelete(self.address_id, self.uprn, self.log_id, self.in_flight | other.in_flight)


@dataclass(slots=True)
class MessageLogUpdate:
    """The changes to write to the log for one message."""

    id: int
    acks: dict[Module, str] = field(default_factory=dict)
    traces: dict[Module, str] = field(default_factory=dict)
    reason: WaitReason | None = None
    """Why it is not done; None if it is."""
    counts: bool = False
    """Whether this was a failed try. Waiting is none, nor is a call to a module that is away."""
    counts_anew: bool = False
    """Whether the tries of a swap start again at zero, since they only missed a side that all modules have now."""
    stale: bool = False
    """Whether a module had something younger of its address: a createUpdate or delete is then superseded."""
    overtaken: bool = False
    """Whether a module has applied a later swap of its addresses: this one can never be applied."""
    listings: list[NewLogicalDelete] = field(default_factory=list)
    revived: set[int] = field(default_factory=set)
    """Addresses that a createUpdate created, or revived."""

    @property
    def is_applied_everywhere(self) -> bool:
        """Whether all modules acknowledged it in this call, and nothing is to be said about it."""
        return len(self.acks) == len(Module) and not (self.reason or self.stale or self.traces)


# A member of an enumeration is looked up in Python each time.
_APPLIED: Final = OperationOutcome.APPLIED
_UPSERT: Final = OperationKind.UPSERT


def combine_module_results(
    operation: Operation, before: WaitReason, answers: Mapping[Module, OperationResult]
) -> MessageLogUpdate:
    """Combine the answers of the modules that were called."""
    update = MessageLogUpdate(operation.seq)
    acks, is_upsert = update.acks, operation.kind is _UPSERT
    others: dict[Module, OperationResult] = {}
    # Nearly all answers are of this kind, and a cycle has tens of thousands of them.
    for module, answer in answers.items():
        if answer.outcome is _APPLIED and answer.was is None and answer.logical_address_id is None:
            acks[module] = "Y"
            if is_upsert and answer.address_id is not None:
                update.revived.add(answer.address_id)
        else:
            others[module] = answer
    if others:
        _add_results_other_than_applied(update, operation, before, others)
    return update


def _add_results_other_than_applied(
    update: MessageLogUpdate, operation: Operation, before: WaitReason, answers: Mapping[Module, OperationResult]
) -> None:
    """Add answers that are not plainly `applied`."""
    unfinished: dict[Module, OperationResult] = {}
    all_answered = not any(isinstance(answer, UnansweredResult) for answer in answers.values())
    for module, answer in answers.items():
        is_stale = answer.original_outcome is OperationOutcome.STALE
        if is_stale and operation.kind is not OperationKind.SWAP:
            update.stale = True
        elif is_stale or not answer.is_acknowledged:
            unfinished[module] = answer
            if not _is_of_paused_module(answer):
                update.acks[module] = "N"
                update.traces[module] = _describe_failure(answer)
            update.overtaken |= is_stale
            # A module without an answer may have applied it: given up now, the message would block all later ones.
            update.counts |= all_answered
        else:
            update.acks[module] = "Y"
            _add_logical_deletes_and_revivals_to_update(update, operation, module, answer)
    if unfinished:
        reason = _build_wait_reason(before, unfinished)
        if reason and before.missing and not reason.missing:
            # A module that is away may be the one that missed a side: whether it has the side now is unknown.
            reason = reason if all_answered else reason.model_copy(update={"missing": before.missing})
            update.counts_anew = all_answered
        update.reason = reason


def _describe_failure(answer: OperationResult) -> str:
    if answer.outcome is OperationOutcome.MISSING:
        return f"There is no address with UPRN {' or '.join(map(str, answer.missing))}."
    if answer.original_outcome is OperationOutcome.STALE:
        return "A later swap of one of its addresses was applied here before."
    return answer.error


def _add_logical_deletes_and_revivals_to_update(
    update: MessageLogUpdate, operation: Operation, module: Module, answer: OperationResult
) -> None:
    if answer.logical_address_id is not None:
        flags = frozenset({module} if answer.in_flight else ())
        update.listings.append(NewLogicalDelete(answer.logical_address_id, operation.uprn, operation.seq, flags))
    if operation.kind is OperationKind.UPSERT and answer.address_id is not None:
        update.revived.add(answer.address_id)


_KIND_BY_OUTCOME: Final = (
    (OperationOutcome.STALE, WaitKind.OVERTAKEN),
    (OperationOutcome.MISSING, WaitKind.MISSING),
    (OperationOutcome.REFUSED, WaitKind.REFUSED),
    (OperationOutcome.FAILED, WaitKind.FAILED),
)


def _build_wait_reason(before: WaitReason, answers: Mapping[Module, OperationResult]) -> WaitReason | None:
    """Build the reason by the worst outcome: overtaken, a missing side, a refusal, a failure; else it is a pause."""
    paused = [module for module, answer in answers.items() if _is_of_paused_module(answer)]
    found = [
        (why, module)
        for outcome, why in _KIND_BY_OUTCOME
        for module, answer in answers.items()
        if answer.original_outcome is outcome and module not in paused
    ]
    found += [(WaitKind.PAUSED, module) for module in paused]
    if not found:
        return None
    kind, module = found[0]
    causing = [each for why, each in found if why is kind]
    return WaitReason(
        kind=kind,
        module=module,
        modules=causing if len(causing) > 1 else [],
        uprn=next(iter(answers[module].missing), None),
        missing=sorted({uprn for answer in answers.values() for uprn in answer.missing}),
        unsure=[
            module
            for module, answer in answers.items()
            if answer.outcome is OperationOutcome.FAILED
            and (module in before.unsure or not _is_unanswered_but_known_unapplied(answer))
        ],
        paused=paused,
        inherits=before.inherits,
    )


def _is_of_paused_module(answer: OperationResult) -> bool:
    return isinstance(answer, UnansweredResult) and answer.is_paused


def _is_unanswered_but_known_unapplied(answer: OperationResult) -> bool:
    return isinstance(answer, UnansweredResult) and answer.is_unapplied


@dataclass(frozen=True, slots=True)
class ListedLogicalDelete:
    """A listed logical delete, with the modules known to have orders in flight."""

    address_id: int
    uprn: int
    log_id: int
    busy: frozenset[Module]
    is_checked: bool = False
    """Whether all modules answered, so that `busy` is complete."""

    @property
    def is_removable(self) -> bool:
        """Whether no module needs it any more."""
        return self.is_checked and not self.busy

    def with_orders_in_flight_as_checked(self, in_flight: Mapping[Module, Set[int] | None]) -> ListedLogicalDelete:
        """Return it after a check; a module with None did not answer, and keeps its last report."""
        busy = {
            module
            for module in IN_FLIGHT_MODULES
            if (module in self.busy if (reported := in_flight[module]) is None else self.address_id in reported)
        }
        answered = all(in_flight[module] is not None for module in IN_FLIGHT_MODULES)
        return replace(self, busy=frozenset(busy), is_checked=answered)

    def with_more_busy_modules(self, modules: Set[Module]) -> ListedLogicalDelete:
        """Return it with more modules that found orders in flight."""
        return replace(self, busy=self.busy | modules)

    def build_purge_operation(self, attempt: str) -> Operation:
        """Build the operation that removes it, unless it is live again or was deleted again."""
        return Operation(
            op_id=build_purge_operation_id(self.address_id, attempt),
            seq=self.log_id,
            kind=OperationKind.PURGE,
            uprn=self.uprn,
            address_id=self.address_id,
        )


class PurgeOutcome(StrEnum):
    PURGED = "purged"
    """It is gone from all four modules."""
    IN_USE = "in_use"
    """A module has orders in flight again."""
    SUPERSEDED = "superseded"
    """It was created again, or deleted again: this delete keeps it in no module."""
    FAILED = "failed"
    """A module gave no answer, or refused. It may be purged again."""


def decide_purge_outcome(results: Mapping[Module, OperationResult]) -> PurgeOutcome:
    """Combine the answers of all four modules."""
    effects = {result.original_outcome for result in results.values()}
    if OperationOutcome.LOGICAL in effects:
        return PurgeOutcome.IN_USE
    if effects - {OperationOutcome.APPLIED, OperationOutcome.STALE}:
        return PurgeOutcome.FAILED
    return PurgeOutcome.SUPERSEDED if OperationOutcome.STALE in effects else PurgeOutcome.PURGED


def list_modules_with_orders_in_flight(results: Mapping[Module, OperationResult]) -> frozenset[Module]:
    """Return the modules that found orders in flight."""
    return frozenset(
        module for module, result in results.items() if result.original_outcome is OperationOutcome.LOGICAL
    )

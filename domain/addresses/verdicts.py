"""Verdicts: what the answers of the modules to one message come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from domain.addresses.operations import Away, Kind, Module, Operation, OperationResult, Outcome
from domain.addresses.waiting import Kind as Why
from domain.addresses.waiting import Reason

IN_FLIGHT_FLAGS: Final = (Module.OD, Module.WFM, Module.ED)
"""Modules whose orders in flight the table of logical deletes tells."""


@dataclass(frozen=True, slots=True)
class Listing:
    """An address that was deleted logically."""

    address_id: int
    uprn: int
    log_id: int
    in_flight: frozenset[Module]

    def joined(self, other: Listing) -> Listing:
        """Both as one: the younger delete, with what all modules said of it."""
        if self.log_id != other.log_id:
            return max(self, other, key=lambda each: each.log_id)
        return Listing(self.address_id, self.uprn, self.log_id, self.in_flight | other.in_flight)


@dataclass(slots=True)
class Verdict:
    """What becomes of one message."""

    id: int
    acks: dict[Module, str] = field(default_factory=dict)
    traces: dict[Module, str] = field(default_factory=dict)
    reason: Reason | None = None
    """Why it is not done, if it is not."""
    counts: bool = False
    """Whether this was a try that failed. To wait is none, nor is to ask a module that is away."""
    counts_anew: bool = False
    """Whether a swap's earlier tries only lacked a side that all modules have by now: they are counted no more."""
    stale: bool = False
    """Whether a module had something younger of its address already: a createUpdate or delete is needless then."""
    overtaken: bool = False
    """Whether a module has applied a later swap of its addresses: this one never will be, and nothing stands for it."""
    listings: list[Listing] = field(default_factory=list)
    revived: set[int] = field(default_factory=set)
    """Addresses that a createUpdate brought into being, or back."""


def judge(operation: Operation, before: Reason, answers: Mapping[Module, OperationResult]) -> Verdict:
    """Sum up what the modules said that were asked."""
    verdict = Verdict(operation.seq)
    all_answer = not any(isinstance(answer, Away) for answer in answers.values())
    for module, answer in answers.items():
        is_stale = answer.effect is Outcome.STALE
        if is_stale and operation.kind is not Kind.SWAP:
            verdict.stale = True
        elif is_stale or not answer.settled:
            verdict.acks[module] = "N"
            verdict.traces[module] = _trace(answer)
            verdict.overtaken |= is_stale
            # Whom nobody could ask may have begun with it: to be given up like that, it would hold up all others.
            verdict.counts |= all_answer
        else:
            verdict.acks[module] = "Y"
            _note_addresses(verdict, operation, module, answer)
    if verdict.traces:
        reason = _reason(before, {module: answers[module] for module in verdict.traces})
        if reason and before.missing and not reason.missing:
            # One that is away may be the one that missed a side: whether it has come is not known yet.
            reason = reason if all_answer else reason.model_copy(update={"missing": before.missing})
            verdict.counts_anew = all_answer
        verdict.reason = reason
    return verdict


def _trace(answer: OperationResult) -> str:
    if answer.outcome is Outcome.MISSING:
        return f"There is no address with UPRN {' or '.join(map(str, answer.missing))}."
    if answer.effect is Outcome.STALE:
        return "A later swap of one of its addresses was applied here before."
    return answer.error


def _note_addresses(verdict: Verdict, operation: Operation, module: Module, answer: OperationResult) -> None:
    if answer.logical_address_id is not None:
        flags = frozenset({module} if answer.in_flight else ())
        verdict.listings.append(Listing(answer.logical_address_id, operation.uprn, operation.seq, flags))
    if operation.kind is Kind.UPSERT and answer.address_id is not None:
        verdict.revived.add(answer.address_id)


_BY_WEIGHT: Final = (
    (Outcome.STALE, Why.OVERTAKEN),
    (Outcome.MISSING, Why.MISSING),
    (Outcome.REFUSED, Why.REFUSED),
    (Outcome.FAILED, Why.FAILED),
)


def _reason(before: Reason, answers: Mapping[Module, OperationResult]) -> Reason | None:
    """Why it is not done: what will never change says most, then a missing side, then a refusal."""
    for outcome, why in _BY_WEIGHT:
        if module := next((module for module, answer in answers.items() if answer.effect is outcome), None):
            return Reason(
                kind=why,
                module=module,
                uprn=next(iter(answers[module].missing), None),
                missing=sorted({uprn for answer in answers.values() for uprn in answer.missing}),
                unsure=[
                    module
                    for module, answer in answers.items()
                    if answer.outcome is Outcome.FAILED and (module in before.unsure or not _is_unapplied(answer))
                ],
                inherits=before.inherits,
            )
    return None


def _is_unapplied(answer: OperationResult) -> bool:
    return isinstance(answer, Away) and answer.is_unapplied

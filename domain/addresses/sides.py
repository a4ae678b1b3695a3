"""Sides: whether a swap that no module has acknowledged may be sent.

A swap goes to all modules or to none. If it were applied in one while another misses a side, the createUpdate that
brings this side would come before the swap there, and after it elsewhere. Once it is sent, no side goes away: whatever
has begun with one of its UPRNs was done before, and what comes later queues behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.addresses.operations import Away, Lookup, Module, Operation, OperationResult, Outcome


def hindrances(swap: Operation, told: Mapping[Module, Lookup | str]) -> dict[Module, OperationResult]:
    """What keeps it from being sent: the modules that miss a side of it, and those that could not be asked, with why.

    Who sent it before may have died before writing that down. So one that a module has applied goes on, whatever sides
    are left there; and while a module cannot be asked, it may be the one.
    """
    answers = {module: _answer(swap, each) for module, each in told.items()}
    found = {module: answer for module, answer in answers.items() if answer}
    has_begun = any(isinstance(each, Lookup) and swap.op_id in each.applied for each in told.values())
    all_asked = all(isinstance(each, Lookup) for each in told.values())
    return {} if has_begun and all_asked else found


def _answer(swap: Operation, told: Lookup | str) -> OperationResult | None:
    if isinstance(told, str):
        return Away(op_id=swap.op_id, outcome=Outcome.FAILED, error=told)
    missing = [uprn for uprn in (swap.uprn, swap.uprn_2) if uprn and uprn not in told.live]
    return OperationResult(op_id=swap.op_id, outcome=Outcome.MISSING, missing=missing) if missing else None

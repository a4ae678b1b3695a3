"""Logical deletes: who holds an address back, and what the answers to a purge come to."""

from __future__ import annotations

from collections.abc import Mapping, Set

import pytest

from domain.addresses import logical
from domain.addresses.logical import Ending, Listed
from domain.addresses.operations import Module, OperationResult, Outcome

LISTED = Listed(11, 1, 60, frozenset({Module.OD}))
NOBODY: Mapping[Module, Set[int] | None] = {Module.OD: set(), Module.WFM: set(), Module.ED: set()}


@pytest.mark.parametrize(
    ("told", "busy", "removable"),
    [
        ({}, set(), True),
        ({Module.OD: {11}}, {Module.OD}, False),
        ({Module.ED: {10, 11}}, {Module.ED}, False),
        ({Module.WFM: {12}}, set(), True),
        # Of one that says nothing we know what we knew, and not enough.
        ({Module.OD: None}, {Module.OD}, False),
        ({Module.WFM: None}, set(), False),
    ],
)
def test_an_address_is_removable_when_all_three_say_no(
    told: Mapping[Module, Set[int] | None], busy: set[Module], removable: bool
) -> None:
    """IM has no say: it looks itself when it removes."""
    checked = LISTED.checked({**NOBODY, **told})

    assert (set(checked.busy), checked.removable) == (busy, removable)


def test_what_was_not_checked_is_not_removable() -> None:
    """A table without flags proves nothing."""
    assert not Listed(11, 1, 60, frozenset()).removable


def test_a_module_may_find_orders_when_it_removes() -> None:
    """Whatever it had said a moment before."""
    assert not LISTED.checked(NOBODY).needed_by({Module.IM}).removable


def test_a_purge_names_the_delete_that_it_follows() -> None:
    """So that modules see whether the address was written since."""
    purge = LISTED.purge("7")

    assert (purge.op_id, purge.seq, purge.uprn, purge.address_id) == ("purge:11:7", 60, 1, 11)


@pytest.mark.parametrize(
    ("outcomes", "ending"),
    [
        ([Outcome.APPLIED] * 4, Ending.PURGED),
        ([Outcome.APPLIED, Outcome.LOGICAL, Outcome.APPLIED, Outcome.FAILED], Ending.BUSY),
        ([Outcome.APPLIED, Outcome.STALE, Outcome.LOGICAL, Outcome.FAILED], Ending.BUSY),
        ([Outcome.APPLIED, Outcome.STALE, Outcome.APPLIED, Outcome.FAILED], Ending.FAILED),
        ([Outcome.APPLIED, Outcome.STALE, Outcome.APPLIED, Outcome.STALE], Ending.ALIVE),
        ([Outcome.APPLIED, Outcome.APPLIED, Outcome.APPLIED, Outcome.FAILED], Ending.FAILED),
        ([Outcome.APPLIED, Outcome.APPLIED, Outcome.APPLIED, Outcome.REFUSED], Ending.FAILED),
    ],
)
def test_answers_come_to_one_ending(outcomes: list[Outcome], ending: Ending) -> None:
    """It is gone only when all four say so."""
    results = {
        module: OperationResult(op_id="purge:11:7", outcome=outcome)
        for module, outcome in zip(Module, outcomes, strict=True)
    }

    assert logical.ending(results) is ending
    assert logical.needed_by(results) == {module for module, each in results.items() if each.outcome == "logical"}


def test_a_purge_that_was_answered_before_counts_as_it_did_then() -> None:
    """A module may keep results of purges, too."""
    told = OperationResult(op_id="purge:11:7", outcome=Outcome.ALREADY, was=Outcome.APPLIED)

    assert logical.ending(dict.fromkeys(Module, told)) is Ending.PURGED

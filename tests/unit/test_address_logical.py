"""Logical deletes: who holds an address back, and what the answers to a purge come to."""

from __future__ import annotations

from collections.abc import Mapping, Set
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow

from domain.addresses.activity_models import PURGE_MAX, AddressIdsByPurgeOutcome, PurgeAddressesInput
from domain.addresses.operations import Module, OperationOutcome, OperationResult
from domain.addresses.results import (
    ListedLogicalDelete,
    PurgeOutcome,
    decide_purge_outcome,
    list_modules_with_orders_in_flight,
)
from infra.address_settings import ModuleSettings
from workflows.addresses.maintenance import SelectedAddressesPurge

LISTED = ListedLogicalDelete(11, 1, 60, frozenset({Module.OD}))
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
    checked = LISTED.with_orders_in_flight_as_checked({**NOBODY, **told})

    assert (set(checked.busy), checked.is_removable) == (busy, removable)


def test_what_was_not_checked_is_not_removable() -> None:
    """A table without flags proves nothing."""
    assert not ListedLogicalDelete(11, 1, 60, frozenset()).is_removable


def test_a_module_may_find_orders_when_it_removes() -> None:
    """Whatever it had said a moment before."""
    assert not LISTED.with_orders_in_flight_as_checked(NOBODY).with_more_busy_modules({Module.IM}).is_removable


def test_a_purge_names_the_delete_that_it_follows() -> None:
    """So that modules see whether the address was written since."""
    purge = LISTED.build_purge_operation("7")

    assert (purge.op_id, purge.seq, purge.uprn, purge.address_id) == ("purge:11:7", 60, 1, 11)


@pytest.mark.parametrize(
    ("outcomes", "ending"),
    [
        ([OperationOutcome.APPLIED] * 4, PurgeOutcome.PURGED),
        (
            [OperationOutcome.APPLIED, OperationOutcome.LOGICAL, OperationOutcome.APPLIED, OperationOutcome.FAILED],
            PurgeOutcome.IN_USE,
        ),
        (
            [OperationOutcome.APPLIED, OperationOutcome.STALE, OperationOutcome.LOGICAL, OperationOutcome.FAILED],
            PurgeOutcome.IN_USE,
        ),
        (
            [OperationOutcome.APPLIED, OperationOutcome.STALE, OperationOutcome.APPLIED, OperationOutcome.FAILED],
            PurgeOutcome.FAILED,
        ),
        (
            [OperationOutcome.APPLIED, OperationOutcome.STALE, OperationOutcome.APPLIED, OperationOutcome.STALE],
            PurgeOutcome.SUPERSEDED,
        ),
        (
            [OperationOutcome.APPLIED, OperationOutcome.APPLIED, OperationOutcome.APPLIED, OperationOutcome.FAILED],
            PurgeOutcome.FAILED,
        ),
        (
            [OperationOutcome.APPLIED, OperationOutcome.APPLIED, OperationOutcome.APPLIED, OperationOutcome.REFUSED],
            PurgeOutcome.FAILED,
        ),
    ],
)
def test_answers_come_to_one_ending(outcomes: list[OperationOutcome], ending: PurgeOutcome) -> None:
    """It is gone only when all four say so."""
    results = {
        module: OperationResult(op_id="purge:11:7", outcome=outcome)
        for module, outcome in zip(Module, outcomes, strict=True)
    }

    assert decide_purge_outcome(results) is ending
    assert list_modules_with_orders_in_flight(results) == {
        module for module, each in results.items() if each.outcome == "logical"
    }


def test_a_purge_that_was_answered_before_counts_as_it_did_then() -> None:
    """A module may keep results of purges, too."""
    told = OperationResult(op_id="purge:11:7", outcome=OperationOutcome.ALREADY, was=OperationOutcome.APPLIED)

    assert decide_purge_outcome(dict.fromkeys(Module, told)) is PurgeOutcome.PURGED


async def test_a_purge_has_the_time_that_modules_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module may take five hundred addresses one by one, and look up the orders of each for half a minute."""
    given: dict[str, Any] = {}

    async def record_options(*_: object, **options: Any) -> AddressIdsByPurgeOutcome:
        given.update(options)
        return AddressIdsByPurgeOutcome()

    monkeypatch.setattr(workflow, "execute_activity_method", record_options)
    monkeypatch.setattr(workflow, "upsert_search_attributes", lambda _: None)
    await SelectedAddressesPurge().run(PurgeAddressesInput(address_ids=[1], who="ann"))

    assert given["start_to_close_timeout"] >= PURGE_MAX * ModuleSettings().timeout_seconds * timedelta(seconds=1)

"""What each operation does to the addresses of a module, and what it answers."""

from __future__ import annotations

import msgspec
import pytest

from domain.addresses import operations as ours
from domain.addresses.operations import Operation
from haulage.address_module import OperationOutcome, models
from tests.support.module_tables import Tables, delete, purge, swap, upsert

NEW = '{"street":"new"}'


@pytest.fixture
def tables() -> Tables:
    """UPRN 1 is address 11, UPRN 2 is address 12."""
    tables = Tables()
    tables.send(upsert(1, 1, 11, street="a"), upsert(2, 2, 12, street="b"))
    return tables


def addresses(tables: Tables) -> dict[int, tuple[int | None, str]]:
    """By address id: UPRN and street."""
    return {row[0]: (row[1], row[2].removeprefix('{"street":"').removesuffix('"}')) for row in tables.addresses()}


def test_both_sides_of_the_contract_are_the_same() -> None:
    """What Haulage sends and reads is what the handler reads and sends."""
    for sent, read in ((ours.Operation, models.Operation), (ours.OperationResult, models.OperationResult)):
        assert [each.name for each in msgspec.structs.fields(sent)] == list(read.model_fields)
    assert list(ours.AddressEntry.model_fields) == list(models.AddressEntry.model_fields)
    for name in ("OperationKind", "OperationOutcome"):
        assert list(getattr(ours, name)) == list(getattr(models, name))


@pytest.mark.parametrize(
    ("operation", "after"),
    [
        (swap(10, 1, 2), {11: (2, "a"), 12: (1, "b")}),
        (swap(10, 1, 2, delete_after=True), {11: (2, "a")}),
        (upsert(10, 1, 11, street="new"), {11: (1, "new"), 12: (2, "b")}),
        (upsert(10, 3, 13, street="new"), {11: (1, "a"), 12: (2, "b"), 13: (3, "new")}),
        # The UPRN goes to an address that was not there.
        (upsert(10, 1, 13, street="new"), {12: (2, "b"), 13: (1, "new")}),
        (delete(10, 1), {12: (2, "b")}),
        # The UPRN says which address is meant.
        (delete(10, 1, 12), {12: (2, "b")}),
        (delete(10, 9), {11: (1, "a"), 12: (2, "b")}),
        (purge(10, 9, 19), {11: (1, "a"), 12: (2, "b")}),
    ],
)
def test_an_operation_is_applied(tables: Tables, operation: Operation, after: dict[int, tuple[int, str]]) -> None:
    """It changes what it names and nothing else."""
    assert [each.outcome for each in tables.send(operation)] == [OperationOutcome.APPLIED]
    assert addresses(tables) == after


@pytest.mark.parametrize(
    ("operation", "outcome", "words"),
    [
        (swap(10, 1, 9), OperationOutcome.MISSING, ""),
        (swap(10, 1, 1), OperationOutcome.REFUSED, "Both sides of the swap are UPRN 1."),
        (purge(10, 1, 11), OperationOutcome.STALE, "Address 11 was written after the delete 10."),
        (
            msgspec.structs.replace(upsert(1, 1, 11, street="new"), op_id="x"),
            OperationOutcome.STALE,
            "seq 1 was applied before.",
        ),
    ],
)
def test_an_operation_that_cannot_be_changes_nothing(
    tables: Tables, operation: Operation, outcome: OperationOutcome, words: str
) -> None:
    """The answer says why, and the same operation may come again."""
    before = tables.content()

    for _ in range(2):
        (result,) = tables.send(operation)
        assert (result.outcome, result.error) == (outcome, words)
    assert tables.content() == before


def test_a_swap_names_the_sides_that_it_misses(tables: Tables) -> None:
    """And is applied under the same id once they are there."""
    assert tables.send(swap(10, 1, 9))[0].missing == [9]
    assert tables.send(swap(10, 8, 9))[0].missing == [8, 9]

    results = tables.send(upsert(11, 9, 19, street="late"), swap(10, 1, 9))

    assert [each.outcome for each in results] == [OperationOutcome.APPLIED, OperationOutcome.APPLIED]
    assert addresses(tables)[19] == (1, "late")


def test_an_address_with_orders_in_flight_is_kept_logically(tables: Tables) -> None:
    """It has no UPRN any more: swaps miss it, and another address may get it."""
    tables.busy = {11}

    (result,) = tables.send(delete(10, 1))

    assert (result.outcome, result.logical_address_id, result.in_flight) == (OperationOutcome.LOGICAL, 11, True)
    assert addresses(tables)[11] == (None, "a")
    assert tables.send(swap(11, 1, 2))[0].missing == [1]
    assert tables.send(upsert(12, 1, 13, street="other"))[0].outcome is OperationOutcome.APPLIED


@pytest.mark.parametrize("operation", [swap(10, 2, 1, delete_after=True), upsert(10, 1, 13, street="new")])
def test_whoever_puts_a_busy_address_away_says_so(tables: Tables, operation: Operation) -> None:
    """A swap with delete_after and an upsert may leave one behind as a delete does."""
    tables.busy = {11}

    (result,) = tables.send(operation)

    assert (result.outcome, result.logical_address_id, result.in_flight) == (OperationOutcome.APPLIED, 11, True)
    assert addresses(tables)[11] == (None, "a")


@pytest.mark.parametrize("uprn", [1, 3])
def test_the_last_record_of_a_uprn_wins_whatever_has_its_id(tables: Tables, uprn: int) -> None:
    """Two UPRNs may show one id until the publisher has said of both what they are."""
    tables.busy = {12}
    assert tables.send(upsert(10, uprn, 12, street="new"))[0].outcome is OperationOutcome.APPLIED
    assert {row[:2] for row in tables.addresses()} >= {(12, uprn), (12, 2)}

    # It is not logically deleted while one of them has it.
    results = tables.send(delete(11, 2), delete(12, uprn))

    assert [each.outcome for each in results] == [OperationOutcome.APPLIED, OperationOutcome.LOGICAL]
    assert addresses(tables)[12] == (None, "new")


def test_an_address_that_is_created_again_is_revived(tables: Tables) -> None:
    """The same id lives on, under whatever UPRN it comes."""
    tables.busy = {11}
    tables.send(delete(10, 1))

    assert tables.send(upsert(11, 5, 11, street="again"))[0].address_id == 11
    assert addresses(tables)[11] == (5, "again")
    assert tables.send(purge(10, 1, 11))[0].outcome is OperationOutcome.STALE


def test_what_lives_again_is_not_told_as_kept(tables: Tables) -> None:
    """A repeated delete is answered with what holds now, or the address would be listed for ever."""
    tables.busy = {11}
    tables.send(delete(10, 1))
    told = tables.send(delete(10, 1))[0]
    assert (told.outcome, told.was, told.logical_address_id) == (OperationOutcome.ALREADY, OperationOutcome.LOGICAL, 11)

    tables.send(upsert(11, 5, 11, street="again"))
    told = tables.send(delete(10, 1))[0]
    assert (told.was, told.logical_address_id, told.in_flight) == (OperationOutcome.LOGICAL, None, False)

    # Put away anew: by another delete than this one.
    tables.send(delete(12, 5))
    assert tables.send(delete(10, 1))[0].logical_address_id is None
    assert tables.send(delete(12, 5))[0].logical_address_id == 11


def test_a_purge_looks_once_more(tables: Tables) -> None:
    """What has orders in flight at that moment stays; what another delete left is not this purge's."""
    tables.busy = {11}
    tables.send(delete(10, 1))

    assert tables.send(purge(10, 1, 11))[0].outcome is OperationOutcome.LOGICAL
    tables.busy = set()
    assert tables.send(purge(9, 1, 11))[0].outcome is OperationOutcome.STALE
    assert tables.send(purge(10, 1, 11))[0].outcome is OperationOutcome.APPLIED
    assert addresses(tables) == {12: (2, "b")}


def test_what_was_applied_is_told_again_and_not_done_again(tables: Tables) -> None:
    """A swap that came twice is one swap, and a repeated delete returns what it left the first time."""
    tables.busy = {11}
    first = tables.send(swap(10, 1, 2), delete(11, 2))
    after = tables.content()

    again = tables.send(swap(10, 1, 2), delete(11, 2))

    assert [each.outcome for each in again] == [OperationOutcome.ALREADY, OperationOutcome.ALREADY]
    assert [each.was for each in again] == [OperationOutcome.APPLIED, OperationOutcome.LOGICAL]
    assert again[1].logical_address_id == first[1].logical_address_id == 11
    assert tables.content() == after


def test_the_fence_knows_two_sorts(tables: Tables) -> None:
    """An older upsert may follow a younger swap, and an older swap a younger upsert; but none its own kind."""
    tables.send(swap(20, 1, 2), upsert(21, 1, 12, street="x"))

    results = tables.send(
        upsert(15, 2, 11, street="y"), swap(19, 1, 2), swap(22, 2, 1), delete(14, 2), upsert(16, 2, 11, street="z")
    )

    outcomes = [each.outcome for each in results]
    assert outcomes == [
        OperationOutcome.APPLIED,
        OperationOutcome.STALE,
        OperationOutcome.APPLIED,
        OperationOutcome.STALE,
        OperationOutcome.APPLIED,
    ]


def test_a_retired_uprn_is_not_created_again_by_what_is_older(tables: Tables) -> None:
    """`delete_after` counts as a delete."""
    tables.send(swap(10, 1, 2, delete_after=True))

    assert tables.send(upsert(9, 1, 12, street="old"))[0].outcome is OperationOutcome.STALE

"""Whatever is sent, how often, in which order, and wherever a module dies in between: each operation acts once."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domain.addresses.operations import Operation
from haulage.address_module import OperationOutcome
from haulage.address_module.database import DatabaseUnreachable
from tests.support.address_oracle import ModuleOracle
from tests.support.module_tables import (
    ADDRESSES,
    Breaks,
    Tables,
    book_addresses,
    delete,
    histories,
    purge,
    swap,
    upsert,
)

BUSY = st.sets(ADDRESSES)


@given(histories(), BUSY)
def test_a_module_does_what_the_oracle_does(history: Sequence[Operation], busy: set[int]) -> None:
    """The same outcome each time, and the same addresses in the end."""
    tables, book = Tables(busy), ModuleOracle(busy=busy)

    for operation in history:
        (result,) = tables.send(operation)
        assert result.outcome.value == book.apply(operation).value
        assert (result.outcome is OperationOutcome.MISSING) == bool(result.missing)
        assert (result.was is not None) == (result.outcome is OperationOutcome.ALREADY)
    assert tables.addresses() == book_addresses(book, lambda record: json.dumps(record, separators=(",", ":")))


@pytest.mark.long
@given(histories(), BUSY)
def test_what_is_applied_twice_acts_once(history: Sequence[Operation], busy: set[int]) -> None:
    """Each operation at once again, in the same batch or the next."""
    once, twice, together = Tables(busy), Tables(busy), Tables(busy)

    for operation in history:
        (first,) = once.send(operation)
        twice.send(operation)
        (again,) = twice.send(operation)
        together.send(operation, operation)
        if first.outcome in (OperationOutcome.APPLIED, OperationOutcome.LOGICAL) and operation.kind != "purge":
            assert (again.outcome, again.was) == (OperationOutcome.ALREADY, first.outcome)
    assert once.content() == twice.content() == together.content()


@given(histories(), BUSY, st.integers(0, 40))
def test_a_module_may_die_anywhere(history: Sequence[Operation], busy: set[int], after: int) -> None:
    """Before any statement, before the commit, or after it, with the answer lost: sent again, all is well."""
    whole, broken = Tables(busy), Tables(busy)

    for operation in history:
        whole.send(operation)
        try:
            broken.send(operation, breaks_after=after)
        except (Breaks, DatabaseUnreachable):
            broken.send(operation)
    assert broken.content() == whole.content()


SWAP_OF_A_MISSING_ADDRESS = [
    delete(1, 1),
    upsert(2, 2, 11, street=0),
    swap(3, 1, 2, delete_after=False),
    upsert(4, 1, 12, street=0),
    purge(5, 1, 13),
]


@given(histories(), BUSY, st.integers(0, 200))
@example(SWAP_OF_A_MISSING_ADDRESS, set(), 33)
def test_a_batch_is_applied_whole_or_not_at_all(history: Sequence[Operation], busy: set[int], after: int) -> None:
    """One transaction for all of it: where it broke, it is sent again.

    Where the answer alone was lost, that is a second batch. A swap whose address was missing at first may act then.
    """
    whole, broken, untouched = Tables(busy), Tables(busy), Tables(busy)
    whole.send(*history)

    try:
        broken.send(*history, breaks_after=after)
    except (Breaks, DatabaseUnreachable):
        assert broken.content() in (untouched.content(), whole.content())
        if broken.content() == whole.content():
            whole.send(*history)
        broken.send(*history)
    assert broken.content() == whole.content()


@pytest.mark.long
@given(histories(), BUSY)
def test_swaps_alone_move_nothing_but_uprns(history: Sequence[Operation], busy: set[int]) -> None:
    """An address keeps its id and its record, and the same UPRNs are in use."""
    tables = Tables(busy)
    tables.send(*(each for each in history if each.kind != "swap"))
    before = tables.addresses()

    tables.send(*(each for each in history if each.kind == "swap" and not each.delete_after))

    after = tables.addresses()
    assert sorted((row[0], row[2]) for row in after) == sorted((row[0], row[2]) for row in before)
    assert {row[1] for row in after} == {row[1] for row in before}

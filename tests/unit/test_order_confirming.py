"""When a window counts as read."""

from __future__ import annotations

import random

import pytest

from domain.orders import lateness
from domain.orders.confirming import PASSES_MAX, Passes, Verdict

Told = tuple[int | None, set[str], int | None]
CONFIRMED, AGAIN, UNSTABLE = Verdict.CONFIRMED, Verdict.AGAIN, Verdict.UNSTABLE
AB, ABC = {"a", "b"}, {"a", "b", "c"}


@pytest.mark.parametrize(
    ("told", "verdicts"),
    [
        ([(3, ABC, 3)], [CONFIRMED]),
        ([(0, set(), 0)], [CONFIRMED]),
        ([(3, ABC, 2), (2, AB, 2)], [AGAIN, CONFIRMED]),
        # Orders keep leaving: two passes that tell nothing new, and all that stayed.
        ([(9, ABC, 3), (3, ABC, 2), (2, AB, 1)], [AGAIN, AGAIN, CONFIRMED]),
        # A total that is never reached is not believed away.
        ([(3, AB, 3)] * PASSES_MAX, [AGAIN] * (PASSES_MAX - 1) + [UNSTABLE]),
        # What comes although the window has settled is read until it is quiet.
        ([(2, AB, 3), (3, AB, 3), (3, ABC, 3)], [AGAIN, AGAIN, CONFIRMED]),
        ([(2, AB, 3)] * PASSES_MAX, [AGAIN] * (PASSES_MAX - 1) + [UNSTABLE]),
    ],
)
def test_totals_confirm(told: list[Told], verdicts: list[Verdict]) -> None:
    """The total before and after is the number of orders told, or else another pass is made."""
    passes = Passes(has_totals=True, moves=True)

    assert [passes.add(*each) for each in told] == verdicts


def test_without_totals_a_fixed_list_is_read_once() -> None:
    """A cursor goes on behind the last row, whatever leaves before it."""
    assert Passes(has_totals=False, moves=False).add(None, AB, None) is CONFIRMED


def test_without_totals_numbered_pages_are_read_until_quiet() -> None:
    """Rows move from page to page, so that one pass proves nothing."""
    passes = Passes(has_totals=False, moves=True)

    assert [passes.add(None, AB, None) for _ in range(3)] == [AGAIN, AGAIN, CONFIRMED]


@pytest.mark.parametrize("seed", range(200))
def test_backward_passes_lose_nothing_while_orders_leave(seed: int) -> None:
    """Read from the last page, with orders leaving between any two requests: all that stay were told."""
    chance = random.Random(seed)
    present = [str(n) for n in range(chance.randrange(60))]
    passes, verdict = Passes(has_totals=True, moves=True), AGAIN

    while verdict is AGAIN:
        before, seen = len(present), set[str]()
        for page in reversed(range(-(-before // 5))):
            seen |= set(present[page * 5 : page * 5 + 5])
            if present and chance.random() < 0.3:
                present.remove(chance.choice(present))
        verdict = passes.add(before, seen, len(present))

    assert verdict is CONFIRMED
    assert set(present) <= passes.ids


def test_a_lag_is_proposed_that_would_have_caught_what_was_missed() -> None:
    """With a margin, in round figures, and never less than what is set."""
    assert lateness.proposal(180, []) is None
    assert lateness.proposal(180, [12.0, 200.0]) == 300
    assert lateness.proposal(180, [3.0]) == 190

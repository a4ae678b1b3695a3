"""When a window counts as read."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from domain.orders import confirmation
from domain.orders.confirmation import PagingPass, PagingPassHistory, PagingPassVerdict
from domain.orders.windows import TimeWindow

CONFIRMED, AGAIN, UNSTABLE = PagingPassVerdict.CONFIRMED, PagingPassVerdict.AGAIN, PagingPassVerdict.UNSTABLE


@pytest.mark.parametrize(
    ("told", "verdicts"),
    [
        ([(3, "abc", 3)], [CONFIRMED]),
        ([(0, "", 0)], [CONFIRMED]),
        # One order left, and the next pass lists nothing new.
        ([(3, "abc", 2), (2, "ab", 2)], [AGAIN, CONFIRMED]),
        # It goes on leaving: nothing new, and all that stayed.
        ([(9, "abc", 3), (3, "abc", 2)], [AGAIN, CONFIRMED]),
        # The sums agree, and one was listed twice: another one may have been skipped.
        ([(3, "aab", 3), (3, "abc", 3)], [AGAIN, CONFIRMED]),
        ([(4, "abcc", 4), (4, "abdc", 4)], [AGAIN, CONFIRMED]),
        # A row that left and is still held does not replace one that was skipped.
        ([(3, "ab", 2), (2, "ac", 2), (2, "ac", 2)], [AGAIN, CONFIRMED]),
        ([(4, "abc", 3), (3, "abd", 2), (2, "ab", 2)], [AGAIN, AGAIN, CONFIRMED]),
        # A total that is never reached is not believed away, and not asked for over and over.
        ([(3, "ab", 3)] * 3, [AGAIN, AGAIN, UNSTABLE]),
        # What comes although the window has settled is read until it is quiet, but not for ever.
        ([(2, "ab", 3), (3, "ab", 3), (3, "abc", 3)], [AGAIN, AGAIN, CONFIRMED]),
        ([(2, "ab", 3), (3, "ac", 4), (4, "ad", 5), (5, "ae", 6), (6, "af", 7)], [AGAIN] * 4 + [UNSTABLE]),
    ],
)
def test_totals_confirm(told: list[tuple[int, str, int]], verdicts: list[PagingPassVerdict]) -> None:
    """A pass agrees with its totals to the row, or another one lists no new order."""
    passes = PagingPassHistory(has_totals=True, may_stir=False)

    assert [passes.add_pass(before, list(ids), after) for before, ids, after in told][: len(verdicts)] == verdicts


def test_without_totals_one_pass_is_all_that_can_be_had() -> None:
    """It was read so that nothing that stays is skipped."""
    assert PagingPassHistory(has_totals=False, may_stir=False).add_pass(None, ["a", "b"], None) is CONFIRMED


def test_without_totals_pages_that_contradict_each_other_are_not_all() -> None:
    """Orders on two pages ask for one more pass; another sequence, for one in which it stays."""
    moved = PagingPassHistory(has_totals=False, may_stir=False)
    unsorted = PagingPassHistory(has_totals=False, may_stir=False)
    verdicts = [moved.add_pass(None, list("aab"), None, repeated=1), moved.add_pass(None, list("ab"), None)]

    assert verdicts == [AGAIN, CONFIRMED]
    assert [unsorted.add_pass(None, list("ab"), None, is_unsorted=True) for _ in range(3)] == [AGAIN, AGAIN, UNSTABLE]


@pytest.mark.parametrize("has_totals", [True, False])
def test_a_pass_with_a_page_of_another_request_does_not_confirm(has_totals: bool) -> None:
    """Its total may be right by chance; another pass must list no order that it had not."""
    passes, total = PagingPassHistory(has_totals=has_totals, may_stir=False), 2 if has_totals else None

    assert passes.add_pass(total, list("ax"), total, is_doubtful=True) is AGAIN
    assert passes.add_pass(total, list("ab"), total, is_doubtful=True) is AGAIN
    assert passes.add_pass(total, list("ab"), total, is_doubtful=True) is CONFIRMED


def test_without_totals_rows_that_stir_are_read_until_quiet() -> None:
    """An order that is asked for by its creation stays in its window, and goes to the front with each change."""
    passes = PagingPassHistory(has_totals=False, may_stir=True)

    assert [passes.add_pass(None, list(ids), None) for ids in ("ab", "abc", "abc")] == [AGAIN, AGAIN, CONFIRMED]


@pytest.mark.parametrize("seed", range(200))
def test_backward_passes_lose_nothing_while_orders_leave(seed: int) -> None:
    """Read from the last page, with orders leaving between any two requests: all that stay were listed."""
    chance = random.Random(seed)
    present = [str(n) for n in range(chance.randrange(60))]
    passes, verdict = PagingPassHistory(has_totals=True, may_stir=False), AGAIN

    while verdict is AGAIN:
        before, seen = len(present), list[str]()
        for page in reversed(range(-(-before // 5))):
            seen += present[page * 5 : page * 5 + 5]
            if present and chance.random() < 0.3:
                present.remove(chance.choice(present))
        verdict = passes.add_pass(before, seen, len(present))

    assert verdict is CONFIRMED
    assert set(present) <= passes.ids


def test_a_lag_is_proposed_that_would_have_caught_what_was_missed() -> None:
    """With a margin, in round figures, and only while the one in force would not."""
    assert confirmation.propose_settle_lag_if_too_short(180, None) is None
    assert confirmation.propose_settle_lag_if_too_short(180, 200.0) == 300
    assert confirmation.propose_settle_lag_if_too_short(180, 185.0) == 280
    assert confirmation.propose_settle_lag_if_too_short(300, 200.0) is None


@pytest.mark.parametrize(("missing", "begins"), [(2, "Nothing moves there"), (45, "No page held more than 45")])
def test_small_pages_are_suspected_first_only_where_a_page_is_missing(missing: int, begins: str) -> None:
    """A count that is two too high has another cause most likely, although the only page was smaller than asked for."""
    window = TimeWindow(start=datetime(2026, 1, 1, tzinfo=UTC), end=datetime(2026, 1, 2, tzinfo=UTC))
    told = PagingPass(before=45 + missing, rows=45, distinct=45, after=45 + missing, new=45)

    _, hint = confirmation.describe_unrest(window, [told, told], page_size=250, largest=45)

    assert hint.startswith(begins)
    assert "`paging.size`" in hint

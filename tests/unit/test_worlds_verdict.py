"""The judge of worlds sees loss, doubling, another order, strangers, false success and failures without need."""

from __future__ import annotations

import pytest

from tests.worlds.verdict import Ending, Expectation, Outcome, differences, judge

TRUTH = ["a", "b", "b", "c"]
MAY_FAIL = Expectation(frozenset({"source_status"}), frozenset({"may be missing"}))
MUST_SUCCEED = Expectation()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (["a", "b", "b", "c"], ""),
        (["a", "b", "b"], "1 lost, e.g. 'c'"),
        (["a", "b", "c"], "1 lost, e.g. 'b'"),
        (["a", "b", "b", "c", "c"], "1 doubled, e.g. 'c'"),
        (["a", "c", "b", "b"], "another order"),
        (["a", "b", "b", "d"], "1 lost, e.g. 'c'; 1 strange, e.g. 'd'"),
        ([], "4 lost"),
    ],
)
def test_differences_are_named(found: list[str], words: str) -> None:
    """By rows, not by counts."""
    told = differences(TRUTH, found)
    assert words in told
    assert bool(told) == bool(words)


@pytest.mark.parametrize(
    ("expected", "outcome", "ending"),
    [
        (MUST_SUCCEED, Outcome(is_over=True), Ending.EQUAL),
        (MUST_SUCCEED, Outcome(is_over=True, cause="source_status"), Ending.NEEDLESS),
        (MAY_FAIL, Outcome(is_over=True, cause="source_status"), Ending.FAILED),
        (MAY_FAIL, Outcome(is_over=True, cause="internal_error"), Ending.WRONG_CAUSE),
        (MAY_FAIL, Outcome(is_over=True, difference="1 lost"), Ending.SILENT),
        (MAY_FAIL, Outcome(is_over=True, difference="1 lost", warnings=["some may be missing"]), Ending.WARNED),
        (MAY_FAIL, Outcome(is_over=True, difference="1 lost", warnings=["a long number"]), Ending.SILENT),
        (Expectation(is_visible=False), Outcome(is_over=True, difference="1 lost"), Ending.INVISIBLE),
        (Expectation(is_visible=False), Outcome(is_over=True, cause="source_status"), Ending.NEEDLESS),
        (MAY_FAIL, Outcome(is_over=False), Ending.LATE),
    ],
)
def test_each_ending_is_told_apart(expected: Expectation, outcome: Outcome, ending: Ending) -> None:
    """What differs in silence, fails without need, for another reason or never ends is a defect."""
    verdict = judge(expected, outcome, ["flaw"], frozenset({"flaw"}))
    assert verdict.ending is ending
    assert ending.is_defect == (ending in {Ending.SILENT, Ending.NEEDLESS, Ending.WRONG_CAUSE, Ending.LATE})


def test_a_world_in_which_nothing_went_wrong_shows_nothing() -> None:
    """Unless nothing was to go wrong; a difference is one all the same."""
    nothing: frozenset[str] = frozenset()
    assert judge(MAY_FAIL, Outcome(is_over=True), ["flaw"], nothing).ending is Ending.UNKNOWN
    assert judge(MAY_FAIL, Outcome(is_over=True, cause="source_status"), ["flaw"], nothing).ending is Ending.UNKNOWN
    assert judge(MUST_SUCCEED, Outcome(is_over=True), [], nothing).ending is Ending.EQUAL
    assert judge(MAY_FAIL, Outcome(is_over=True, difference="1 lost"), ["flaw"], nothing).ending is Ending.SILENT

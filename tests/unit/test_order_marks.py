"""Slices and marks, held against a plain list of seconds whatever is claimed, read, failed, split or skipped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import ValidationError

from domain.orders import windows
from domain.orders.windows import LiveOrHistory, TimeWindow, Watermarks
from tests.support.slices import is_gapless

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def at(seconds: int) -> datetime:
    """A moment this many seconds after the beginning."""
    return BEGIN + timedelta(seconds=seconds)


def window(start: int, end: int) -> TimeWindow:
    """A window by seconds after the beginning."""
    return TimeWindow(start=at(start), end=at(end))


@given(start=st.integers(0, 100), length=st.integers(2, 5_000))
def test_halves_are_the_window(start: int, length: int) -> None:
    """Split any number of times, the leaves follow each other without a gap, down to single seconds."""
    whole = window(start, start + length)
    leaves = [whole]
    for _ in range(length.bit_length() + 1):
        leaves = [half for leaf in leaves for half in leaf.split_in_halves() or (leaf,)]

    assert is_gapless(leaves)
    assert (leaves[0].start, leaves[-1].end) == (whole.start, whole.end)
    assert all(leaf.duration == timedelta(seconds=1) for leaf in leaves)


def test_a_window_too_short_to_be_asked_for_is_not_split() -> None:
    """The platform's shortest window bounds the halves."""
    assert window(0, 10).split_in_halves(least_seconds=6) is None
    assert window(0, 1).split_in_halves() is None


@pytest.mark.parametrize(
    ("length", "overlap", "longest", "asked"),
    [
        (100, 5, None, 105),
        (3, 5, None, 6),
        (100, 5, 105, 105),
        (100, 9, 105, 105),
        (100, 9, 100, 100),
        (100, 9, 90, 100),
    ],
)
def test_a_repeated_beginning_stays_within_what_may_be_asked_for(
    length: int, overlap: int, longest: float | None, asked: int
) -> None:
    """A window that was claimed before the overlap became longer is not refused by its platform."""
    claimed = window(1_000, 1_000 + length)
    begun = claimed.with_overlap(overlap, longest)
    assert (begun.end, begun.duration) == (claimed.end, timedelta(seconds=asked))
    assert claimed.is_longer_than(longest) == (asked > (longest or asked))


def test_a_window_shorter_than_its_platform_takes_repeats_what_it_lacks() -> None:
    """It was claimed before the record said so."""
    assert window(1_000, 1_010).with_overlap(5, None, 60) == window(950, 1_010)
    assert window(1_000, 1_010).with_overlap(5, 60, 59.5) == window(950, 1_010)
    assert window(1_000, 1_100).with_overlap(5, None, 60) == window(995, 1_100)


@pytest.mark.parametrize(("start", "end"), [(at(5), at(5)), (at(5), at(4)), (at(0), at(1) + timedelta(milliseconds=1))])
def test_a_window_without_whole_seconds_is_refused(start: datetime, end: datetime) -> None:
    """Nothing is claimed that ends before it begins, or within a second."""
    with pytest.raises(ValidationError):
        TimeWindow(start=start, end=end)


def test_the_present_goes_before_history() -> None:
    """A platform that begins long ago is claimed at its newest interval first."""
    first = Watermarks.create_first(BEGIN, at(10_000), 600)
    _, claims = first.claim_next_slices(at(10_000), 600, {LiveOrHistory.LIVE: 3, LiveOrHistory.HISTORY: 2})

    assert [claim.track for claim in claims] == [LiveOrHistory.LIVE, LiveOrHistory.HISTORY, LiveOrHistory.HISTORY]
    assert claims[0].window.end == at(9_600)
    assert claims[1].window == window(0, 600)


def test_holes_are_what_is_not_read() -> None:
    """Unfinished slices and unclaimed history, joined where they touch."""
    standing = Watermarks(starts_at=BEGIN, history_to=at(60), live_from=at(120), claimed_to=at(300), complete_to=BEGIN)

    found = windows.find_incomplete_windows(standing, [window(200, 210), window(0, 10), window(50, 60)])

    assert found == [window(0, 10), window(50, 120), window(200, 210)]


class Claiming(RuleBasedStateMachine):
    """Whatever happens, in whatever order: each second is claimed once, and no hole is hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 500
        self.marks = Watermarks.create_first(BEGIN, at(self.now), 60)
        self.open: list[TimeWindow] = []
        self.read: list[TimeWindow] = []
        self.before = self.marks

    @rule(seconds=st.integers(0, 400))
    def time_goes_by(self, seconds: int) -> None:
        """The platform's clock moves on."""
        self.now += seconds

    @rule(interval=st.integers(1, 200), live=st.integers(0, 4), history=st.integers(0, 4))
    def claim(self, interval: int, live: int, history: int) -> None:
        """A cycle claims, with any interval: the configuration may have changed."""
        most = {LiveOrHistory.LIVE: live, LiveOrHistory.HISTORY: history}
        self.marks, claims = self.marks.claim_next_slices(at(self.now), interval, most)
        self.open += [claim.window for claim in claims]
        for track in LiveOrHistory:
            assert sum(claim.track is track for claim in claims) <= most[track]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        """Any slice is confirmed or skipped; the others run or have failed."""
        index = data.draw(st.integers(0, len(self.open) - 1))
        self.read.append(self.open.pop(index))
        self._move()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        """Any slice becomes its halves."""
        index = data.draw(st.integers(0, len(self.open) - 1))
        chosen = self.open.pop(index)
        self.open += chosen.split_in_halves() or (chosen,)
        self._move()

    def _move(self) -> None:
        self.marks = self.marks.with_complete_to_before_first_unfinished(
            min((each.start for each in self.open), default=None)
        )

    @invariant()
    def nothing_is_forgotten(self) -> None:
        """What is read, open or unclaimed makes the whole time between the beginning and `claimed_to`, each once."""
        parts = [*self.open, *self.read, *([self.marks.unclaimed_history] if self.marks.unclaimed_history else [])]
        assert is_gapless(parts)
        if parts:
            assert min(each.start for each in parts) == BEGIN
            assert max(each.end for each in parts) == self.marks.claimed_to
        assert self.marks.claimed_to <= at(self.now)

    @invariant()
    def complete_to_tells_the_truth(self) -> None:
        """It never goes back, and all before it is read."""
        assert self.before.complete_to <= self.marks.complete_to
        assert self.before.claimed_to <= self.marks.claimed_to
        assert all(each.start >= self.marks.complete_to for each in self.open)
        if self.marks.unclaimed_history:
            assert self.marks.unclaimed_history.start >= self.marks.complete_to
        self.before = self.marks


TestClaiming = Claiming.TestCase

"""How far a backfill is, and what it has failed by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from domain.faults import FaultRecord
from domain.orders.activity_models import OrderCycleStatus, SliceResult
from domain.orders.slices import FAILURES_STOP, BackfillProgress
from domain.orders.windows import TimeWindow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BUSY = FaultRecord(code="platform_busy", message="It was busy.", hint="Ask less.", retryable=True)
LIED = FaultRecord(code="platform_failed", message="It lied.")


def window(number: int) -> TimeWindow:
    """The nth ten minutes of the afternoon."""
    start = NOON + timedelta(minutes=10 * number)
    return TimeWindow(start=start, end=start + timedelta(minutes=10))


def progress(*faults: FaultRecord | None) -> BackfillProgress:
    """What slices that ended like this came to."""
    found = BackfillProgress()
    for number, fault in enumerate(faults):
        found = found.add_slice(window(number), fault)
    return found


def test_slices_are_counted_by_how_they_ended() -> None:
    """And the record says up to where they were tried."""
    found = progress(None, BUSY, None)
    assert (found.read, found.failed, found.read_to) == (2, 1, window(2).end)
    assert not found.has_too_many_consecutive_failures


def test_a_backfill_of_which_every_slice_was_read_has_no_fault() -> None:
    """Nor has one without slices."""
    assert progress(None, None).fault is None
    assert progress().fault is None


def test_the_first_cause_is_the_backfill_s() -> None:
    """With its code, its hint, and how many slices failed."""
    fault = progress(None, BUSY, LIED).fault
    assert fault is not None
    assert (fault.code, fault.hint, fault.retryable) == ("platform_busy", "Ask less.", True)
    assert fault.message == f"2 slices could not be read again, the first {window(1)}: It was busy."


def test_a_cause_without_advice_is_given_some() -> None:
    """Every fault says what to do next."""
    fault = progress(LIED).fault
    assert fault is not None
    assert fault.message.startswith("1 slice could not")
    assert "ask for the time again" in fault.hint


def test_slice_after_slice_failed_is_hopeless() -> None:
    """In a row; a slice that was read begins the count anew."""
    assert progress(*[LIED] * FAILURES_STOP).has_too_many_consecutive_failures
    assert not progress(*[LIED] * (FAILURES_STOP - 1), None, LIED).has_too_many_consecutive_failures
    fault = progress(*[LIED] * FAILURES_STOP).fault
    assert fault is not None
    assert "the rest was not tried" in fault.message


@pytest.mark.parametrize(
    ("result", "finished", "failed"),
    [
        (SliceResult(done=True, orders=9), 1, 0),
        (SliceResult(done=True, further_done=2), 3, 0),
        (SliceResult(done=True, halves=2), 0, 0),
        (SliceResult(done=False), 0, 0),
        (SliceResult(done=False, fault=LIED), 0, 1),
    ],
    ids=["read", "further ones", "split", "taken over", "failed"],
)
def test_a_cycle_counts_what_was_read(result: SliceResult, finished: int, failed: int) -> None:
    """A slice that was split is finished by its halves, and one that was taken over by whichever reader has it."""
    status = OrderCycleStatus().add_result(result)
    assert (status.finished, status.failed) == (finished, failed)

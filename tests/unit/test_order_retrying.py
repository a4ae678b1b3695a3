"""Retrying: what counts as a failure, what as a wait, and for how long."""

from __future__ import annotations

import pytest

from domain.faults import FaultRecord
from domain.orders.slices import (
    CRASHES_MAX,
    WAIT_MAX_SECONDS,
    WAITED_MAX_SECONDS,
    WAITS_MAX,
    SliceAttemptFailure,
    SliceFailureKind,
    SliceRetryState,
)

FAULT = FaultRecord(code="c", message="m")


def setback(trouble: SliceFailureKind, wait_seconds: float = 0.0, gained: int = 0) -> SliceAttemptFailure:
    """An attempt that did not come to its end."""
    return SliceAttemptFailure(kind=trouble, fault=FAULT, wait_seconds=wait_seconds, gained=gained)


def test_each_pause_is_longer_than_the_one_before() -> None:
    """n times `retryintv`, and after `retries` of them there is no further attempt."""
    ladder = SliceRetryState()
    pauses = [ladder.record_failure_and_compute_pause(setback(SliceFailureKind.FAILED), 3, 10) for _ in range(4)]
    assert pauses == [10, 20, 30, None]


def test_what_is_refused_is_not_tried_again() -> None:
    """The cause has to be mended first."""
    assert SliceRetryState().record_failure_and_compute_pause(setback(SliceFailureKind.REFUSED), 3, 10) is None


@pytest.mark.parametrize(("wait", "times"), [(0.5, WAITS_MAX), (3_600.0, WAITED_MAX_SECONDS / 3_600)])
def test_waiting_for_nothing_is_failing_in_the_end(wait: float, times: float) -> None:
    """A platform that only ever says “later” is believed a limited number of times, and for a limited time."""
    ladder = SliceRetryState()
    for _ in range(int(times)):
        assert ladder.record_failure_and_compute_pause(setback(SliceFailureKind.TOLD_TO_WAIT, wait), 1, 10) == wait
    assert ladder.record_failure_and_compute_pause(setback(SliceFailureKind.TOLD_TO_WAIT, wait), 1, 10) == max(
        10.0, wait
    )
    assert ladder.record_failure_and_compute_pause(setback(SliceFailureKind.TOLD_TO_WAIT, wait), 1, 10) is None


def test_whoever_is_told_something_may_wait_on() -> None:
    """A slow rate is no failure, however many pages there are."""
    ladder = SliceRetryState()
    for _ in range(3 * WAITS_MAX):
        assert (
            ladder.record_failure_and_compute_pause(setback(SliceFailureKind.TOLD_TO_WAIT, 60.0, gained=1), 0, 10) == 60
        )
    assert ladder.failures == 0


def test_a_limit_of_our_own_is_looked_at_again_within_a_minute() -> None:
    """An operator may have raised it; and however long it stays used up, that is no failure."""
    ladder = SliceRetryState()
    busy = setback(SliceFailureKind.TOLD_TO_WAIT, 80_000.0).model_copy(update={"is_own_limit": True})
    assert {ladder.record_failure_and_compute_pause(busy, 0, 10) for _ in range(3 * WAITS_MAX)} == {60.0}
    assert (ladder.failures, ladder.waits) == (0, 0)


def test_no_wait_is_longer_than_a_day() -> None:
    """Whatever a platform asks for."""
    assert (
        SliceRetryState().record_failure_and_compute_pause(setback(SliceFailureKind.TOLD_TO_WAIT, 1e9), 0, 10)
        == WAIT_MAX_SECONDS
    )


def test_credentials_that_worked_for_a_while_are_tried_again_soon() -> None:
    """Where an attempt got answers before its token expired, the next one waits no longer than the first."""
    ladder = SliceRetryState()
    refused, expired_midway = (setback(SliceFailureKind.EXPIRED, gained=gained) for gained in (0, 9))
    assert [ladder.record_failure_and_compute_pause(refused, 0, 1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [ladder.record_failure_and_compute_pause(expired_midway, 0, 1) for _ in range(3)] == [1, 1, 1]
    assert ladder.failures == 0


def test_lost_workers_are_no_failures_at_first() -> None:
    """The slice is taken up at once; after many of them it is taken for the cause."""
    ladder = SliceRetryState()
    assert [
        ladder.record_failure_and_compute_pause(setback(SliceFailureKind.CRASHED), 0, 10) for _ in range(CRASHES_MAX)
    ] == [0.0] * CRASHES_MAX
    assert ladder.record_failure_and_compute_pause(setback(SliceFailureKind.CRASHED), 0, 10) is None

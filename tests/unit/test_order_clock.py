"""The clock of a platform that tells local times: one that is put back by a step of summer time is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.exceptions import ActivityError

from activities.orders import slice_attempts
from activities.orders.window_checks import require_clock_not_put_back
from clients.platforms import InconsistentAnswers, PlatformFailure, WrongTimeZone
from domain.orders.activity_models import PlatformAndCycleRunFlags
from domain.orders.capability import Capability
from domain.orders.declarations import TimeFormat, TimeNotation
from domain.orders.known_platforms import SHOPIFY, TAOBAO
from sims.platforms.dialects.plain import PLAIN
from stores.orders.platforms import PlatformWithSettingsInForce
from workflows.orders.cycle import OrderCycleWorkflow

LOCAL = {"form": TimeNotation.SPACED}


def with_clock(**moments: Any) -> Capability:
    """A platform whose clock tells such times."""
    clock = PLAIN.clock.model_copy(update={"time_format": TimeFormat.model_validate(moments)})
    return PLAIN.model_copy(update={"clock": clock})


def read_before(
    record: Capability, skew_seconds: float | None, *, is_declared: bool = True
) -> PlatformWithSettingsInForce:
    """A platform whose clock was that far ahead when it was read last."""
    row = SimpleNamespace(capability={} if is_declared else None, skew_seconds=skew_seconds)
    return PlatformWithSettingsInForce(cast("Any", row), record, cast("Any", None), {})


@pytest.mark.parametrize(("before", "after"), [(0, -3_600), (3_600, 0), (7_205, 1), (10, -1_795)])
def test_a_local_clock_that_is_put_back_is_refused(before: float, after: float) -> None:
    """The hour that it tells again was read already: orders of its second time would be left out for ever."""
    with pytest.raises(WrongTimeZone, match="was put back by"):
        require_clock_not_put_back(read_before(TAOBAO, before), datetime.now(UTC) + timedelta(seconds=after))


@pytest.mark.parametrize(
    ("record", "before", "after"),
    [
        (TAOBAO, None, -3_600),
        (TAOBAO, 0, 3_600),
        (TAOBAO, 0, -600),
        (TAOBAO, 5_000, 0),
        (SHOPIFY, 0, -3_600),
        (PLAIN, 0, -3_600),
        (with_clock(**LOCAL, zone="Europe/Berlin"), 0, -3_600),
    ],
    ids=["first", "forward", "a little", "no step", "header", "by its zone", "named zone"],
)
def test_any_other_change_of_a_clock_is_its_own_matter(record: Capability, before: float | None, after: float) -> None:
    """Slices go by it: nothing is read twice or left out."""
    require_clock_not_put_back(read_before(record, before), datetime.now(UTC) + timedelta(seconds=after))


def test_a_clock_of_a_built_in_kind_may_be_set_right() -> None:
    """It has no record to be changed, and its zone puts no clocks back: nothing would end the refusal."""
    require_clock_not_put_back(read_before(TAOBAO, 3_600, is_declared=False), datetime.now(UTC))


@pytest.mark.parametrize(
    ("failure", "skew"),
    [(InconsistentAnswers("It tells no time.", "Wait."), 3_600), (WrongTimeZone("It was put back.", "Mend it."), None)],
)
async def test_a_run_claims_on_by_the_last_skew_unless_the_clock_was_put_back(
    failure: PlatformFailure, skew: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the skew of before, an hour would be claimed whose orders are still to come."""
    now = datetime(2026, 10, 25, tzinfo=UTC)
    monkeypatch.setattr("temporalio.workflow.now", lambda: now)
    run = OrderCycleWorkflow(PlatformAndCycleRunFlags(platform="7"))
    run._skew, run._skew_at = 3_600, now - timedelta(minutes=1)
    reported = []

    async def fail() -> None:
        failed = ActivityError(
            "",
            scheduled_event_id=1,
            started_event_id=1,
            identity="",
            activity_type="order_clock",
            activity_id="",
            retry_state=None,
        )
        raise failed from slice_attempts.to_application_error(slice_attempts.to_attempt_failure(failure))

    async def report(error: ActivityError, _: datetime) -> None:
        reported.append(error)

    monkeypatch.setattr(run, "_measure_clock_skew", fail)
    monkeypatch.setattr(run, "_report_clock_failure", report)

    assert await run._measure_skew_if_old() == skew
    assert len(reported) == (skew is None)

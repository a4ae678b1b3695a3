"""Waiting for permits: a request that may wait for hours holds up none that may not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest

from clients.platforms import PlatformBusy, RequestPermits
from domain.limits import LimitDecision, RateDemand, SlotDemand
from domain.orders.declarations import RateLimit
from tests.support.platforms import OpenLimiter


class UsedUpLimiter(OpenLimiter):
    """A limiter that has room again after an hour."""

    async def take_all_or_none(self, rates: Sequence[RateDemand], slots: Sequence[SlotDemand]) -> list[LimitDecision]:
        """No."""
        return [LimitDecision(allowed=False, remaining=0, reset_seconds=3_600.0) for _ in rates]


@pytest.mark.parametrize("patience_seconds", [0.0, 150.0])
async def test_a_report_that_waits_for_its_rate_holds_up_no_slice(patience_seconds: float) -> None:
    """The slice is asked to come back when there is room, at once, and not when its attempt has timed out."""
    permits = RequestPermits(UsedUpLimiter(), "7", RateLimit(per_second=1))
    report = asyncio.create_task(permits.wait_for_permit(math.inf))
    await asyncio.sleep(0.01)
    with pytest.raises(PlatformBusy) as busy:
        async with asyncio.timeout(30):
            await permits.wait_for_permit(patience_seconds)
    report.cancel()
    assert busy.value.is_local
    assert 3_500 < (busy.value.retry_after_seconds or 0) <= 3_600

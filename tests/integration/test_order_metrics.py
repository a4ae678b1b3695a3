"""What a worker shows of platforms: ages of watermarks, slices, requests, and how readings ended."""

from __future__ import annotations

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from infra import metrics
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import LAG_SECONDS, NUMBER, gauge, running_orders, set_up_platform
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SCENARIO = PlatformScenario(orders=40, span_seconds=3_600)
LYING = PlatformFaults(total_off=2)


def count(name: str, **labels: str) -> float:
    """A counter of this process."""
    return REGISTRY.get_sample_value(f"{name}_total", {"platform": NUMBER, **labels}) or 0.0


async def test_slices_that_fail_and_succeed_are_counted(settings: Settings) -> None:
    """By cause; the gauges follow the ledger, and a slice that is done ends with one line of its counts."""
    ended = "haulage_order_slices_ended"
    failures = {"purpose": "first", "outcome": "failed", "cause": "platform_failed"}
    readings = {"purpose": "again", "outcome": "done", "cause": ""}
    before = count(ended, **failures), count(ended, **readings)
    requests = count("haulage_platform_requests", status="200")
    async with running_orders(settings, serve_seconds=0.2) as orders:
        await set_up_platform(orders, SCENARIO.model_copy(update={"faults": LYING}), retries=0)
        await orders.fetch()
        assert await eventually(lambda: gauge(metrics.SLICES_FAILED) == 2)
        assert gauge(metrics.SLICES_OPEN) == 0
        assert 0 < gauge(metrics.CLAIMED_AGE) < 1_500 + 2 * LAG_SECONDS < gauge(metrics.COMPLETE_AGE)

        orders.platforms.by_number[NUMBER].set(SCENARIO)
        with capture_logs() as logs:
            reply = await orders.ask("POST", f"/v1/platforms/{NUMBER}/slices:redo", json={"all": True})
            assert reply.status == 202, reply.body
            assert await eventually(lambda: gauge(metrics.SLICES_FAILED) == 0)
            # A reading is logged and counted after its commit, which the gauges may show before.
            assert await eventually(lambda: count(ended, **readings) == before[1] + 2)
        assert await eventually(lambda: gauge(metrics.COMPLETE_AGE) == pytest.approx(gauge(metrics.CLAIMED_AGE), abs=1))

    lines = [each for each in logs if each["event"] == "order_slice_done"]
    assert count(ended, **failures) == before[0] + 2
    assert count(ended, **readings) == before[1] + 2 == before[1] + len(lines)
    assert all(each["purpose"] == "again" and each["pages"] >= 1 and each["orders"] for each in lines)
    assert count("haulage_platform_requests", status="200") > requests
    assert count("haulage_platform_bytes") > 0
    assert REGISTRY.get_sample_value("haulage_platform_wait_seconds_count", {"platform": NUMBER})

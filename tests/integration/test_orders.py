"""Orders through the public API: fetched in slices, whatever happens on the platform meanwhile, and none lost."""

from __future__ import annotations

import pytest

from infra.settings import Settings
from sims.platforms.scenario import PlatformScenario
from tests.support.orders import count_findings, running_orders, since

pytestmark = pytest.mark.stack


async def test_a_platform_is_fetched_to_its_last_settled_second(settings: Settings) -> None:
    """Slice by slice, history and present; what is stored is the platform's own ledger."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=3_000, span_seconds=7_200))
        await orders.set_up()
        await orders.configure(starttime=since(platform, seconds=7_200))

        ended = await orders.fetch()

        assert (ended.finished, ended.failed) == (11, 0)
        findings = await orders.findings()
        status = await orders.status()
    assert count_findings(findings) == dict.fromkeys(count_findings(findings), 0)
    assert status["holes"] == []
    assert status["complete_to"] == status["claimed_to"]

"""Orders through the public API: fetched in slices, whatever happens on the platform meanwhile, and none lost."""

from __future__ import annotations

import pytest
from temporalio.service import RPCError

from domain.orders import names
from infra.settings import Settings
from sims.platforms.scenario import PlatformScenario
from stores.orders.ledger import build_window
from tests.support.orders import NUMBER, Orders, count_findings, running_orders, since

pytestmark = pytest.mark.stack


async def test_a_platform_is_fetched_to_its_last_settled_second(settings: Settings) -> None:
    """Slice by slice, history and present; what is stored is the platform's own ledger."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=3_000, span_seconds=7_200))
        await orders.set_up()
        # Some minutes before the next slice has settled.
        await orders.configure(starttime=since(platform, seconds=7_000))

        ended = await orders.fetch()

        assert (ended.finished, ended.failed) == (11, 0)
        findings = await orders.findings()
        status = await orders.status()
    assert count_findings(findings) == dict.fromkeys(count_findings(findings), 0)
    assert status["gaps"] == []
    assert status["complete_to"] == status["claimed_to"]


async def has_workflow(orders: Orders, workflow_id: str) -> bool:
    try:
        await orders.engine.get_workflow_handle(workflow_id).describe()
    except RPCError:
        return False
    return True


@pytest.mark.long
async def test_small_slices_of_a_history_share_readings(settings: Settings) -> None:
    """Most slices have no workflow of their own; all are in the ledger, each with its own orders and pages."""
    async with running_orders(settings) as orders:
        platform = orders.play(PlatformScenario(orders=2_000, span_seconds=40 * 600))
        await orders.set_up()
        await orders.configure(starttime=since(platform, seconds=40 * 600), threads=1)

        ended = await orders.fetch()

        slices, findings = await orders.slices(), await orders.findings()
        ids = [names.build_slice_workflow_id(NUMBER, build_window(row)) for row in slices]
        own = [await has_workflow(orders, workflow_id) for workflow_id in ids]
    assert (ended.finished, ended.failed) == (len(slices), 0)
    assert len(slices) > 15
    assert sum(own) < len(slices) / 2
    assert {row.attempts for row in slices} == {1}
    assert len({row.raw_key for row in slices}) == len(slices)
    assert count_findings(findings) == dict.fromkeys(count_findings(findings), 0)


async def test_a_new_platform_is_served_without_a_poll(settings: Settings) -> None:
    """A worker that looks for platforms once in an hour hears of one at once."""
    async with running_orders(settings, serve_seconds=3_600) as orders:
        platform = orders.play(PlatformScenario(orders=200, span_seconds=1_800))
        await orders.set_up()
        await orders.configure(starttime=since(platform, seconds=1_800))

        ended = await orders.fetch()

    assert ended.finished
    assert not ended.failed

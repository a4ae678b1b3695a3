"""Slices that a cycle finds running elsewhere: left alone for a while, then looked at again in the same run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from domain.orders import names as orders_names
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import NUMBER, Orders, running_orders, since
from tests.support.waiting import eventually
from workflows.orders import cycle

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
SLICES = 8


@pytest.mark.long
async def test_a_slice_that_runs_elsewhere_is_taken_up_in_the_same_run(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as its workflow is gone and its time is over; until then it is nobody's second reading."""
    monkeypatch.setattr(cycle, "_ELSEWHERE_VALID", timedelta(seconds=1))
    async with running_orders(settings, slices_ahead=64) as orders:
        slow = PlatformScenario(orders=90, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=2_000))
        platform = orders.play(slow)
        await orders.set_up()
        await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=300, overlap=0, threads=1)
        lost = await orders.cycle(name="-lost")
        await orders.wait_for_slices(SLICES)
        names = [TimeWindow(start=row.start_at, end=row.end_at) for row in await orders.slices()]
        await eventually(lambda: _are_running(orders, names))
        await lost.terminate()
        # The last of history wait longest for the one thread: the present, which is the last of all, is read first.
        elsewhere, own, _ = names[-3:]
        await orders.engine.get_workflow_handle(orders_names.build_slice_workflow_id(NUMBER, own)).terminate()

        going = await orders.cycle(name="-going")
        await eventually(lambda: _leads(orders, going.id, own))
        assert not await _leads(orders, going.id, elsewhere)
        await orders.engine.get_workflow_handle(orders_names.build_slice_workflow_id(NUMBER, elsewhere)).terminate()

        await eventually(lambda: _leads(orders, going.id, elsewhere))
        first = (await going.describe()).run_id
        platform.set(slow.model_copy(update={"faults": PlatformFaults()}))
        await going.result()
        assert (await going.describe()).run_id == first
        await eventually(orders.is_complete)


async def _are_running(orders: Orders, names: list[TimeWindow]) -> bool:
    running = {each.id async for each in orders.engine.list_workflows("WorkflowType = 'OrderSlice'")}
    return {orders_names.build_slice_workflow_id(NUMBER, name) for name in names} <= running


async def _leads(orders: Orders, cycle_id: str, name: TimeWindow) -> bool:
    """Whether a cycle has begun the newest reading of a slice."""
    description = await orders.engine.get_workflow_handle(orders_names.build_slice_workflow_id(NUMBER, name)).describe()
    return description.parent_id == cycle_id

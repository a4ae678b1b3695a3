"""Small slices that share a reading: what it leaves is held by no attempt, and is due again."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.orders import slice_attempts
from activities.orders.activities import OrderActivities, PlatformActivities
from domain.orders import names
from domain.orders.activity_models import ClaimSlicesInput, PlatformInput, ReadSliceInput, ReadSliceResult
from domain.orders.slices import SliceReadOutcome, SliceReadPurpose
from infra.settings import Settings
from sims.platforms.clock import MICRO
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.orders import NUMBER, Orders, running_orders, since

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
STORE = slice_attempts.store_raw_pages_as_parquet


@pytest.fixture
async def orders(settings: Settings) -> AsyncIterator[Orders]:
    """API and worker, and a platform that only the test reads."""
    async with running_orders(settings, queues=[names.QUEUE]) as running:
        running.play(PlatformScenario(orders=60, span_seconds=SPAN_SECONDS))
        await running.set_up()
        await configure(running, threads=1)
        yield running


async def configure(orders: Orders, threads: int = 2) -> None:
    """Configure the platform, with five slices."""
    platform = orders.platforms.by_number[NUMBER]
    starttime = since(platform, seconds=SPAN_SECONDS)
    await orders.configure(starttime=starttime, interval=SPAN_SECONDS // 6, threads=threads)


async def refuse_requests(orders: Orders) -> None:
    """Let each further request of the platform fail."""
    platform = orders.platforms.by_number[NUMBER]
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(errors=1)}))


async def read_all_in_one(orders: Orders) -> ReadSliceResult:
    """Claim what is due, and read it in one reading, the first slice and the others further."""
    skew = orders.platforms.by_number[NUMBER].market.now_us / MICRO - time.time()
    run, steps = ActivityEnvironment().run, OrderActivities(orders.services)
    await run(steps.claim_slices, ClaimSlicesInput(platform=NUMBER, skew_seconds=skew))
    first, *further = [row.start_at for row in await orders.slices()]
    claimed = await run(steps.claim_slices, ClaimSlicesInput(platform=NUMBER, skew_seconds=skew))
    by_start = {window.start: window for job in claimed.jobs for window in job.windows}
    order = ReadSliceInput(
        platform=NUMBER,
        window=by_start[first],
        purpose=SliceReadPurpose.FIRST,
        settings=await run(steps.load_settings, PlatformInput(platform=NUMBER)),
        holder="slice/1",
        further=[by_start[start] for start in further],
    )
    return await run(PlatformActivities(orders.services).read_and_commit_slice, order)


@pytest.mark.parametrize("happens", [configure, refuse_requests])
async def test_what_a_reading_leaves_is_held_by_no_attempt(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, happens: Callable[[Orders], Awaitable[None]]
) -> None:
    """Whatever ends it after two slices: other settings are in force, or the platform fails."""
    stored = 0

    async def store_and_let_it_happen(*arguments: Any) -> None:
        nonlocal stored
        await STORE(*arguments)
        stored += 1
        if stored == 2:
            await happens(orders)

    monkeypatch.setattr(slice_attempts, "store_raw_pages_as_parquet", store_and_let_it_happen)
    read = await read_all_in_one(orders)

    slices = await orders.slices()
    done = [row for row in slices if row.done_at]
    assert (read.ending, read.further_done, len(done)) == (SliceReadOutcome.DONE, 1, 2)
    assert len(slices) > len(done)
    assert {row.holder for row in slices} == {None}
    assert all(row.failed_at is None for row in slices)

"""Credentials that a platform refuses: one alarm, nothing more is claimed, all goes on by itself; many slices."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest
from temporalio.client import WorkflowFailureError
from temporalio.testing import ActivityEnvironment

from activities.orders.activities import OrderActivities
from domain.faults import FaultRecord
from domain.orders.activity_models import FailSliceInput
from domain.orders.slices import SliceReadPurpose
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from stores.tables.orders import OrderSlice
from tests.support.orders import CREDENTIALS, NUMBER, Orders, count_findings, running_orders, since
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SPAN_SECONDS = 3_600
RETRY_SECONDS = 3
FAULT = FaultRecord(code="platform_busy", message="It was busy.")


async def set_up_platform(orders: Orders, faults: PlatformFaults, interval: int) -> None:
    """A platform with an hour of orders, paused and not yet fetched; its administrator receives alarms."""
    platform = orders.play(PlatformScenario(orders=300, span_seconds=SPAN_SECONDS, faults=faults))
    await orders.set_up(notify_url=f"{orders.platforms.base}/nobody")
    await orders.configure(starttime=since(platform, seconds=SPAN_SECONDS), interval=interval, retries=0)


async def open_rows(orders: Orders) -> list[OrderSlice]:
    """Slices that are neither read nor given up."""
    return [row for row in await orders.slices() if not (row.done_at or row.failed_at)]


@pytest.mark.parametrize("way", ["refused", "missing"])
@pytest.mark.long
async def test_a_platform_waits_for_credentials(settings: Settings, way: str) -> None:
    """Whether the platform refuses them or there are none to show: one alarm, no slice fails, and none is missed."""
    async with running_orders(settings, slices_ahead=4) as orders:
        await set_up_platform(orders, PlatformFaults(token_dead=way == "refused"), interval=100)
        platform = orders.platforms.by_number[NUMBER]
        file = orders.api_client.settings.orders.credentials_folder / f"{CREDENTIALS}.json"
        good = file.read_text()
        if way == "missing":
            file.unlink()
        cycle = await orders.cycle()

        async def is_noted() -> bool:
            return (await orders.status())["credentials_failed_since"] is not None

        await eventually(is_noted)
        claimed = len(await orders.slices())
        await asyncio.sleep(3)
        status, asked = await orders.status(), platform.calls["401"]
        assert len(await orders.slices()) == claimed < 20
        assert status["slices_failed"] == 0
        assert status["credentials_fault"]["code"] == "platform_credentials"
        assert (asked > 0) == (way == "refused")

        file.write_text(good)
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        with suppress(WorkflowFailureError):  # without credentials the clock cannot be read
            await asyncio.wait_for(cycle.result(), 120)
        await orders.fetch()
        healed, events = await orders.status(), await orders.events()
        assert (healed["credentials_failed_since"], healed["credentials_fault"]) == (None, None)
        assert [each for each in events if each != "orders.clock_off"] == ["orders.credentials_refused"]
        assert await orders.is_complete()
        assert count_findings(await orders.findings())["lost"] == 0


@pytest.mark.long
async def test_who_waits_for_credentials_asks_seldom(settings: Settings) -> None:
    """All slices together ask once in the first pause of a retry, not each for itself."""
    async with running_orders(settings, slices_ahead=8) as orders:
        await set_up_platform(orders, PlatformFaults(token_dead=True), interval=100)
        await orders.configure(
            starttime=since(orders.platforms.by_number[NUMBER], seconds=SPAN_SECONDS),
            interval=100,
            retryintv=RETRY_SECONDS,
        )
        cycle = await orders.cycle()
        platform = orders.platforms.by_number[NUMBER]

        async def is_noted() -> bool:
            return (await orders.status())["credentials_failed_since"] is not None

        await eventually(is_noted)
        await asyncio.sleep(1)
        waiting, before, began = len(await open_rows(orders)), platform.calls["401"], time.monotonic()
        await asyncio.sleep(10)
        asked, seconds = platform.calls["401"] - before, time.monotonic() - began
        # Each try is two requests: the credentials are read again before they are given up.
        assert waiting > 4
        assert 1 <= asked <= 2 * (seconds / RETRY_SECONDS + 2)
        await cycle.terminate()


@pytest.mark.long
async def test_many_slices_are_steered_at_once(settings: Settings) -> None:
    """By their names or by what they have in common; what does not allow it is left, and why is said."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformFaults(errors=1), interval=600)
        await orders.fetch()
        names = [str(TimeWindow(start=row.start_at, end=row.end_at)) for row in await orders.slices() if row.failed_at]
        path = f"/v1/platforms/{NUMBER}/slices"
        assert len(names) >= 4

        vague = await orders.ask("POST", f"{path}:split", json={})
        split = await orders.ask(
            "POST", f"{path}:split", json={"slices": [names[0], "20200101T000000Z:20200101T000100Z"]}
        )
        again = await orders.ask("POST", f"{path}:skip", json={"slices": [names[0]], "reason": "it was closed"})
        other = await orders.ask("POST", f"{path}:skip", json={"cause": "worker_lost", "reason": "it was closed"})
        unknown = await orders.ask("POST", f"{path}:skip", json={"cause": "no_such_code", "reason": "it was closed"})
        end = TimeWindow.model_validate({"start": names[1][:4] + "-01-01T00:00:00Z", "end": "2100-01-01T00:00:00Z"}).end
        skipped = await orders.ask("POST", f"{path}:skip", json={"slices": [names[1]], "reason": "the shop was closed"})
        platform = orders.platforms.by_number[NUMBER]
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
        redone = await orders.ask("POST", f"{path}:redo", json={"cause": "platform_busy", "end": end.isoformat()})

        assert (vague.status, unknown.status, split.status, redone.status) == (422, 422, 200, 202)
        assert split.body["done"] == [names[0]]
        assert [each["code"] for each in split.body["unchanged"]] == ["not_found"]
        assert [each["code"] for each in again.body["unchanged"]] == ["slice_not_failed"]
        assert (other.body["done"], other.body["unchanged"], other.body["next_start"]) == ([], [], None)
        assert skipped.body["done"] == [names[1]]
        assert redone.body["done"] == names[2:]

        async def whole() -> bool:
            await orders.fetch()
            return await orders.is_complete()

        await eventually(whole)


async def test_a_slice_is_read_again_once_at_a_time_and_given_up_by_its_reader_only(settings: Settings) -> None:
    """Two who ask for it get one reading; a reading that another one has replaced gives nothing up."""
    async with running_orders(settings) as orders:
        await set_up_platform(orders, PlatformFaults(errors=1), interval=1_500)
        await orders.fetch()
        [first, *_] = [row for row in await orders.slices() if row.failed_at]
        window = TimeWindow(start=first.start_at, end=first.end_at)
        platform = orders.platforms.by_number[NUMBER]
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults(slow_ms=3_000)}))

        path = f"/v1/platforms/{NUMBER}/slices/{window}"
        replies = await asyncio.gather(*(orders.ask("POST", f"{path}/redo") for _ in range(5)))
        assert {reply.status for reply in replies} == {202}

        async def is_read() -> bool:
            return any(row.holder and row.start_at == window.start for row in await orders.slices())

        await eventually(is_read)
        lost = FailSliceInput(
            platform=NUMBER,
            window=window,
            purpose=SliceReadPurpose.FIRST,
            fault=FAULT,
            attempts=4,
            reader="order-slice:another",
        )
        told = await ActivityEnvironment().run(OrderActivities(orders.services).record_failed_slice_or_sweep, lost)
        platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))

        async def is_done() -> bool:
            return bool((await orders.ask("GET", path)).body["state"] == "done")

        await eventually(is_done)
        readings = [
            each.id async for each in orders.engine.list_workflows(f"WorkflowId = 'order-slice:{NUMBER}:{window}:redo'")
        ]
        assert told.alarms == []
        assert len(readings) == 1
        assert count_findings(await orders.findings())["stale"] == 0

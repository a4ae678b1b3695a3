"""Platforms are removed, slices tried without effect, and declarations tried before anything is kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from temporalio.client import ScheduleHandle, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from domain.orders import names
from domain.orders.activity_models import SliceStatus
from domain.orders.windows import TimeWindow
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.scenario import Kind, PlatformFaults, PlatformScenario
from stores.orders import ledger
from tests.support.orders import CREDENTIALS, NUMBER, Orders, running_orders, set_up_platform
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

SIGNED = {"who": "ann", "reason": "the shop has closed"}
PATH = f"/v1/platforms/{NUMBER}"
TRY = "/v1/platforms:try"
SHORT_PAUSE_SECONDS = 10
"""A slice that waits for longer makes no attempt while its platform is removed."""


async def test_a_platform_is_removed_and_its_orders_stay(orders: Orders) -> None:
    """Only a paused one; the same number may then be set up again."""
    await set_up_platform(orders, PlatformScenario(orders=20, span_seconds=3_600))
    await orders.fetch()
    stored = len(await orders.read_orders())
    await orders.ask("POST", f"{PATH}/resume", json=SIGNED)
    refused = await orders.ask("POST", f"{PATH}/remove", json=SIGNED)
    await orders.ask("POST", f"{PATH}/pause", json={"who": "ann", "reason": "closed"})

    removed = await orders.ask("POST", f"{PATH}/remove", json=SIGNED)

    assert (refused.status, refused.code) == (409, "platform_not_paused")
    assert removed.status == 200, removed.body
    assert (await orders.ask("GET", PATH)).status == 404
    assert await orders.slices() == []
    with pytest.raises(RPCError, match="not found"):
        await orders.engine.get_schedule_handle(names.build_cycle_schedule_id(NUMBER)).describe()
    assert len(await orders.read_orders()) == stored > 0
    audit = (await orders.ask("GET", "/v1/audit?limit=20")).body["items"]
    [entry] = [each for each in audit if each["action"].endswith("/remove") and each["status"] == 200]
    assert (entry["who"], entry["reason"]) == ("ann", "the shop has closed")
    again = await orders.set_up()
    assert again["claimed_to"] is None


async def test_a_removal_that_the_engine_interrupts_is_completed_by_the_next(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same request again, or by setting the number up anew, which then is not paused as what was left."""
    await set_up_platform(orders, PlatformScenario(orders=0))

    async def fail(schedule: ScheduleHandle, **_: object) -> None:
        raise RPCError("it is away", RPCStatusCode.UNAVAILABLE, b"")

    async def remove_while_engine_fails() -> int:
        with monkeypatch.context() as failing:
            failing.setattr(ScheduleHandle, "delete", fail)
            return (await orders.ask("POST", f"{PATH}/remove", json=SIGNED)).status

    assert await remove_while_engine_fails() == 503
    assert (await orders.ask("GET", PATH)).status == 404
    assert (await orders.ask("POST", f"{PATH}/remove", json=SIGNED)).status == 200
    assert (await orders.ask("POST", f"{PATH}/remove", json=SIGNED)).status == 404

    await orders.set_up()
    assert await remove_while_engine_fails() == 503
    assert not (await orders.set_up(is_paused=False))["is_paused"]


async def test_what_waits_for_workers_of_a_removed_platform_is_ended(orders: Orders) -> None:
    """No worker serves its queues any more: it would wait for ever. Platforms with similar numbers are left alone."""
    await set_up_platform(orders, PlatformScenario(orders=0))
    hour = TimeWindow(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 3, 1, 1, tzinfo=UTC))
    ids = [
        names.build_report_workflow_id(NUMBER, "2026-03-01"),
        names.build_slice_workflow_id(NUMBER, hour, ledger.SWEEP_SUFFIX),
        names.build_slice_workflow_id(f"{NUMBER}0", hour),
    ]
    for workflow_id in ids:
        await orders.engine.start_workflow("Waiting", id=workflow_id, task_queue="unserved")

    async def are_listed() -> bool:
        return {each.id async for each in orders.engine.list_workflows("WorkflowType = 'Waiting'")} == set(ids)

    await eventually(are_listed)

    removed = await orders.ask("POST", f"{PATH}/remove", json=SIGNED)

    assert removed.status == 200, removed.body
    states = [(await orders.engine.get_workflow_handle(each).describe()).status for each in ids]
    assert states == [
        WorkflowExecutionStatus.TERMINATED,
        WorkflowExecutionStatus.TERMINATED,
        WorkflowExecutionStatus.RUNNING,
    ]


async def test_a_platform_that_does_not_answer_is_removed_while_a_slice_waits(settings: Settings) -> None:
    """Its reading is stopped, rather than tried again for ever."""
    async with running_orders(settings) as orders:
        faults = PlatformFaults(errors=1)
        await set_up_platform(
            orders, PlatformScenario(orders=20, span_seconds=3_600, faults=faults), retries=100, retryintv=30
        )
        cycle = await orders.cycle()
        await orders.wait_for_slices(1)
        [first, *_] = await orders.slices()
        reading = orders.engine.get_workflow_handle(names.build_slice_workflow_id(NUMBER, ledger.build_window(first)))

        async def pauses() -> bool:
            status: SliceStatus = await reading.query(names.STATUS, result_type=SliceStatus)
            return (status.pause_seconds or 0) > SHORT_PAUSE_SECONDS

        await eventually(pauses)

        removed = await orders.ask("POST", f"{PATH}/remove", json=SIGNED)

        assert removed.status == 200, removed.body
        assert removed.body["slices_stopped"] > 0
        await cycle.terminate()
        status = (await reading.describe()).status
        assert status is not None
        assert status.name == "TERMINATED"


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(settings: Settings) -> None:
    """For each action on slices, by id and by filter."""
    async with running_orders(settings) as orders:
        faults = PlatformFaults(errors=1)
        await set_up_platform(orders, PlatformScenario(orders=60, span_seconds=3_600, faults=faults), retries=0)
        await orders.fetch()
        failed = [str(ledger.build_window(row)) for row in await orders.slices() if row.failed_at]
        before = await orders.row()
        sent = {"all": True, "dry_run": True, "reason": "closed"}

        replies = {
            verb: await orders.ask("POST", f"{PATH}/slices:{verb}", json=sent) for verb in ("redo", "split", "skip")
        }

        for verb, reply in replies.items():
            assert (reply.body["dry_run"], reply.body["done"]) == (True, failed), verb
        rows = await orders.slices()
        assert [row for row in rows if row.split_at or row.skipped_at or row.reread_since] == []
        assert len(rows) == len(failed)
        assert (await orders.row()).complete_to == before.complete_to
        assert (await orders.ask("POST", f"{PATH}/slices:skip", json={**sent, "dry_run": False})).body["done"] == failed


async def test_a_declaration_is_tried_before_it_is_kept(orders: Orders) -> None:
    """A right one shows rows as they were understood; nothing is stored."""
    platform = orders.play(PlatformScenario(orders=30, span_seconds=3_000))
    declared = {
        "kind": "plain",
        "shop": "shop",
        "base_url": orders.platforms.url(NUMBER),
        "capability": PLAIN.model_dump(mode="json"),
        "credentials": CREDENTIALS,
    }

    reply = await orders.ask("POST", TRY, json=declared)

    assert reply.status == 200, reply.body
    seen = reply.body
    assert seen["problems"] == []
    assert min(seen["rows"], 20) == len(seen["items"]) > 0
    assert seen["total"] >= seen["rows"]
    first = seen["items"][0]
    assert first["order_id"] in first["raw"]
    assert json.loads(first["raw"])
    assert (await orders.ask("GET", "/v1/platforms")).body["items"] == []
    assert platform.calls["200"] > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": {**PLAIN.rows.model_dump(mode="json"), "list": "$.nothing"}}, "without a list at $.nothing"),
        ({"rows": {**PLAIN.rows.model_dump(mode="json"), "id": "$.nothing"}}, "there is nothing at $.nothing"),
    ],
)
async def test_a_wrong_declaration_is_told_in_sentences(orders: Orders, change: dict[str, object], said: str) -> None:
    """With what the platform wrote, and where the declaration looks for it."""
    orders.play(PlatformScenario(orders=30, span_seconds=3_000))
    declared = {
        "kind": "plain",
        "shop": "shop",
        "base_url": orders.platforms.url(NUMBER),
        "capability": {**PLAIN.model_dump(mode="json"), **change},
        "credentials": CREDENTIALS,
    }

    reply = await orders.ask("POST", TRY, json=declared)
    nobody = await orders.ask("POST", TRY, json={**declared, "credentials": "nobody"})

    assert reply.status == 200, reply.body
    assert said in " ".join(reply.body["problems"])
    assert nobody.code == "config_invalid"


async def test_a_trial_of_a_slow_platform_holds_up_no_other(orders: Orders) -> None:
    """Its rate of three requests in a quarter of an hour is used up for its own account alone."""
    rate = {**PLAIN.rate.model_dump(mode="json"), "burst": 3, "per_second": 0.003}
    replies = []
    for number in ("slow", "slow", NUMBER):
        orders.play(PlatformScenario(orders=30, span_seconds=3_000), number)
        declared = {
            "kind": "plain",
            "shop": "shop",
            "base_url": orders.platforms.url(number),
            "capability": {**PLAIN.model_dump(mode="json"), **({"rate": rate} if number == "slow" else {})},
            "credentials": CREDENTIALS,
        }
        replies.append((await orders.ask("POST", TRY, json=declared)).body["problems"])
    first, again, other = replies
    assert (first, other) == ([], [])
    assert "is used up" in " ".join(again)


@pytest.mark.parametrize("kind", ["pinduoduo", "amazon", "taobao"])
async def test_a_built_in_kind_is_tried_within_the_times_that_it_answers(orders: Orders, kind: Kind) -> None:
    """Pinduoduo answers for half an hour at a time, and neither it nor Amazon for the last minutes."""
    orders.play(PlatformScenario(kind=kind, orders=300, span_seconds=3_000))
    declared = {
        "kind": kind,
        "shop": "shop",
        "base_url": orders.platforms.url(NUMBER),
        "credentials": CREDENTIALS,
    }

    tried = (await orders.ask("POST", TRY, json=declared)).body

    assert tried["problems"] == []
    assert tried["rows"] > 0

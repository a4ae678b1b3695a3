"""Modules that fail over HTTP: what a batch cannot digest, and a breaker that is open, cost the others no try."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from infra.settings import Settings
from sims.oss.scenario import OssAction, OssRule, OssScenario
from tests.support.addresses import Addresses, running_addresses
from tests.support.pace import measure_pace
from tests.support.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

MESSAGES, RETRIES = 500, 2
POISONED = frozenset(range(3, MESSAGES + 1, 5))


async def publish_creates(addresses: Addresses, count: int) -> dict[int, int]:
    """Publish a createUpdate for each UPRN from 1; return their ids by UPRN."""
    return {
        uprn: await addresses.publish(Topic.CREATE_UPDATE, uprn=uprn, address_id=10_000 + uprn, record={"n": uprn})
        for uprn in range(1, count + 1)
    }


@pytest.mark.long
async def test_innocents_pay_nothing_for_a_hundred_poisons(settings: Settings, tmp_path: Path) -> None:
    """One module cannot digest a fifth of a batch: these are given up, and all others applied, without a failed try."""
    async with running_addresses(settings, tmp_path, failed_cycles_max=RETRIES, step_concurrency=1) as addresses:
        addresses.modules.set(
            OssScenario(rules=(OssRule(action=OssAction.CHOKE, modules=frozenset({"od"}), uprns=POISONED),))
        )
        ids = await publish_creates(addresses, MESSAGES)
        await addresses.resume()

        async def is_over() -> bool:
            counted = await addresses.ask("GET", "messages:count", params={"state": "given_up"})
            return bool(counted.body["messages"] == len(POISONED))

        await eventually(is_over, timeout=120 * measure_pace())
        for uprn in {*ids} - POISONED:
            assert (await addresses.wait_until_applied(ids[uprn]))["retry_times"] == 0
        assert {*addresses.states(Module.OD)} == {*ids} - POISONED
        innocent_calls = [call for call in addresses.modules.modules["od"].calls if call.op_ids == (str(ids[1]),)]
        assert len(innocent_calls) <= 1


@pytest.mark.long
async def test_an_open_breaker_costs_no_try(settings: Settings, tmp_path: Path) -> None:
    """Cycle after cycle finds it open and sends nothing; what waited is applied once it closes."""
    calls = {"breaker_failures": 1, "breaker_seconds": 3_600.0}
    async with running_addresses(settings, tmp_path, failed_cycles_max=1, calls=calls) as addresses:
        addresses.modules.set(OssScenario(rules=(OssRule(action=OssAction.RESET, modules=frozenset({"od"})),)))
        ids = await publish_creates(addresses, 3)
        await addresses.resume()

        async def is_left_alone() -> bool:
            rows = [await addresses.row(id_) for id_ in ids.values()]
            return all("is not called for 3600 s" in (row["od_stack_trace"] or "") for row in rows)

        await eventually(is_left_alone)
        sent = len(addresses.modules.modules["od"].calls)
        # The module would answer now, but is not called.
        addresses.modules.set(OssScenario())
        cycles = {(await addresses.row(ids[1]))["cycle_id"]}

        async def are_several_cycles_over() -> bool:
            cycles.add((await addresses.row(ids[1]))["cycle_id"])
            return len(cycles) > 3

        await eventually(are_several_cycles_over)

        async def is_named() -> bool:
            seen = (await addresses.api_client.as_admin("GET", "/v1/overview")).body
            [shown] = [each for each in seen["systems"] if each["system"] == "addresses"]
            parts = [part for each in shown["concerns"] if each["kind"] == "failed" for part in each["largest_groups"]]
            return any(part["subject"] == "od" and "is not called" in part["cause"] for part in parts)

        await eventually(is_named)
        rows = [await addresses.row(id_) for id_ in ids.values()]
        assert {(row["proc_flag"], row["retry_times"]) for row in rows} <= {("N", 0), ("P", 0)}
        assert len(addresses.modules.modules["od"].calls) == sent

        # Another version of the configuration has a breaker of its own.
        change = {"who": "ann", "reason": "it is back", "options": {"modules": {"od": {"breaker_seconds": 1}}}}
        assert (await addresses.ask("PATCH", "config", json=change)).status == 200
        for id_ in ids.values():
            assert (await addresses.wait_until_applied(id_))["retry_times"] == 0

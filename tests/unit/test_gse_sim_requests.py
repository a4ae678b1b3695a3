"""Requests that the stand-in GSE refuses, answers late, or answers with a fault."""

from __future__ import annotations

from typing import Any

import pytest

from clients.gse import GseOutcomeUnknown, GseRefused, GseUnavailable
from sims.gse import orders
from sims.gse.scenario import GseAction, GseCall
from sims.gse.world import GseWorld
from tests.support.gse import QUICK, call_fault, make_hosts, make_order, running_gse_client

GRACE = 0.2
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"timeout_seconds": 0}, "timeout_seconds"),
    ({"tasks": []}, "tasks"),
    ({"agents": []}, "agents"),
    ({"bk_agent_id": "x" * 65}, "bk_agent_id"),
    ({"bk_agent_id": ""}, "bk_agent_id"),
]


@pytest.mark.parametrize(("wrong", "named"), WRONG, ids=lambda value: str(value)[:30])
async def test_wrong_requests_are_refused_and_named(wrong: dict[str, Any], named: str) -> None:
    """A client that asks wrongly does not pass by chance."""
    body = make_order(make_hosts(1)).to_body()
    target = body["tasks"][0]["target"]
    for part in (body, target, target["agents"][0]):
        part.update({name: value for name, value in wrong.items() if name in part})
    with pytest.raises(orders.GseCallRefused, match=named):
        orders.execute_call(GseWorld(QUICK), GseCall.TRANSFER, body)


async def test_too_many_targets_are_refused() -> None:
    """Where a limit is set."""
    async with running_gse_client(scenario=QUICK.model_copy(update={"max_targets": 2})) as (_, client):
        await client.begin_transfer(make_order(make_hosts(2)))
        with pytest.raises(GseRefused, match="at most 2"):
            await client.begin_transfer(make_order(make_hosts(3)))


async def test_calls_go_wrong_in_their_time() -> None:
    """GSE is down from one second to another, and for one call only."""
    rule = call_fault(
        GseAction.STATUS, status=503, code=1650300, calls={GseCall.TRANSFER}, from_second=10, to_second=190
    )
    async with running_gse_client(rule, retries=0) as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        await world.advance(20)
        with pytest.raises(GseUnavailable):
            await client.begin_transfer(make_order(make_hosts(1)))
        await client.get_results(task_id)
        await world.advance(180)
        await client.begin_transfer(make_order(make_hosts(1)))


async def test_calls_go_wrong_in_their_turn() -> None:
    """The second and third of five."""
    async with running_gse_client(call_fault(GseAction.REFUSE, skip=1, times=2)) as (_, client):
        went = []
        for _ in range(5):
            try:
                await client.begin_transfer(make_order(make_hosts(1)))
                went.append(True)
            except GseRefused:
                went.append(False)
    assert went == [True, False, False, True, True]


async def test_a_restart_loses_all_tasks() -> None:
    """What was begun is unknown afterwards."""
    async with running_gse_client() as (world, client):
        task_id = await client.begin_transfer(make_order(make_hosts(1)))
        world.restart()
        with pytest.raises(GseRefused, match="there is no task"):
            await client.get_results(task_id)


async def test_slow_answers_come_late() -> None:
    """Later than a client waits, while GSE has begun the transfer."""
    async with running_gse_client(call_fault(GseAction.SLOW, seconds=600), answer_timeout_seconds=GRACE) as (
        world,
        client,
    ):
        with pytest.raises(GseOutcomeUnknown):
            await client.begin_transfer(make_order(make_hosts(1)))
    assert len(world.tasks) == 1

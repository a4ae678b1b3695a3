"""Whatever is killed while changes of addresses come in and are applied, each takes effect once and modules agree."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import aiohttp
import asyncpg
import pytest

from activities.addresses.applying import operation
from domain.addresses import messages
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, Outcome
from sims.oss.scenario import Action, Rule, Scenario
from tests import address_fleet
from tests.address_fleet import Fleet
from tests.address_oracle import Book
from tests.stack import eventually

SECRET = "a-secret-of-sixteen-or-more"
VICTIMS = ("worker-1", "engine", "database", "api-1")
MESSAGES, AT_A_TIME = 400, 20
# Calls that are slow, and some that are lost, so that a kill finds work under way.
ROUGH = (Rule(action=Action.SLOW, seconds=0.05), Rule(action=Action.LOST, fraction=0.05))

Said = tuple[Topic, dict[str, Any]]


async def _publish(fleet: Fleet, number: str, said: Said) -> None:
    """Push a message until it is taken."""
    topic, payload = said
    data = base64.b64encode(json.dumps(payload).encode()).decode()
    envelope = {"message": {"messageId": number, "data": data}, "subscription": "projects/p/subscriptions/s"}
    url = f"{fleet.running.api}/v1/addresses/events/{topic}?token={SECRET}"

    async def taken() -> bool:
        try:
            async with fleet.session.post(url, json=envelope) as answer:
                return answer.status == 204
        except aiohttp.ClientError:
            return False

    await eventually(taken)


async def _publish_all(fleet: Fleet, said: Sequence[Said]) -> None:
    """Several at a time; each tenth twice."""
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> None:
        async with places:
            await _publish(fleet, f"m{number}", said[number])
            if number % 10 == 0:
                await _publish(fleet, f"m{number}", said[number])

    await asyncio.gather(*(one(number) for number in range(len(said))))


async def _share_done(fleet: Fleet) -> float:
    """Which share of the messages is done."""
    done = [row for row in (await fleet.rows()).values() if row["proc_flag"] == "Y"]
    return len(done) / MESSAGES


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """One that is pushed to."""
    async with address_fleet.fleet({"PUSH__SECRET": SECRET}) as running:
        yield running


def changes(chance: random.Random) -> list[Said]:
    """All addresses come to be, some exchange their UPRNs, others go and come again."""
    uprns = list(range(1, 61))
    said = [_create(uprn, chance) for uprn in uprns]
    while len(said) < MESSAGES:
        match chance.choices(("create", "swap", "delete"), (7, 2, 1))[0]:
            case "create":
                said.append(_create(chance.choice(uprns), chance))
            case "swap":
                one, other = chance.sample(uprns[:30], 2)
                said.append((Topic.SWAP, {"uprn_1": one, "uprn_2": other}))
            case _:
                said.append((Topic.DELETE, {"uprn": chance.choice(uprns[30:])}))
    return said


def _create(uprn: int, chance: random.Random) -> Said:
    return Topic.CREATE_UPDATE, {"uprn": uprn, "address_id": 1_000 + uprn, "record": {"n": chance.randint(0, 99)}}


@pytest.mark.parametrize("victim", VICTIMS)
async def test_kill_loses_no_change_and_repeats_none(fleet: Fleet, victim: str, request: pytest.FixtureRequest) -> None:
    """A1, A5, A9, A10, A12: SIGKILL in the middle of intake and cycles, and once more later."""
    seed = request.config.getoption("randomly_seed")
    chance = random.Random(f"{seed}/{victim}")
    said = changes(chance)
    fleet.oss.set(Scenario(seed=seed, rules=ROUGH))
    publishing = asyncio.create_task(_publish_all(fleet, said))
    for share in (chance.uniform(0.05, 0.3), chance.uniform(0.4, 0.8)):
        await eventually(partial(_is_done, fleet, share), timeout=120)
        fleet.running.stack.kill(victim)
        await fleet.running.stack.ready(victim)
    await publishing

    rows = await fleet.settled()

    assert sorted(row["msg_no"] for row in rows.values()) == sorted(f"m{number}" for number in range(MESSAGES))
    wanted = {str(id_) for id_, row in rows.items() if row["superseded_by"] is None}
    for module in Module:
        applied = fleet.oss.modules[module].applied()
        assert len(applied) == len(set(applied)), module
        assert wanted <= set(applied), module
        assert fleet.states(module) == _expected(applied, rows), module
        assert fleet.states(module) == fleet.states(Module.ED), module


async def _is_done(fleet: Fleet, share: float) -> bool:
    try:
        return await _share_done(fleet) >= share
    except (OSError, asyncpg.PostgresError):
        return False


def _expected(applied: Sequence[str], rows: dict[int, asyncpg.Record]) -> dict[int, tuple[int, Any]]:
    """What plain Python makes of what a module applied, in the order in which it did."""
    book = Book()
    for op_id in applied:
        row = rows[int(op_id)]
        said = messages.parse(Topic(row["topic"]), json.loads(row["payload"]))
        assert book.apply(operation(row["id"], said)) is Outcome.APPLIED, (op_id, book)
    return book.live

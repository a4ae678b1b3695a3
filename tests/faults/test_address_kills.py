"""Whatever is killed while changes of addresses come in and are applied, each takes effect once and modules agree."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from activities.addresses.applying import operation
from cli.house import House, house
from domain.addresses import messages
from domain.addresses.messages import Topic
from domain.addresses.operations import Module, Outcome
from infra.settings import Settings
from sims.oss.scenario import Action, Rule, Scenario
from sims.oss.server import TOKEN, Oss, running_oss
from tests.address_oracle import Book
from tests.stack import eventually

SECRET = "a-secret-of-sixteen-or-more"
VICTIMS = ("worker-1", "engine", "database", "api-1")
MESSAGES, AT_A_TIME = 400, 20
# Calls that are slow, and some that are lost, so that a kill finds work under way.
ROUGH = (Rule(action=Action.SLOW, seconds=0.05), Rule(action=Action.LOST, fraction=0.05))

Said = tuple[Topic, dict[str, Any]]


@dataclass(frozen=True)
class Fleet:
    """A whole house, the modules that it calls, and who publishes."""

    running: House
    oss: Oss
    session: aiohttp.ClientSession

    async def publish(self, number: str, said: Said) -> None:
        """Push a message until it is taken."""
        topic, payload = said
        data = base64.b64encode(json.dumps(payload).encode()).decode()
        envelope = {"message": {"messageId": number, "data": data}, "subscription": "projects/p/subscriptions/s"}
        url = f"{self.running.api}/v1/addresses/events/{topic}?token={SECRET}"

        async def taken() -> bool:
            try:
                async with self.session.post(url, json=envelope) as answer:
                    return answer.status == 204
            except aiohttp.ClientError:
                return False

        await eventually(taken)

    async def publish_all(self, said: Sequence[Said]) -> None:
        """Several at a time; each tenth twice."""
        places = asyncio.Semaphore(AT_A_TIME)

        async def one(number: int) -> None:
            async with places:
                await self.publish(f"m{number}", said[number])
                if number % 10 == 0:
                    await self.publish(f"m{number}", said[number])

        await asyncio.gather(*(one(number) for number in range(len(said))))

    async def rows(self) -> dict[int, asyncpg.Record]:
        """All messages, by their ids."""
        url = self.running.settings.database.url.get_secret_value().replace("+asyncpg", "")
        connection = await asyncpg.connect(url)
        try:
            live = await connection.fetch("SELECT * FROM im_infi_addr_sync_log")
            done = await connection.fetch("SELECT * FROM im_infi_addr_sync_log_his")
        finally:
            await connection.close()
        assert not {row["id"] for row in live} & {row["id"] for row in done}
        return {row["id"]: row for row in (*live, *done)}

    async def share_done(self) -> float:
        """Which share of the messages is done."""
        done = [row for row in (await self.rows()).values() if row["proc_flag"] == "Y"]
        return len(done) / MESSAGES

    async def settled(self) -> dict[int, asyncpg.Record]:
        """Wait until everything is done."""

        async def done() -> dict[int, asyncpg.Record]:
            rows = await self.rows()
            return rows if {row["proc_flag"] for row in rows.values()} == {"Y"} else {}

        return await eventually(done, timeout=120)


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """Everything that `haulage up` starts, with modules that it may reach."""
    folder = Path(tempfile.mkdtemp(prefix="haulage-addresses-"))
    (folder / "oss.json").write_text(json.dumps({"token": TOKEN}))
    own = {
        "CREDENTIALS_FOLDER": str(folder),
        "PUSH__SECRET": SECRET,
        "RUN_MESSAGES": "10",
        "THRESHOLD": "100",
        "PAUSE_SECONDS": "1",
        "RETRIES": "1000",
    }
    async with running_oss(folder) as oss:
        for module in Module:
            own |= {f"MODULES__{module.upper()}__BASE_URL": oss.url(module)}
            own |= {f"MODULES__{module.upper()}__CREDENTIALS": "oss"}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in own.items():
                patch.setenv(f"HAULAGE_ADDRESSES__{name}", value)
            try:
                settings = Settings().model_copy(update={"data_dir": folder / "data"})
                async with house(settings) as running, aiohttp.ClientSession() as session:
                    yield Fleet(running, oss, session)
            finally:
                shutil.rmtree(folder)


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
    publishing = asyncio.create_task(fleet.publish_all(said))
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
        assert _states(fleet, module) == _expected(applied, rows), module
        assert _states(fleet, module) == _states(fleet, Module.ED), module


async def _is_done(fleet: Fleet, share: float) -> bool:
    try:
        return await fleet.share_done() >= share
    except (OSError, asyncpg.PostgresError):
        return False


def _states(fleet: Fleet, module: Module) -> dict[int, tuple[int, Any]]:
    live = fleet.oss.modules[module].live()
    return {uprn: (each.address_id, each.record) for uprn, each in live.items()}


def _expected(applied: Sequence[str], rows: dict[int, asyncpg.Record]) -> dict[int, tuple[int, Any]]:
    """What plain Python makes of what a module applied, in the order in which it did."""
    book = Book()
    for op_id in applied:
        row = rows[int(op_id)]
        said = messages.parse(Topic(row["topic"]), json.loads(row["payload"]))
        assert book.apply(operation(row["id"], said)) is Outcome.APPLIED, (op_id, book)
    return book.live

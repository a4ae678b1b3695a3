"""Whatever is killed while orders are fetched, the store is the platform's own ledger, and no slice is read by two."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from cli.house import House, house
from infra.settings import Settings
from sims.platforms import checker
from sims.platforms.dialects.plain import PLAIN
from sims.platforms.platform import Platform
from sims.platforms.scenario import Changes, Faults, Scenario
from sims.platforms.server import Platforms, running_platforms
from tests.faults.client import PATIENCE_SECONDS, client
from tests.orders import since, told
from tests.stack import eventually

SPAN_SECONDS = 7_200
INTERVAL_SECONDS = 120
VICTIMS = ("worker-1", "engine", "database", "store", "api-1")
NOTHING = dict.fromkeys(("lost", "stale", "duplicated", "invented", "regressed"), 0)


@dataclass(frozen=True)
class Fleet:
    """A whole house, platforms that it may reach, and who asks."""

    running: House
    platforms: Platforms
    session: aiohttp.ClientSession
    project_id: str
    credentials: Path

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """One request with the admin key, repeated while the API or a part of it is away."""

        async def answered() -> Any:
            try:
                async with self.session.request(method, self.running.api + path, **options) as answer:
                    assert answer.status < 300, await answer.text()
                    return await answer.json() or True
            except aiohttp.ClientError as error:
                raise AssertionError(str(error)) from error

        return await eventually(answered, PATIENCE_SECONDS)

    async def begin(self, number: str, scenario: Scenario, **options: Any) -> Platform:
        """Set up a platform; its schedule does the rest."""
        platform = self.platforms.add(number, scenario)
        told_credentials = platform.dialect.credentials(platform.tokens.good)
        (self.credentials / "shop.json").write_text(json.dumps(told_credentials))
        capability = PLAIN.model_copy(update={"paging": PLAIN.paging.model_copy(update={"size": 10})})
        body = {
            "project_id": self.project_id,
            "kind": "plain",
            "shop": "shop",
            "base_url": self.platforms.url(number),
            "capability": capability.model_dump(mode="json"),
        }
        config = {
            "credentials": "shop",
            "starttime": since(platform, seconds=SPAN_SECONDS),
            "interval": INTERVAL_SECONDS,
            "settle_lag": 60,
            "retryintv": 0.5,
            "retries": 20,
            "threads": 2,
            "sweep_after": 0,
        }
        await self.ask("PUT", f"/v1/platforms/{number}", json=body)
        await self.ask("PUT", f"/v1/platforms/{number}/config", json={**config, **options})
        await self.ask("POST", f"/v1/platforms/{number}/trigger")
        return platform

    async def status(self, number: str) -> dict[str, Any]:
        """How a platform goes."""
        shown: dict[str, Any] = await self.ask("GET", f"/v1/platforms/{number}")
        return shown

    async def share_done(self, number: str) -> float:
        """Which share of the first time is complete or at least read."""
        rows = await self.rows(
            "SELECT count(*) AS n FROM order_slices WHERE platform = $1 AND done_at IS NOT NULL", number
        )
        share: float = rows[0]["n"] * INTERVAL_SECONDS / SPAN_SECONDS
        return share

    async def complete(self, number: str) -> None:
        """Wait until all that has settled is in; a schedule that a kill has delayed is triggered."""

        async def whole() -> bool:
            shown = await self.status(number)
            if shown["holes"]:
                await self.ask("POST", f"/v1/platforms/{number}/trigger")
            return bool(shown["claimed_to"]) and not shown["holes"] and not shown["open"]

        await eventually(whole, PATIENCE_SECONDS)

    async def rows(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Look into the database."""
        url = self.running.settings.database.url.get_secret_value().replace("+asyncpg", "")
        connection = await asyncpg.connect(url)
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()

    async def findings(self, number: str) -> checker.Findings:
        """What is wrong up to `complete_to`."""
        shown = (await self.rows("SELECT starts_at, complete_to FROM order_platforms WHERE platform = $1", number))[0]
        ledger = self.platforms.by_number[number].ledger()
        first, last = (int(shown[name].timestamp()) * 1_000_000 for name in ("starts_at", "complete_to"))
        expected = checker.truth(ledger, from_us=first, until_us=last)
        rows = await self.rows("SELECT order_id, modified_at, version FROM orders WHERE platform = $1", number)
        stored = [checker.copy_of(row["order_id"], row["modified_at"].timestamp(), row["version"]) for row in rows]
        return checker.check(expected, stored, known=checker.truth(ledger))


@pytest.fixture(scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    """Everything that `haulage up` starts, allowed to reach platforms of ours."""
    folder = Path(tempfile.mkdtemp(prefix="haulage-orders-"))
    async with running_platforms() as platforms:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HAULAGE_GUARD__ALLOW", json.dumps([platforms.base.removeprefix("http://")]))
            patch.setenv("HAULAGE_ORDERS__CREDENTIALS_FOLDER", str(folder))
            patch.setenv("HAULAGE_ORDERS__SERVE_SECONDS", "0.3")
            try:
                async with house(Settings().model_copy(update={"data_dir": folder / "data"})) as running:
                    async with client(running) as caller:
                        project_id = caller.project_id
                    headers = {"Authorization": f"Bearer {running.admin_key}"}
                    async with aiohttp.ClientSession(headers=headers) as session:
                        yield Fleet(running, platforms, session, project_id, folder)
            finally:
                shutil.rmtree(folder)


@pytest.mark.parametrize("victim", VICTIMS)
async def test_kill_loses_no_order(fleet: Fleet, victim: str, request: pytest.FixtureRequest) -> None:
    """O1, O9: SIGKILL at a random moment of the fetching, while orders change and answers fail."""
    seed = request.config.getoption("randomly_seed")
    moment = random.Random(f"{seed}/{victim}").uniform(0.1, 0.7)
    platform = await fleet.begin(
        victim,
        Scenario(
            seed=seed,
            orders=1_500,
            span_seconds=SPAN_SECONDS,
            speed=5,
            changes=Changes(per_page=0.2, late_share=0.2, late_seconds=50),
            faults=Faults(errors=0.02, resets=0.02, slow_ms=20),
        ),
    )

    await eventually(lambda: _has_read(fleet, victim, moment), PATIENCE_SECONDS)
    fleet.running.stack.kill(victim)
    await fleet.running.stack.ready(victim)
    platform.market.freeze()
    platform.market.clock.advance(1_000)
    await fleet.ask("POST", f"/v1/platforms/{victim}/trigger")
    await fleet.complete(victim)

    assert told(await fleet.findings(victim)) == NOTHING, f"seed {seed}"


async def _has_read(fleet: Fleet, number: str, share: float) -> bool:
    return await fleet.share_done(number) >= share


async def test_a_worker_that_was_taken_for_dead_changes_nothing(fleet: Fleet) -> None:
    """O9: it is stopped in the middle, others read its slices, and when it wakes its writes are void."""
    scenario = Scenario(orders=1_500, span_seconds=SPAN_SECONDS, faults=Faults(slow_ms=30))
    await fleet.begin("asleep", scenario)
    await eventually(lambda: _has_read(fleet, "asleep", 0.1), PATIENCE_SECONDS)
    hung = fleet.running.stack.pids()["worker-1"]
    os.kill(hung, signal.SIGSTOP)
    try:
        await fleet.complete("asleep")
    finally:
        os.kill(hung, signal.SIGCONT)
    before = await fleet.rows("SELECT * FROM orders WHERE platform = 'asleep' ORDER BY order_id")

    # Whoever woke up has said what it had to say once it has taken another platform's slices.
    await fleet.begin("afterwards", Scenario(orders=100, span_seconds=SPAN_SECONDS))
    await fleet.complete("afterwards")

    assert await fleet.rows("SELECT * FROM orders WHERE platform = 'asleep' ORDER BY order_id") == before
    assert told(await fleet.findings("asleep")) == NOTHING


async def test_two_platforms_share_workers_and_no_slice_is_read_by_two(fleet: Fleet) -> None:
    """Each slice of a quiet platform has one attempt, whoever comes and goes meanwhile."""
    scenario = Scenario(orders=1_000, span_seconds=SPAN_SECONDS, faults=Faults(slow_ms=10))
    await asyncio.gather(fleet.begin("left", scenario), fleet.begin("right", scenario))
    await asyncio.gather(fleet.complete("left"), fleet.complete("right"))

    attempts = await fleet.rows(
        "SELECT platform, max(attempts) AS most FROM order_slices WHERE platform IN ('left', 'right') GROUP BY platform"
    )
    assert {row["platform"]: row["most"] for row in attempts} == {"left": 1, "right": 1}
    for number in ("left", "right"):
        assert told(await fleet.findings(number)) == NOTHING

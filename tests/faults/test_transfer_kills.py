"""Parts killed while targets join and while files travel: whoever was answered gets the file, and gets it once."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest

from cli.house import House, house
from infra import temporal
from infra.embedded.variables import as_variables
from infra.objects import ObjectStore
from infra.settings import Settings
from sims.gse.disks import Disks
from sims.gse.scenario import Scenario
from sims.gse.server import running_gse
from sims.gse.tasks import Spot
from sims.gse.world import World
from tests.faults.client import PATIENCE_SECONDS, Client, client
from tests.stack import eventually
from tests.transfers import CONTENT, FINAL, FOLDER, sha256, tuned

WINDOW_SECONDS = 3
VICTIMS = ("worker-1", "worker-2", "api-1", "engine", "database")
KILLS, KILL_EVERY_SECONDS = 7, 3.0
HOSTS, ROUNDS = 40, 8
SLOW = Scenario(upload_seconds=0.5, download_seconds=3.0, jitter_seconds=2.0)


@dataclass(frozen=True)
class Scene:
    """A house whose GSE nobody kills."""

    house: House
    world: World
    disks: Disks

    def delivered(self, agent_id: str) -> bool:
        """Whether the file lies there, byte by byte."""
        path = self.disks.path(Spot(agent_id, "", FOLDER, sha256(CONTENT)))
        return path.exists() and path.read_bytes() == CONTENT

    async def sendings(self) -> list[list[dict[str, Any]]]:
        """The GSE tasks of each shard, as they are written down."""
        connection = await asyncpg.connect(self.house.stack.database_url().replace("+asyncpg", ""))
        try:
            return [json.loads(row["sendings"]) for row in await connection.fetch("SELECT * FROM transfer_shards")]
        finally:
            await connection.close()

    async def has_written_down(self, agents: Collection[str]) -> bool:
        """Whether all of these are in GSE tasks that a shard knows."""
        begun = {task.id: {agent for agent, _ in task.targets} & {*agents} for task in self.world.tasks.values()}
        known = {each["task_id"] for sendings in await self.sendings() for each in sendings}
        mine = {task_id for task_id, some in begun.items() if some}
        return mine <= known and set().union(*begun.values()) == {*agents}


@pytest.fixture(scope="module")
async def scene() -> AsyncIterator[Scene]:
    """Everything that `haulage up` starts, and a GSE."""
    folder = Path(tempfile.mkdtemp(prefix="haulage-faults-"))
    disks = Disks(folder / "hosts", links=True)
    world = World(SLOW, disks)
    try:
        async with running_gse(world) as gse:
            with pytest.MonkeyPatch.context() as environment:
                settings = tuned(Settings(), gse, folder, window_seconds=WINDOW_SECONDS)
                for name, value in as_variables(settings).items():
                    if name.startswith(("HAULAGE_GSE__", "HAULAGE_TRANSFERS__")):
                        environment.setenv(name, value)
                async with house(Settings().model_copy(update={"data_dir": folder})) as running:
                    store = ObjectStore(running.settings.objects)
                    await store.put(f"transfers/2/{sha256(CONTENT)}", CONTENT)
                    await store.close()
                    yield Scene(running, world, disks)
    finally:
        shutil.rmtree(folder)


def wanted(agent_id: str, app_id: int) -> dict[str, Any]:
    """A request's body."""
    return {
        "biz_id": 2,
        "app_id": app_id,
        "file_path": "/etc/app.conf",
        "file_name": "app.conf",
        "signature": sha256(CONTENT),
        "target_user": "root",
        "target_file_dir": FOLDER,
        "target_agent_id": agent_id,
    }


async def join(caller: Client, agent_id: str, app_id: int) -> str:
    """Ask for one target until that is answered; its task id."""
    answer = await caller.call("POST", "/v1/transfers", 202, json=wanted(agent_id, app_id))
    task_id: str = (await answer.json())["task_id"]
    return task_id


async def status(caller: Client, task_id: str) -> dict[str, Any]:
    """Where a task stands."""
    answer = await caller.call("GET", f"/v1/transfers/{quote(task_id)}", 200)
    shown: dict[str, Any] = await answer.json()
    return shown


async def ended(caller: Client, task_id: str) -> dict[str, Any]:
    """Ask until the task has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            shown = await status(caller, task_id)
            if shown["status"] in FINAL:
                return shown
            await asyncio.sleep(0.2)


async def test_whoever_was_answered_gets_the_file(scene: Scene, request: pytest.FixtureRequest) -> None:
    """With a kill every three seconds, through several windows and their transfers."""
    chance = random.Random(f"{request.config.getoption('randomly_seed')}/transfers")
    async with client(scene.house) as caller:
        wreaking = asyncio.create_task(_wreak(scene.house, chance))
        try:
            asked = await asyncio.gather(*(_host(caller, number, chance.random()) for number in range(HOSTS)))
        finally:
            await wreaking
        task_ids = {agent_id: task_id for host in asked for agent_id, task_id in host.items()}
        ends = {agent_id: await ended(caller, task_id) for agent_id, task_id in task_ids.items()}

    assert Counter(end["status"] for end in ends.values()) == {"Success": HOSTS * ROUNDS}
    assert [agent_id for agent_id in ends if not scene.delivered(agent_id)] == []
    # Nothing fails here by itself: a second GSE task is due only where nobody knew whether the first had begun.
    known = [[each for each in sendings if each["task_id"]] for sendings in await scene.sendings()]
    assert max(map(len, known)) == 1


async def _host(caller: Client, number: int, phase: float) -> dict[str, str]:
    """A host that asks again and again, each time as another agent."""
    await asyncio.sleep(phase)
    task_ids = {}
    for turn in range(ROUNDS):
        agent_id = f"host-{number}-{turn}"
        task_ids[agent_id] = await join(caller, agent_id, app_id=1)
        await asyncio.sleep(KILL_EVERY_SECONDS * KILLS / ROUNDS)
    return task_ids


async def _wreak(running: House, chance: random.Random) -> None:
    """Kill a part every few seconds, and the next only when the last one serves again."""
    for _ in range(KILLS):
        await asyncio.sleep(KILL_EVERY_SECONDS)
        victim = chance.choice(VICTIMS)
        running.stack.kill(victim)
        await running.stack.ready(victim)


async def test_a_worker_that_hangs_sends_nothing_when_it_wakes(scene: Scene) -> None:
    """Its shards are shipped by another; what it still believes to ship is not its own any more."""
    agents = [f"hung-{number}" for number in range(20)]
    async with client(scene.house) as caller:
        task_ids = await asyncio.gather(*(join(caller, agent_id, app_id=2) for agent_id in agents))
        # What GSE has heard and nobody has written down yet would be sent again, and rightly.
        await eventually(lambda: scene.has_written_down(agents))
        pid = await _shipper(scene.house, {(await status(caller, task_id))["job_id"] for task_id in task_ids})
        os.kill(pid, signal.SIGSTOP)
        try:
            ends = [await ended(caller, task_id) for task_id in task_ids]
        finally:
            os.kill(pid, signal.SIGCONT)
        woken = time.monotonic()
        await eventually(lambda: time.monotonic() > woken + 2)

    assert {end["status"] for end in ends} == {"Success"}
    sent = Counter({spot.agent: count for spot, count in scene.world.sends.items() if spot.agent in agents})
    assert sent == dict.fromkeys(agents, 1)


async def _shipper(running: House, job_ids: Collection[str]) -> int:
    """A worker process that ships a shard of one of these jobs."""
    engine = await temporal.connect(running.stack.environment(running.settings))

    async def look() -> str:
        jobs = [(await engine.get_workflow_handle(job_id).describe()).raw_description for job_id in job_ids]
        pending = [each for job in jobs for each in job.pending_activities]
        return next((each.last_worker_identity for each in pending if each.last_worker_identity), "")

    return int((await eventually(look)).partition("@")[0])

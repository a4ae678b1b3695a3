"""Components killed while targets join and while files are sent: every accepted request gets the file, once."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest

from infra.objects import ObjectStore
from sims.gse.scenario import GseAction, GseCall, GseRule, GseScenario
from sims.gse.tasks import FileSpot
from tests.support.caller import WATCH_SECONDS, Caller, running_caller
from tests.support.deployment import PATIENCE_SECONDS, WINDOW_SECONDS, Deployment
from tests.support.kills import Killer
from tests.support.pace import measure_pace
from tests.support.transfers import CONTENT, FINAL, FOLDER, sha256
from tests.support.waiting import eventually

VICTIMS = ("worker-1", "worker-2", "api-1", "engine", "database")
KILLS, KILL_EVERY_SECONDS = 7, 2.0
HOSTS, ROUNDS = 40, 6
READING_SECONDS, CLOCK_SECONDS = 0.1, 0.02
"""How long an answer of GSE may lie at a worker that is about to read it, on an idle machine; and what two looks at a
clock differ."""
SLOW = GseScenario(upload_seconds=0.5, download_seconds=3.0, jitter_seconds=2.0)
SLOW_CREATES = GseRule(action=GseAction.SLOW, calls=frozenset({GseCall.TRANSFER}), seconds=3.0)
CREATES_MAX_SECONDS = 15.0
"""Half of what an answer of GSE is waited for."""


@dataclass(frozen=True)
class TransferDeployment:
    """A deployment whose GSE is never killed."""

    deployment: Deployment

    def has_file(self, agent_id: str) -> bool:
        """Say whether the file lies there, byte by byte."""
        path = self.deployment.disks.path(FileSpot(agent_id, "", FOLDER, sha256(CONTENT)))
        return path.exists() and path.read_bytes() == CONTENT

    async def list_journaled_ids(self) -> set[str]:
        """Return the ids of the GSE tasks that are written down."""
        rows = await self.deployment.fetch("SELECT sendings FROM transfer_shards")
        return {each["task_id"] for row in rows for each in json.loads(row["sendings"]) if each["task_id"]}

    def list_agents_by_task(self, agents: Collection[str]) -> dict[str, set[str]]:
        """Return GSE's own record: which of these agents each of its tasks was to reach."""
        tasks = self.deployment.world.tasks.values()
        found = {task.id: {agent for agent, _ in task.targets} & {*agents} for task in tasks}
        return {task_id: some for task_id, some in found.items() if some}

    def was_answered(self, task_id: str) -> bool:
        """Return whether a caller received the id of this GSE task."""
        return self.deployment.world.tasks[task_id].told_at is not None

    def was_unread(self, task_id: str, kills: Sequence[tuple[float, str]]) -> bool:
        """Say whether a worker was killed so soon after this id was sent that it may not have read it."""
        told_at = self.deployment.world.tasks[task_id].told_at
        reading = READING_SECONDS * measure_pace()
        return told_at is not None and any(
            name.startswith("worker") and -CLOCK_SECONDS <= at - told_at <= reading for at, name in kills
        )

    async def has_written_down(self, agents: Collection[str]) -> bool:
        """Say whether all of these are in GSE tasks whose ids are written down."""
        list_agents_by_task = self.list_agents_by_task(agents)
        return list_agents_by_task.keys() <= await self.list_journaled_ids() and set().union(
            *list_agents_by_task.values()
        ) == {*agents}


@pytest.fixture
async def scene(deployment: Deployment) -> TransferDeployment:
    """Return a deployment that has the file, and whose GSE takes its time."""
    deployment.world.set(SLOW)
    store = ObjectStore(deployment.settings.objects)
    await store.put(f"transfers/2/{sha256(CONTENT)}", CONTENT)
    await store.close()
    return TransferDeployment(deployment)


def build_request(agent_id: str, app_id: int) -> dict[str, Any]:
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


async def join(caller: Caller, agent_id: str, app_id: int) -> str:
    """Ask for one target until that is answered; its task id."""
    answer = await caller.call("POST", "/v1/transfers", 202, json=build_request(agent_id, app_id))
    task_id: str = (await answer.json())["task_id"]
    return task_id


async def status(caller: Caller, task_id: str) -> dict[str, Any]:
    """Return the state of a task."""
    answer = await caller.call("GET", f"/v1/transfers/{quote(task_id)}", 200)
    shown: dict[str, Any] = await answer.json()
    return shown


async def wait_for_end(caller: Caller, task_id: str) -> dict[str, Any]:
    """Ask until the task has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            shown = await status(caller, task_id)
            if shown["status"] in FINAL:
                return shown
            await asyncio.sleep(WATCH_SECONDS)


@dataclass
class RequestedTargets:
    """What is asked for while parts are killed."""

    task_ids: dict[str, str] = field(default_factory=dict)
    """By agent, the id that was answered."""
    is_over: bool = False
    """Whether all kills are made."""


async def test_whoever_was_answered_gets_the_file(
    scene: TransferDeployment, killer: Killer, chance: random.Random
) -> None:
    """With a kill every few seconds, through several windows and their transfers.

    By GSE's own record no target is in two GSE tasks if the id of the first was received: a response that was cut off
    may hide a task. A received id is lost only if the worker dies before it reads a byte of it, so each such response
    was sent in the tenth of a second before a worker was killed. A caller whose answer was lost asks again, on a slow
    machine in the next window: that is another transfer, which is sent as well.
    """
    traffic = RequestedTargets()
    async with running_caller(scene.deployment) as caller:
        async with asyncio.TaskGroup() as group:
            group.create_task(_kill_all(scene, killer, traffic, chance))
            for number in range(HOSTS):
                group.create_task(_ask_again_and_again(caller, number, chance.random(), traffic))
        ends = {agent_id: await wait_for_end(caller, task_id) for agent_id, task_id in traffic.task_ids.items()}

    agents = traffic.task_ids.keys()
    missing = [agent_id for agent_id in agents if not scene.has_file(agent_id)]
    list_agents_by_task = scene.list_agents_by_task(agents)
    told = {task_id for task_id in list_agents_by_task if scene.was_answered(task_id)}
    lost = told - await scene.list_journaled_ids()
    unexplained = [task_id for task_id in lost if not scene.was_unread(task_id, killer.made)]
    sends = Counter(agent for task_id in told - lost for agent in list_agents_by_task[task_id])
    jobs = await _count_jobs_by_agent(scene)
    twice = [agent for agent, count in sends.items() if count > jobs[agent]]
    killer.close(lost=len(missing), doubled=len(twice))
    assert len(agents) >= HOSTS * ROUNDS
    assert Counter(end["status"] for end in ends.values()) == {"Success": len(agents)}
    assert missing == []
    assert sends.keys() == agents
    assert twice == []
    assert unexplained == []


async def _count_jobs_by_agent(scene: TransferDeployment) -> dict[str, int]:
    rows = await scene.deployment.fetch("SELECT agent_id, count(DISTINCT job) FROM transfer_targets GROUP BY agent_id")
    return {row["agent_id"]: row["count"] for row in rows}


async def _ask_again_and_again(caller: Caller, number: int, phase: float, traffic: RequestedTargets) -> None:
    """Be a host that asks each time as another agent, until all kills are made."""
    await asyncio.sleep(phase)
    turn = 0
    while turn < ROUNDS or not traffic.is_over:
        agent_id = f"host-{number}-{turn}"
        traffic.task_ids[agent_id] = await join(caller, agent_id, app_id=1)
        await asyncio.sleep(KILL_EVERY_SECONDS * KILLS / ROUNDS)
        turn += 1


async def _kill_all(
    scene: TransferDeployment, killer: Killer, traffic: RequestedTargets, chance: random.Random
) -> None:
    """Kill each part once, and some again."""

    def is_under_way() -> bool:
        return any(not scene.has_file(agent_id) for agent_id in traffic.task_ids)

    try:
        victims = (*VICTIMS, *chance.choices(VICTIMS, k=KILLS - len(VICTIMS)))
        await killer.kill_each(victims, every_seconds=KILL_EVERY_SECONDS, under_way=is_under_way)
    finally:
        traffic.is_over = True


async def test_an_id_that_was_told_outlives_its_worker(scene: TransferDeployment, killer: Killer) -> None:
    """Both workers are killed after GSE's answer and before any of it is in the database: each file is sent once."""
    # The table is locked before GSE answers, also on a slow machine, and no later than its answer is waited for.
    pace = measure_pace()
    creates = SLOW_CREATES.model_copy(update={"seconds": min(CREATES_MAX_SECONDS, SLOW_CREATES.seconds * pace)})
    # No file arrives before the kill, not even one that was sent a window before the others.
    arrives_after = WINDOW_SECONDS + creates.seconds + 5 * pace
    slow = SLOW.model_copy(update={"rules": (creates,), "download_seconds": arrives_after})
    scene.deployment.world.set(slow)
    agents = [f"noted-{number}" for number in range(3)]
    async with running_caller(scene.deployment) as caller:
        task_ids = await asyncio.gather(*(join(caller, agent_id, app_id=3) for agent_id in agents))
        await eventually(lambda: scene.list_agents_by_task(agents), PATIENCE_SECONDS)
        connection = await scene.deployment.connect_database()
        try:
            async with connection.transaction():
                # The worker has written down that it asks; what it is answered it cannot write down now.
                await connection.execute("LOCK TABLE transfer_shards IN EXCLUSIVE MODE")
                # Mostly one task; the three may also have come to two windows.
                begun = scene.list_agents_by_task(agents)
                assert begun.keys().isdisjoint(await scene.list_journaled_ids())
                await eventually(lambda: all(map(scene.was_answered, begun)), PATIENCE_SECONDS)
                read = time.monotonic() + READING_SECONDS * measure_pace()
                await eventually(lambda: time.monotonic() > read)
                await killer.kill("worker-1", "worker-2", under_way=lambda: not scene.has_file(agents[0]))
        finally:
            await connection.close()
        ends = {agent: await wait_for_end(caller, task_id) for agent, task_id in zip(agents, task_ids, strict=True)}

    sent = Counter({spot.agent: count for spot, count in scene.deployment.world.sends.items() if spot.agent in agents})
    killer.close(
        lost=sum(end["status"] != "Success" for end in ends.values()), doubled=sum(sent.values()) - len(agents)
    )
    assert {end["status"] for end in ends.values()} == {"Success"}
    for task_id, carried in begun.items():
        assert {ends[agent]["gse_task_id"] for agent in carried} == {task_id}
    assert sent == dict.fromkeys(agents, 1)


@pytest.mark.long
async def test_a_worker_that_hangs_sends_nothing_when_it_wakes(scene: TransferDeployment, killer: Killer) -> None:
    """Its shards are shipped by another; what it still believes to ship is not its own any more."""
    agents = [f"hung-{number}" for number in range(20)]
    # Long enough that the shard is still being sent when its worker has been found.
    scene.deployment.world.set(SLOW.model_copy(update={"download_seconds": 4.0 * measure_pace()}))
    async with running_caller(scene.deployment) as caller:
        task_ids = await asyncio.gather(*(join(caller, agent_id, app_id=2) for agent_id in agents))
        # A task that GSE has begun and whose id is not saved yet would be sent again, and rightly.
        await eventually(lambda: scene.has_written_down(agents))
        shown = await asyncio.gather(*(status(caller, task_id) for task_id in task_ids))
        worker = await _find_sending_worker(scene.deployment, {each["job_id"] for each in shown})
        async with killer.hang(worker, under_way=lambda: not all(map(scene.has_file, agents))) as hit:
            ends = [await wait_for_end(caller, task_id) for task_id in task_ids]
        woken = time.monotonic()
        await eventually(lambda: time.monotonic() > woken + 2)

    sent = Counter({spot.agent: count for spot, count in scene.deployment.world.sends.items() if spot.agent in agents})
    killer.close(lost=sum(end["status"] != "Success" for end in ends), doubled=sum(sent.values()) - len(agents))
    assert hit
    assert {end["status"] for end in ends} == {"Success"}
    assert sent == dict.fromkeys(agents, 1)


async def _find_sending_worker(deployment: Deployment, job_ids: Collection[str]) -> str:
    """Return the name of a worker that ships a shard of one of these jobs."""
    engine = await deployment.engine()

    async def look() -> str:
        jobs = [(await engine.get_workflow_handle(job_id).describe()).raw_description for job_id in job_ids]
        pending = [each for job in jobs for each in job.pending_activities]
        return next((each.last_worker_identity for each in pending if each.last_worker_identity), "")

    pid = int((await eventually(look)).partition("@")[0])
    return next(name for name, each in deployment.pids.items() if each == pid)

"""Components killed while tasks are created, held and set: each task ends once, and has one holder at a time."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from dev.local import list_api_names
from tests.support import task_checker
from tests.support.caller import PAUSE_SECONDS, running_caller
from tests.support.deployment import PATIENCE_SECONDS, Deployment
from tests.support.kills import Killer
from tests.support.task_checker import FINAL, CountSample, GrantedLease, ReportedResult, TaskNotes
from tests.support.waiting import eventually

VICTIMS = (*list_api_names(), "worker-1", "worker-2", "engine", "database")
KILLS, KILL_EVERY_SECONDS = 8, 2.0
PRODUCERS, TASKS_EACH, WORKERS = 6, 60, 8
LEASE_SECONDS = 6
LANE_TASKS = 60
LANES_MIN = PRODUCERS * TASKS_EACH // LANE_TASKS
TYPE = "video"
COUNTED = ("task_count", "pending", "running", "success", "failed")

Json = dict[str, Any]


@dataclass(frozen=True)
class TaskDeployment:
    """A deployment with two API processes and small lanes, and a project there."""

    deployment: Deployment
    doors: tuple[str, ...]
    session: aiohttp.ClientSession
    notes: TaskNotes = field(default_factory=TaskNotes)
    turns: itertools.count[int] = field(default_factory=itertools.count)
    refusals: dict[str, str] = field(default_factory=dict)
    """Of each route, why it was not answered last."""

    async def ask(self, method: str, route: str, **options: Any) -> Json | None:
        """Return what either API answers; None if the connection breaks, or a component is down."""
        api_client = self.doors[next(self.turns) % len(self.doors)]
        try:
            async with self.session.request(method, f"{api_client}/v1/{route}", **options) as answer:
                body: Json = await answer.json(content_type=None)
        except (aiohttp.ClientError, ConnectionError, ValueError) as error:
            self.refusals[route] = f"{time.time():.0f} {error!r}"
            return None
        if answer.status >= 500 or body["code"] == 8036:
            self.refusals[route] = f"{time.time():.0f} {answer.status} {body}"
            return None
        assert answer.status == 200, body
        return body

    async def insist(self, method: str, route: str, **options: Any) -> Json:
        """Ask until there is an answer."""
        began = time.time()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    if answer := await self.ask(method, route, **options):
                        return answer
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            said = f"asked from {began:.0f} to {time.time():.0f}, refused last: {self.refusals.get(route)}"
            raise AssertionError(f"{route} was never answered: {said}") from None


@dataclass
class CreateCounts:
    """How many tasks were asked for, and how many of them were answered."""

    sent: int = 0
    answered: int = 0
    is_over: bool = False
    """Whether all kills are made."""


@pytest.fixture
async def scene(deployment: Deployment) -> AsyncIterator[TaskDeployment]:
    """Return a project of its own, and both doors to it."""
    doors = tuple(deployment.installation.stack.addresses[name] for name in list_api_names())
    async with running_caller(deployment) as caller, aiohttp.ClientSession(headers=caller.session.headers) as session:
        yield TaskDeployment(deployment, doors, session)


@pytest.mark.deployment(tasks={"lane_max_tasks": LANE_TASKS}, why="small lanes roll within a few hundred tasks")
async def test_each_task_ends_once_and_is_nobody_else_s_meanwhile(
    scene: TaskDeployment, killer: Killer, chance: random.Random
) -> None:
    """With a kill every few seconds, over rolling lanes, two API processes, and callers that repeat what broke off."""
    config = {"task_type": TYPE, "max_processing_time": LEASE_SECONDS, "max_retry_num": 100, "max_retry_interval": 1}
    assert (await scene.insist("POST", "register_task_type", json={"task_type_data": config}))["code"] == 0

    done, creates = asyncio.Event(), CreateCounts()
    async with asyncio.TaskGroup() as people:
        people.create_task(_count(scene, creates, done))
        for _ in range(WORKERS):
            people.create_task(_work(scene, random.Random(chance.random()), done))
        async with asyncio.TaskGroup() as makers:
            makers.create_task(_kill_all(scene, killer, creates, chance))
            for number in range(PRODUCERS):
                makers.create_task(_create_tasks(scene, creates, random.Random(chance.random()), number))
        await _wait_until_done(scene)
        done.set()

    listed = await scene.insist("GET", "get_task_list", params={"task_type": TYPE, "limit": 2_000})
    scene.notes.found = [(task["task_id"], task["status"]) for task in listed["task_list"]]
    scene.notes.counted = await scene.insist("GET", "get_task_counts_by_type", params={"task_type": TYPE})
    scene.notes.counted = {name: scene.notes.counted[name] for name in COUNTED}
    wrong = task_checker.list_violations(scene.notes)
    killer.close(lost=len(set(scene.notes.created.values()) - dict(scene.notes.found).keys()), doubled=len(wrong))
    assert len(scene.notes.created) >= PRODUCERS * TASKS_EACH
    assert max(int(task_id.rpartition("_")[2]) for task_id in scene.notes.created.values()) >= LANES_MIN
    # Leases expired, of workers that abandoned their tasks or whose responses got lost.
    assert len(scene.notes.holdings) > len(scene.notes.found)
    assert wrong == []


async def _create_tasks(scene: TaskDeployment, creates: CreateCounts, chance: random.Random, number: int) -> None:
    """Create tasks under names of one's own, each until it is answered, until all kills are made."""
    turn = 0
    while turn < TASKS_EACH or not creates.is_over:
        name = f"order-{number}-{turn}"
        data = {"task_type": TYPE, "task_id": name, "user_id": f"user-{number}", "task_content": name}
        creates.sent += 1
        answer = await scene.insist("POST", "create_task", json={"task_data": data})
        assert answer["code"] == 0, answer
        creates.answered += 1
        scene.notes.created[name] = answer["task_id"]
        turn += 1
        pause = KILL_EVERY_SECONDS * KILLS / TASKS_EACH if turn < TASKS_EACH else 1.0
        await asyncio.sleep(chance.uniform(0.5, 1.5) * pause)


async def _work(scene: TaskDeployment, chance: random.Random, done: asyncio.Event) -> None:
    """Hold tasks, take a while, and end most of them; some fail, and some are abandoned."""
    while not done.is_set():
        held = await scene.ask("POST", "hold_tasks", json={"task_type": TYPE, "limit": 3, "wait": 1})
        received_at = time.time()
        if held is None:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        assert held["code"] == 0, held
        tasks: list[Json] = held["task_list"]
        scene.notes.holdings += [
            GrantedLease(task["task_id"], task["lease"], received_at, task["lease_end"]) for task in tasks
        ]
        for task in tasks:
            await asyncio.sleep(chance.uniform(0, 0.2))
            fate = chance.random()
            if fate > 0.05:
                await _set_until_answered(scene, task, 3 if fate > 0.15 else 1)


async def _set_until_answered(scene: TaskDeployment, task: Json, status: int) -> None:
    """Set a task, until that is answered."""
    said = {"task_id": task["task_id"], "lease": task["lease"], "status": status}
    if status not in FINAL:
        said["crt_retry_num"] = task["crt_retry_num"] + 1
    sent_at = time.time()
    answer = await scene.insist("POST", "set_task", json={"task_data": said})
    assert answer["code"] in (0, 8041), answer
    scene.notes.sayings.append(ReportedResult(task["task_id"], task["lease"], status, sent_at, answer["code"] == 0))


async def _count(scene: TaskDeployment, creates: CreateCounts, done: asyncio.Event) -> None:
    """Count, as often as it is answered."""
    while not done.is_set():
        before = creates.answered
        counts = await scene.ask("GET", "get_task_counts_by_type", params={"task_type": TYPE})
        if counts is not None:
            ended = counts["success"] + counts["failed"]
            scene.notes.counts.append(CountSample(counts["task_count"], ended, before, creates.sent))
        await asyncio.sleep(0.3)


async def _wait_until_done(scene: TaskDeployment) -> None:
    """Wait until no task is left to do."""
    query = {"task_type": TYPE}

    async def is_over() -> bool:
        counts = await scene.insist("GET", "get_task_counts_by_type", params=query)
        return not counts["pending"] + counts["running"]

    try:
        await eventually(is_over, PATIENCE_SECONDS)
    except AssertionError as error:
        listed = await scene.insist("GET", "get_task_list", params={**query, "limit": 2_000})
        open_ = [task for task in listed["task_list"] if task["status"] not in FINAL]
        raise AssertionError(f"{len(open_)} tasks never ended: {open_[:5]}") from error


async def _kill_all(scene: TaskDeployment, killer: Killer, creates: CreateCounts, chance: random.Random) -> None:
    """Kill each part once, and some again."""

    def is_under_way() -> bool:
        ended = {said.task_id for said in scene.notes.sayings if said.is_taken and said.status in FINAL}
        return bool(set(scene.notes.created.values()) - ended)

    try:
        victims = (*VICTIMS, *chance.choices(VICTIMS, k=KILLS - len(VICTIMS)))
        await killer.kill_each(victims, every_seconds=KILL_EVERY_SECONDS, under_way=is_under_way)
    finally:
        creates.is_over = True

"""Worlds of tasks while parts are killed under them: what becomes of each task still follows from its history."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest

from dev.local import list_api_names
from tests.support.caller import running_caller
from tests.support.deployment import Deployment
from tests.support.kills import Killer
from tests.worlds.tasks.playing import TaskStage
from tests.worlds.tasks.world import TaskWorld, draw_world
from tests.worlds.verdict import Verdict

VICTIMS = (*list_api_names(), "worker-1", "engine", "database")
WORLDS, KILLS, KILL_EVERY_SECONDS = 12, 4, 1.5


@pytest.mark.deployment(tasks={"lane_max_tasks": 60}, why="as the other test that kills under tasks")
@pytest.mark.long
async def test_nothing_differs_while_parts_are_killed(
    deployment: Deployment, killer: Killer, chance: random.Random
) -> None:
    """Callers and workers repeat what broke off; no task is lost, doubled, or given to two at a time."""
    addresses = tuple(deployment.installation.stack.addresses[name] for name in list_api_names())
    first = chance.randrange(1_000_000)
    worlds = [draw_world(seed) for seed in range(first, first + WORLDS)]
    async with running_caller(deployment) as caller, aiohttp.ClientSession() as session:
        key = caller.session.headers["Authorization"].removeprefix("Bearer ")
        stage = TaskStage(addresses, key, session, is_calm=False)
        playing = [asyncio.create_task(stage.play(world)) for world in worlds]

        def is_under_way() -> bool:
            return any(not each.done() for each in playing)

        victims = chance.sample(VICTIMS, KILLS)
        for number, victim in enumerate(victims):
            await asyncio.sleep(KILL_EVERY_SECONDS)
            if not is_under_way():
                playing += [asyncio.create_task(stage.play(draw_world(first + WORLDS + number)))]
                worlds.append(draw_world(first + WORLDS + number))
            await killer.kill(victim, under_way=is_under_way)
        verdicts = await asyncio.gather(*playing)
    defects = [_describe(*each) for each in zip(worlds, verdicts, strict=True) if each[1].ending.is_defect]
    killer.close(lost=sum("is not found" in each for each in defects), doubled=len(defects))
    assert defects == []


def _describe(world: TaskWorld, verdict: Verdict) -> str:
    return f"{verdict.ending}: {verdict.why} {world.model_dump_json()}"

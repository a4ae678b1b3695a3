"""Queries that reach a worker which has not seen the lane yet change nothing of what the lane does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Replayer

import worker
from domain.tasks import names
from domain.tasks import names as tasks_names
from infra import temporal
from tests.support.caller import Caller, running_caller
from tests.support.deployment import Deployment
from tests.support.kills import Killer
from tests.support.waiting import eventually

KILLS, TURNS_MAX = 3, 4
LANES = 4
QUERIES = 6
TYPE = "asked-about"


@pytest.mark.long
async def test_a_lane_that_is_asked_while_its_worker_dies_goes_on(deployment: Deployment, killer: Killer) -> None:
    """Its decisions are in its history: a worker that replays it decides the same.

    A query made the SDK act on a timer before its turn, in the time of the turn before. The lane went on from there,
    and the next worker could not read its history.
    """
    engine = await deployment.engine()
    async with running_caller(deployment) as caller:
        types = [f"{TYPE}-{number}" for number in range(LANES)]
        for type_ in types:
            config = {"task_type": type_, "max_processing_time": 60, "max_retry_num": 1, "max_retry_interval": 1}
            await _ask(caller, "POST", "register_task_type", json={"task_type_data": config})
        created = sum([await _kill_amid_queries(caller, deployment, killer, types) for _ in range(KILLS)])
        held_ids: dict[str, list[str]] = {}
        for type_ in types:
            held = await _ask(caller, "POST", "hold_tasks", json={"task_type": type_, "limit": 100, "wait": 30})
            held_ids[type_] = [task["task_id"] for task in held["task_list"]]

    unreadable = [type_ for type_ in types if not await _is_readable(_lane(engine, caller, type_))]
    given = [task_id for ids_ in held_ids.values() for task_id in ids_]
    killer.close(lost=max(0, created * LANES - len(set(given))), doubled=len(given) - len(set(given)))
    assert {type_: len(set(each)) for type_, each in held_ids.items()} == dict.fromkeys(types, created)
    assert killer.record.kills == KILLS
    assert unreadable == []


async def _kill_amid_queries(caller: Caller, deployment: Deployment, killer: Killer, types: list[str]) -> int:
    """Ask the lanes while a worker that has one dies, until a kill leaves questions open; return the tasks per lane."""
    engine = await deployment.engine()
    for turn in range(TURNS_MAX):
        # A lane saves a checkpoint a second after the last one: its timer fires while there is no worker.
        for type_ in [*types, *types]:
            await _create(caller, type_)
        [victim, *_] = [await _server_of(engine, caller, deployment, type_) for type_ in types]
        asking = [
            asyncio.create_task(_ask(caller, "GET", "get_task_counts_by_type", params={"task_type": type_}))
            for type_ in types
            for _ in range(QUERIES)
        ]
        hit = await killer.try_kill(victim, under_way=lambda asking=asking: not all(each.done() for each in asking))  # type: ignore[misc]
        await asyncio.gather(*asking)
        if hit:
            return 2 * (turn + 1)
    raise AssertionError(f"{TURNS_MAX} kills found every question answered")


def _lane(engine: Client, caller: Caller, type_: str) -> WorkflowHandle[Any, Any]:
    return engine.get_workflow_handle(
        tasks_names.build_lane_workflow_id((names.build_type_id(caller.project_id, type_), 1))
    )


async def _ask(caller: Caller, method: str, route: str, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await (await caller.call(method, f"/v1/{route}", 200, **options)).json()
    assert answer["code"] == 0, answer
    return answer


async def _create(caller: Caller, type_: str) -> None:
    data = {"task_type": type_, "user_id": "one", "task_content": "to do"}
    await _ask(caller, "POST", "create_task", json={"task_data": data})


async def _server_of(engine: Client, caller: Caller, deployment: Deployment, type_: str) -> str:
    """Name the worker that has the lane in its memory: it did the lane's last turn."""

    async def find() -> str | None:
        done = [
            event.workflow_task_completed_event_attributes.identity
            async for event in _lane(engine, caller, type_).fetch_history_events()
            if event.HasField("workflow_task_completed_event_attributes")
        ]
        pid = int(done[-1].partition("@")[0])
        return next((name for name, each in deployment.pids.items() if each == pid), None)

    return await eventually(find) or ""


async def _is_readable(lane: WorkflowHandle[Any, Any]) -> bool:
    replayer = Replayer(workflows=worker.list_workflows(), plugins=[temporal.build_plugin()])
    result = await replayer.replay_workflow(await lane.fetch_history(), raise_on_replay_failure=False)
    return result.replay_failure is None

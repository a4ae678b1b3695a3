"""Executes GSE's calls on a world, and builds statistics for tests."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, assert_never

from pydantic import BaseModel, Field, ValidationError

from sims.gse.records import build_entries, is_empty
from sims.gse.scenario import Empty, GseCall
from sims.gse.tasks import FileSpot, Key, SimulatedTask
from sims.gse.world import GseWorld

NO_RESULTS_YET = 1000115


class GseCallRefused(Exception):
    """GSE refuses the call with a code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Agent(BaseModel):
    bk_agent_id: str = Field(min_length=1, max_length=64)
    bk_container_id: str = ""
    user: str = ""

    @property
    def key(self) -> Key:
        return self.bk_agent_id, self.bk_container_id


class _Source(BaseModel):
    file_name: str = Field(min_length=1)
    store_dir: str = Field(min_length=1)
    agent: _Agent


class _Targets(BaseModel):
    file_name: str = Field(min_length=1)
    store_dir: str = Field(min_length=1)
    agents: list[_Agent] = Field(min_length=1)


class _Pair(BaseModel):
    source: _Source
    target: _Targets


class _Transfer(BaseModel):
    timeout_seconds: int = Field(gt=0)
    auto_mkdir: bool
    upload_speed: int = Field(ge=0)
    download_speed: int = Field(ge=0)
    tasks: list[_Pair] = Field(min_length=1, max_length=1)


class _Results(BaseModel):
    task_id: str = Field(min_length=1)
    agents: list[_Agent] | None = Field(default=None, min_length=1)


class _Terminate(BaseModel):
    task_id: str = Field(min_length=1)
    agents: list[_Agent]


class _States(BaseModel):
    agent_id_list: list[str] = Field(min_length=1, max_length=1_000)


def execute_call(world: GseWorld, call: GseCall, body: object) -> Any:
    """Return the data of the response; raises GseCallRefused."""
    try:
        match call:
            case GseCall.TRANSFER:
                return _transfer(world, _Transfer.model_validate(body))
            case GseCall.RESULTS:
                return _results(world, _Results.model_validate(body))
            case GseCall.TERMINATE:
                return _terminate(world, _Terminate.model_validate(body))
            case GseCall.STATES:
                return _states(world, _States.model_validate(body))
            case _:
                assert_never(call)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
        raise GseCallRefused(1000001, wrong) from None


def _transfer(world: GseWorld, request: _Transfer) -> Any:
    pair = request.tasks[0]
    most = world.scenario.max_targets
    if most is not None and len(pair.target.agents) > most:
        raise GseCallRefused(1000002, f"{len(pair.target.agents)} targets, at most {most}")
    source = FileSpot(*pair.source.agent.key, pair.source.store_dir, pair.source.file_name)
    targets = [FileSpot(*each.key, pair.target.store_dir, pair.target.file_name) for each in pair.target.agents]
    task = world.transfer(source, targets, request.timeout_seconds)
    task.users = {each.key: each.user for each in pair.target.agents}
    return _build_task_data(task)


def _results(world: GseWorld, request: _Results) -> Any:
    task = _task(world, request.task_id)
    task.polled_at.append(time.time())
    wanted: Collection[Key] = dict.fromkeys(each.key for each in request.agents or ())
    result: list[Any] | None = []
    if not is_empty(task, world.scenario.shape):
        result = build_entries(task, world.scenario, world.now, wanted)
    elif world.scenario.shape.empty_as is Empty.CODE:
        raise GseCallRefused(NO_RESULTS_YET, "redis reply is not string")
    elif world.scenario.shape.empty_as is Empty.NULL:
        result = None
    return {"version": "V1", "result": result}


def _terminate(world: GseWorld, request: _Terminate) -> Any:
    task = _task(world, request.task_id)
    keys = [each.key for each in request.agents]
    if rule := world.refusal(keys):
        raise GseCallRefused(int(rule.code), rule.message or "Bad Request")
    world.terminate(task, keys)
    return _build_task_data(task)


def _states(world: GseWorld, request: _States) -> Any:
    fields = {"bk_cloud_id": 0, "version": "2.1.0", "run_mode": 1}
    return [
        {"bk_agent_id": each, **fields, "status_code": world.scenario.agent_state(each)}
        for each in request.agent_id_list
    ]


def _task(world: GseWorld, task_id: str) -> SimulatedTask:
    if task := world.tasks.get(task_id):
        return task
    raise GseCallRefused(1000003, f"there is no task {task_id!r}")


def _build_task_data(task: SimulatedTask) -> Any:
    return {"result": {"task_id": task.id}}


def build_stats(world: GseWorld) -> Mapping[str, Any]:
    """Return the counts since the last clear."""
    return {
        "calls": {call.value: world.calls[call] for call in GseCall},
        "targets_sent": world.sends.total(),
        "targets": len(world.sends),
        "sent_again": sum(count - 1 for count in world.sends.values()),
        "received": world.received.total(),
        "received_again": sum(count - 1 for count in world.received.values()),
        "refused_keys": world.refused_keys,
    }


def list_tasks(world: GseWorld) -> list[Mapping[str, Any]]:
    """Return each task since the last restart."""
    return [
        {
            "task_id": task.id,
            "created_at": task.created_at,
            "targets": len(task.targets),
            "polled_at": task.polled_at,
            "source": f"{task.source.folder}/{task.source.name}",
        }
        for task in world.tasks.values()
    ]


def list_targets(world: GseWorld) -> list[Mapping[str, Any]]:
    """Return each target of each task."""
    return [
        {
            "task_id": task.id,
            "agent_id": target.spot.agent,
            "container_id": target.spot.container,
            "code": target.code,
            "finished_at": target.finished_at,
        }
        for task in world.tasks.values()
        for target in task.targets.values()
    ]

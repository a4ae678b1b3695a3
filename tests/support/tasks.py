"""Helpers for tests of the tasks API: API and worker over the test's own components, and a project with a key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from domain.tasks import names
from infra.settings import Settings
from tests.support.api import ApiClient, running_api
from tests.support.worker import RunningWorker, running_worker

PENDING, RUNNING, SUCCESS, FAILED, CANCELLED = 1, 2, 3, 4, 5
SIGNED = {"who": "ann", "reason": "a test wants it"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Tasks:
    """A running API and a project of the test's own, with a type of tasks."""

    api_client: ApiClient
    key: str
    worker: RunningWorker
    project_id: str
    type: str = "video"

    async def for_another_project(self) -> Tasks:
        """The same parts, asked by another project."""
        project_id, key = await self.api_client.make_project()
        return replace(self, project_id=project_id, key=key)

    def lane_id(self, pos: int) -> str:
        """The id of the workflow that is a lane of the type."""
        return names.build_lane_workflow_id((names.build_type_id(self.project_id, self.type), pos))

    async def post(self, route: str, **body: Any) -> Json:
        """What a route answers, whatever it is."""
        reply = await self.api_client.ask("POST", f"/v1/{route}", key=self.key, json=body)
        assert reply.status == 200, reply.body
        answer: Json = reply.body
        return answer

    async def get(self, route: str, **query: Any) -> Json:
        """What a route answers, whatever it is."""
        reply = await self.api_client.ask("GET", f"/v1/{route}", key=self.key, params=query)
        assert reply.status == 200, reply.body
        answer: Json = reply.body
        return answer

    async def register(self, **config: Any) -> None:
        """Make the type, or change it."""
        good(await self.post("register_task_type", task_type_data={"task_type": self.type, **config}))

    async def create(self, **fields: Any) -> str:
        """A task; its id."""
        answer = good(await self.post("create_task", task_data={"task_type": self.type, **fields}))
        task_id: str = answer["task_id"]
        return task_id

    async def create_many(self, count: int, **fields: Any) -> list[str]:
        """Tasks; their ids."""
        new = {"task_type": self.type, **fields}
        answer = good(await self.post("create_tasks", task_list=[new] * count))
        return [result["task_id"] for result in answer["results"]]

    async def hold(self, **fields: Any) -> list[Json]:
        """Tasks to do."""
        answer = good(await self.post("hold_tasks", task_type=self.type, **fields))
        held: list[Json] = answer["task_list"]
        return held

    async def set(self, task: Json, status: int, **fields: Any) -> None:
        """Say what became of a held task, e.g. `SUCCESS`; a test of refusals asks `try_set`."""
        good(await self.try_set(task, status, **fields))

    async def try_set(self, task: Json, status: int, **fields: Any) -> Json:
        """Say what became of a held task; return what is answered to that, which may be a refusal."""
        said = {"task_id": task["task_id"], "lease": task["lease"], "status": status, **fields}
        return await self.post("set_task", task_data=said)

    async def finish(self, tasks: Sequence[Json], status: int = SUCCESS) -> None:
        """End held tasks."""
        said = [{"task_id": task["task_id"], "lease": task["lease"], "status": status} for task in tasks]
        good(await self.post("set_tasks", task_list=said))

    async def task(self, task_id: str) -> Json:
        """Return the state of a task."""
        found: Json = good(await self.get("get_task", task_id=task_id))["task_data"]
        return found

    async def counts(self) -> Json:
        """How many tasks there are, by status."""
        return {
            name: count
            for name, count in good(await self.get("get_task_counts_by_type", task_type=self.type)).items()
            if name not in {"code", "msg", "counts"}
        }

    async def config(self) -> Json:
        """The type, as it is listed."""
        types = good(await self.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
        return next(each for each in types if each["task_type"] == self.type)


def good(answer: Json) -> Json:
    """The answer, after a look at its envelope."""
    assert (answer["code"], answer["msg"]) == (0, "SUCCESS"), answer
    return answer


@asynccontextmanager
async def running_tasks(settings: Settings, **changes: Any) -> AsyncIterator[Tasks]:
    """API, worker and project over the test's own parts; `changes` replace settings of tasks."""
    settings = settings.model_copy(update={"tasks": settings.tasks.model_copy(update=changes)})
    async with running_api(settings) as api_client, running_worker(settings, [names.QUEUE]) as running:
        project_id, key = await api_client.make_project()
        yield Tasks(api_client, key, running, project_id)

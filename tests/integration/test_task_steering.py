"""Types are removed and registered again; tasks are found by user, and cancelled and put back many at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.tasks.context import TaskContext
from domain.tasks.messages import Task
from tests.support.command import CommandResult, start_command, wait_for_exit
from tests.support.tasks import CANCELLED, PENDING, SUCCESS, Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


async def run(tasks: Tasks, *arguments: str) -> CommandResult:
    """Run `haulage tasks …` against the test's API."""
    env = {"HAULAGE_API_URL": tasks.api_client.address, "HAULAGE_API_KEY": tasks.key}
    return await wait_for_exit(await start_command("tasks", *arguments, env=env))


async def test_a_type_with_unfinished_tasks_is_not_removed(shared_tasks: Tasks) -> None:
    """Once they are cancelled it is; registered again, it shows what has ended."""
    tasks = shared_tasks
    await tasks.register()
    task_id = await tasks.create(task_content="{}")

    refused = await run(tasks, "remove", tasks.type, "--reason", "it is over")
    await run(tasks, "cancel", task_id)
    removed = await run(tasks, "remove", tasks.type, "--reason", "it is over")

    assert refused.code == 2
    assert "has 1 unfinished tasks" in refused.err
    assert (removed.code, removed.out) == (0, f"{tasks.type}: removed\n"), removed.err
    listed = await tasks.get("get_task_schedule_cfg_list")
    assert [each["task_type"] for each in listed["task_schedule_cfg_list"]] == []
    unknown = await tasks.post("create_task", task_data={"task_type": tasks.type, "task_content": "{}"})
    assert "There is no type" in unknown["msg"]
    await tasks.register()
    assert (await tasks.task(task_id))["status"] == CANCELLED
    assert await tasks.create(task_content="{}")


async def test_tasks_are_found_by_their_user(shared_tasks: Tasks) -> None:
    """In lanes and in the archive, by the list and by the pages."""
    tasks = shared_tasks
    await tasks.register()
    mine = [await tasks.create(task_content="{}", user_id="ann") for _ in range(3)]
    await tasks.create(task_content="{}", user_id="ben")
    await tasks.set((await tasks.hold(limit=1))[0], SUCCESS)

    listed = await tasks.get("get_task_list", task_type=tasks.type, user_id="ann")
    paged = await tasks.get("browse_tasks", task_type=tasks.type, user_id="ann")
    none = await tasks.get("browse_tasks", task_type=tasks.type, user_id="cal")

    assert {each["task_id"] for each in listed["task_list"]} == {*mine}
    assert {each["task_id"] for each in paged["task_list"]} == {*mine}
    assert none["task_list"] == []


@pytest.mark.long
async def test_many_tasks_are_cancelled_and_put_back_by_a_filter(shared_tasks: Tasks) -> None:
    """A dry run says which; a task that has ended already is left."""
    tasks = shared_tasks
    await tasks.register()
    mine = [await tasks.create(task_content="{}", user_id="ann") for _ in range(3)]
    other = await tasks.create(task_content="{}", user_id="ben")
    chosen = ("--type", tasks.type, "--user", "ann")

    tried = await run(tasks, "cancel", *chosen, "--dry-run", "--json")
    states = [(await tasks.task(each))["status"] for each in mine]
    cancelled = await run(tasks, "cancel", *chosen, "--json")
    again = await run(tasks, "put-back", *chosen, "--status", "cancelled", "--json")
    wrong = await run(tasks, "cancel", mine[0], *chosen)

    assert {*json.loads(tried.out)["task_ids"]} == {*mine}
    assert states == [PENDING] * 3
    assert {*cancelled.json["task_ids"]} == {*mine}, cancelled.err
    assert len(again.json["task_ids"]) == 3
    assert wrong.code == 2
    assert (await tasks.task(other))["status"] == PENDING
    assert (await tasks.counts())["pending"] == 4


async def test_a_task_that_ends_as_it_is_put_back_is_created_again(
    shared_tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was archived between the look and the change, and said to be no task at all."""
    tasks = shared_tasks
    await tasks.register()
    task_id = await tasks.create(task_content="again")
    find = TaskContext.find_in_lane_or_archive

    async def find_and_let_it_end(self: TaskContext, *arguments: Any) -> Task | None:
        found = await find(self, *arguments)
        monkeypatch.undo()
        await tasks.finish(held)

        async def is_archived() -> bool:
            return bool((await tasks.task(task_id))["archived"])

        await eventually(is_archived)
        return found

    held = await tasks.hold()
    monkeypatch.setattr(TaskContext, "find_in_lane_or_archive", find_and_let_it_end)
    answer = good(await tasks.post("put_back_tasks", task_list=[{"task_id": task_id}]))

    [copy] = answer["results"]
    assert copy["task_id"] != task_id
    assert (await tasks.task(copy["task_id"]))["task_content"] == "again"

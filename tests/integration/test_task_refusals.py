"""Refusals of task routes, and what each project sees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.tasks import PENDING, SIGNED, SUCCESS, Json, Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register()
    return shared_tasks


async def test_each_of_many_has_an_outcome_of_its_own(queue: Tasks) -> None:
    """One that fails takes none of the others with it."""
    answer = await queue.post(
        "create_tasks", task_list=[{"task_type": "video"}, {"task_type": "unknown"}, {"task_type": "video"}]
    )
    assert [result["code"] for result in answer["results"]] == [0, 8045, 0]
    assert (answer["code"], answer["msg"]) == (8045, answer["results"][1]["msg"])
    one, other = await queue.hold()
    answer = await queue.post(
        "set_tasks",
        task_list=[
            {"task_id": one["task_id"], "lease": one["lease"], "status": SUCCESS},
            {"task_id": other["task_id"], "lease": other["lease"] + 5, "status": SUCCESS},
        ],
    )
    assert [result["code"] for result in answer["results"]] == [0, 8041]


@pytest.mark.parametrize(
    ("route", "body", "code", "sentence"),
    [
        ("create_task", {"task_data": {"task_type": "video", "colour": "red"}}, 8020, "task_data.colour"),
        ("create_task", {"task_data": {"task_type": "a b"}}, 8020, "task_data.task_type"),
        ("create_task", {"task_data": {"task_type": "video", "task_priority": -1}}, 8044, "task_data.task_priority"),
        ("create_task", {"task_data": {"task_type": "video", "user_id": "多" * 100}}, 8020, "300 bytes"),
        ("create_task", {"task_data": {"task_type": "nothing"}}, 8045, "no type 'nothing'"),
        ("create_task", {}, 8020, "task_data: this field is missing"),
        ("hold_tasks", {"task_type": "nothing"}, 8045, "Register it"),
        ("set_task", {"task_data": {"task_id": "none", "status": 3}}, 8035, "no task 'none'"),
        ("set_task", {"task_data": {"task_id": f"{'0' * 32}_video_1", "status": 3}}, 8035, "no task"),
        ("set_task", {"task_data": {"task_id": f"{'0' * 32}_video_9", "status": 3}}, 8035, "no task"),
        ("cancel_task", {"task_id": f"{'0' * 32}_video_1"}, 8035, "no task"),
        ("register_task_type", {"task_type_data": {"task_type": "video", "schedule_limit": -1}}, 8020, "outside 0"),
    ],
)
async def test_what_is_wrong_is_told_in_the_envelope(
    queue: Tasks, route: str, body: dict[str, Any], code: int, sentence: str
) -> None:
    """With HTTP 200, the original's number, and a sentence."""
    answer = await queue.post(route, **body)
    assert answer["code"] == code
    assert answer["msg"].startswith("FAIL_REASON::")
    assert sentence in answer["msg"]


async def test_a_body_that_is_no_json_is_told_in_the_envelope(queue: Tasks) -> None:
    """8022 for text that is none, 8021 for what is no JSON by its header."""
    for headers, code in (({"Content-Type": "application/json"}, 8022), ({"Content-Type": "text/plain"}, 8021)):
        reply = await queue.api_client.ask("POST", "/v1/create_task", key=queue.key, data=b"{", headers=headers)
        assert (reply.status, reply.body["code"]) == (200, code)


async def test_a_caller_without_a_key_is_told_by_the_door(queue: Tasks) -> None:
    """With 401, as on every other route; only ping needs no key."""
    reply = await queue.api_client.ask("POST", "/v1/create_task", json={"task_data": {"task_type": "video"}})
    ping = await queue.api_client.ask("GET", "/v1/ping")
    assert (reply.status, reply.code, ping.status) == (401, "key_missing", 200)


async def test_what_another_project_has_is_not_there(queue: Tasks) -> None:
    """Neither its types nor its tasks, also where both have a type of the same name."""
    task_id = await queue.create()
    project_id, key = await queue.api_client.make_project("stranger")
    stranger = Tasks(queue.api_client, key, queue.worker, project_id)
    said = {"task_data": {"task_id": task_id, "status": SUCCESS}}
    assert (await stranger.get("get_task", task_id=task_id))["code"] == 8035
    assert (await stranger.post("set_task", **said))["code"] == 8035
    assert (await stranger.post("cancel_task", task_id=task_id))["code"] == 8035
    assert (await stranger.post("hold_tasks", task_type=queue.type))["code"] == 8045
    assert (await stranger.get("get_task_list"))["task_list"] == []
    await stranger.register()
    assert (await stranger.get("get_task", task_id=task_id))["code"] == 8035
    assert (await stranger.post("set_task", **said))["code"] == 8035
    assert (await stranger.post("cancel_task", task_id=task_id))["code"] == 8035
    assert await stranger.hold() == []
    assert (await queue.task(task_id))["status"] == PENDING


async def test_what_has_ended_in_another_project_is_not_there(queue: Tasks) -> None:
    """The archive was looked up by the id of a task alone, where the caller had a type of the same name."""
    task_id = await queue.create(task_content="private")
    [held] = await queue.hold()
    await queue.finish([held])

    async def is_archived() -> bool:
        return bool((await queue.task(task_id))["archived"])

    await eventually(is_archived)
    stranger = await queue.for_another_project()
    await stranger.register()
    said = {"task_id": task_id, "lease": held["lease"], "status": SUCCESS}
    for answer in (
        await stranger.get("get_task", task_id=task_id),
        await stranger.post("set_task", task_data=said),
        await stranger.post("cancel_task", task_id=task_id),
        await stranger.post("heartbeat_tasks", task_list=[{"task_id": task_id, "lease": held["lease"]}]),
        await stranger.post("put_back_tasks", task_list=[{"task_id": task_id}]),
    ):
        assert answer["code"] == 8035, answer
    assert await stranger.create(task_id=task_id, task_content="mine") != task_id
    assert (await queue.task(task_id))["task_content"] == "private"


async def test_two_projects_have_a_type_of_one_name(queue: Tasks) -> None:
    """Each has its own queue, configuration, counts, names of tasks and pause."""
    project_id, key = await queue.api_client.make_project("neighbour")
    neighbour = Tasks(queue.api_client, key, queue.worker, project_id)
    await neighbour.register(max_retry_num=0)
    ours, theirs = await queue.create(task_id="one", user_id="a"), await neighbour.create(task_id="one", user_id="b")
    assert ours != theirs
    assert ((await queue.config())["max_retry_num"], (await neighbour.config())["max_retry_num"]) == (3, 0)

    good(await queue.post("pause_task_type", task_type=queue.type, **SIGNED))
    assert await queue.hold() == []
    [held] = await neighbour.hold()
    assert (held["task_id"], held["user_id"]) == (theirs, "b")
    await neighbour.finish([held])
    assert ((await queue.counts())["pending"], (await neighbour.counts())["success"]) == (1, 1)
    assert (await queue.counts())["task_count"] == (await neighbour.counts())["task_count"] == 1


async def test_the_admin_finds_tasks_of_types_of_one_name(tasks: Tasks) -> None:
    """By their ids alone, also from the archive; where only the name is given, the project must be, too.

    It counts the projects that have the type, so nothing of it is shared.
    """
    queue = tasks
    await queue.register()
    project_id, key = await queue.api_client.make_project("neighbour")
    neighbour = Tasks(queue.api_client, key, queue.worker, project_id)
    await neighbour.register()
    waiting, ended = await queue.create(user_id="a"), await neighbour.create(user_id="b")
    await neighbour.finish(await neighbour.hold())
    theirs = await neighbour.create(user_id="c")

    async def look(task_id: str) -> Json:
        reply = await queue.api_client.as_admin("GET", "/v1/get_task", params={"task_id": task_id})
        task: Json = good(reply.body)["task_data"]
        return task

    assert [(await look(task_id))["user_id"] for task_id in (waiting, ended, theirs)] == ["a", "b", "c"]

    async def is_archived() -> bool:
        return bool((await look(ended))["archived"])

    await eventually(is_archived)
    assert (await look(ended))["user_id"] == "b"
    said = {"task_type": queue.type}
    gets = ("browse_tasks", "get_task_lanes", "get_task_counts_by_type")
    for method, route in (*(("GET", route) for route in gets), ("POST", "pause_task_type")):
        sent = {"params": said} if method == "GET" else {"json": said | SIGNED}
        unclear = (await queue.api_client.as_admin(method, f"/v1/{route}", **sent)).body
        assert (unclear["code"], "2 projects" in unclear["msg"]) == (8045, True), unclear
        headers = {"Haulage-Project": project_id}
        good((await queue.api_client.as_admin(method, f"/v1/{route}", headers=headers, **sent)).body)
    rows = (await queue.api_client.as_admin("GET", "/v1/get_task_figures", params={"limit": 1})).body
    more = {"limit": 1, "cursor": rows["next_cursor"]}
    rest = (await queue.api_client.as_admin("GET", "/v1/get_task_figures", params=more)).body
    listed = [each["project_id"] for each in rows["type_list"] + rest["type_list"]]
    assert sorted(listed) == sorted([queue.project_id, project_id])

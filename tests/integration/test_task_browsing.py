"""Looking at queues: types, lanes and tasks a page at a time; many cancelled or put back at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from infra.database import Database
from infra.settings import Settings
from tests.support.tasks import CANCELLED, FAILED, PENDING, RUNNING, SIGNED, SUCCESS, Json, Tasks, good, running_tasks
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(settings: Settings) -> AsyncIterator[Tasks]:
    """An API, a worker, and a type of tasks in lanes of ten."""
    async with running_tasks(settings, lane_max_tasks=10) as queue:
        await queue.register()
        yield queue


async def pages(queue: Tasks, limit: int = 4, **query: object) -> list[Json]:
    """All tasks that match, page by page."""
    found: list[Json] = []
    cursor = ""
    while True:
        page = good(await queue.get("browse_tasks", task_type=queue.type, limit=limit, cursor=cursor, **query))
        assert len(page["task_list"]) <= limit
        found += page["task_list"]
        cursor = page["next_cursor"]
        if not cursor:
            return found


async def wait_until_archived(database: Database, count: int) -> None:
    """Wait until the archive has this number of tasks."""

    async def all_there() -> bool:
        async with database.connection() as connection:
            return bool(await connection.fetchval("SELECT count(*) >= $1 FROM tasks_archive", count))

    await eventually(all_there)


async def test_pages_show_every_task_once(queue: Tasks, database: Database) -> None:
    """The newest lane first, the archive last; whatever was created in the same millisecond."""
    ids = await queue.create_many(25)
    held = await queue.hold(limit=7)
    await queue.finish(held[:6])
    await wait_until_archived(database, 6)

    everything = await pages(queue)
    running = await pages(queue, status=RUNNING)
    done = await pages(queue, archived="true", limit=2)

    assert sorted(task["task_id"] for task in everything) == sorted(ids)
    lanes = [int(task["task_id"].rpartition("_")[2]) for task in everything if not task["archived"]]
    assert lanes == sorted(lanes, reverse=True)
    assert [task["task_id"] for task in running] == [held[6]["task_id"]]
    assert (running[0]["lease"], running[0]["lease_end"]) == (held[6]["lease"], held[6]["lease_end"])
    assert {task["task_id"] for task in done} == {task["task_id"] for task in held[:6]}
    assert {(task["status"], task["lease"], task["archived"]) for task in done} == {(SUCCESS, 0, True)}


async def test_more_lanes_than_a_page_looks_into_are_turned_to_later(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page may be empty, and not the last."""
    monkeypatch.setattr("api.tasks.overview.LANES_PER_PAGE", 1)
    ids = await queue.create_many(25)
    [held] = await queue.hold(limit=1)

    assert sorted(task["task_id"] for task in await pages(queue)) == sorted(ids)
    assert [task["task_id"] for task in await pages(queue, status=RUNNING)] == [held["task_id"]]


async def test_types_tell_what_is_in_their_queues(queue: Tasks, database: Database) -> None:
    """Of lanes that are open and of what is archived; the admin sees those of all projects."""
    await queue.create_many(12)
    held = await queue.hold(limit=10)
    await queue.finish(held[:2])
    await queue.finish(held[2:5], FAILED)
    await wait_until_archived(database, 5)
    other_id, other = await queue.api_client.make_project("other")
    config = {"task_type_data": {"task_type": "audio"}}
    await queue.api_client.ask("POST", "/v1/register_task_type", key=other, json=config)

    async def told() -> Json:
        [one] = good(await queue.get("get_task_figures"))["type_list"]
        figures: Json = one
        return figures if [figures[name] for name in ("pending", "running", "failed")] == [2, 5, 3] else {}

    figures = await eventually(told)
    lanes = good(await queue.get("get_task_lanes", task_type=queue.type, limit=1))
    rest = good(await queue.get("get_task_lanes", task_type=queue.type, cursor=lanes["next_cursor"]))
    everybody = await queue.api_client.as_admin("GET", "/v1/get_task_figures", params={"limit": "1"})
    second = await queue.api_client.as_admin("GET", "/v1/get_task_figures", params={"cursor": "audio", "prefix": "vid"})

    names = ("due", "success", "held", "lanes", "paused", "task_type")
    assert [figures[name] for name in names] == [2, 2, 10, 2, False, "video"]
    assert figures["oldest_due_seconds"] > 0
    assert [(lane["pos"], lane["full"]) for lane in (*lanes["lane_list"], *rest["lane_list"])] == [
        (1, True),
        (2, False),
    ]
    assert lanes["lane_list"][0]["workflow_id"] == queue.lane_id(1)
    assert rest["next_cursor"] == ""
    [first] = everybody.body["type_list"]
    assert (first["task_type"], first["project_id"], everybody.body["next_cursor"]) == (
        "audio",
        other_id,
        f"audio/{other_id}",
    )
    assert [each["task_type"] for each in second.body["type_list"]] == ["video"]


async def test_a_task_is_found_by_the_name_that_it_was_given(queue: Tasks) -> None:
    """By its project, and by the admin."""
    task_id = await queue.create(task_id="invoice 7")
    _, other = await queue.api_client.make_project("other")

    ours = good(await queue.get("find_tasks", name="invoice 7"))["task_ids"]
    theirs = await queue.api_client.ask("GET", "/v1/find_tasks", key=other, params={"name": "invoice 7"})
    admins = await queue.api_client.as_admin("GET", "/v1/find_tasks", params={"name": "invoice 7"})

    assert (ours, theirs.body["task_ids"], admins.body["task_ids"]) == ([task_id], [], [task_id])


async def test_many_are_cancelled(queue: Tasks) -> None:
    """Each has an outcome of its own: an unknown task does not affect the others."""
    ids = await queue.create_many(2)
    answer = await queue.post("cancel_tasks", task_ids=[*ids, f"{'0' * 32}_video_1"])

    assert [result["code"] for result in answer["results"]] == [0, 0, 8035]
    assert [(await queue.task(task_id))["status"] for task_id in ids] == [CANCELLED, CANCELLED]


async def test_a_held_task_is_put_back(queue: Tasks) -> None:
    """It waits again without having failed, and its holder is refused; unless another one holds it by now."""
    await queue.create()
    [held] = await queue.hold()
    late = await queue.post("put_back_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"] + 1}])
    good(await queue.post("put_back_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}]))
    back = await queue.task(held["task_id"])
    again = await queue.post("put_back_tasks", task_list=[{"task_id": held["task_id"]}])

    assert late["results"][0]["code"] == 8041
    assert (back["status"], back["crt_retry_num"], back["lease"]) == (PENDING, 0, 0)
    assert (again["code"], "is in its queue already" in again["msg"]) == (8041, True)
    assert (await queue.try_set(held, SUCCESS))["code"] == 8041


async def test_an_ended_task_is_put_back_as_a_new_one(queue: Tasks, database: Database) -> None:
    """With the content and the stage that it had last, once, whether archived or not; the old one stays as it is."""
    await queue.create(user_id="u1", task_content="x" * 2_000, task_priority=5)
    [held] = await queue.hold()
    await queue.set(held, FAILED, task_stage="cut")
    body = [{"task_id": held["task_id"]}]
    first = good(await queue.post("put_back_tasks", task_list=body))["results"][0]["task_id"]
    await wait_until_archived(database, 1)
    again = good(await queue.post("put_back_tasks", task_list=body))["results"][0]["task_id"]
    new, old = await queue.task(first), await queue.task(held["task_id"])

    late = await queue.post("put_back_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}])

    assert (again, first != held["task_id"]) == (first, True)
    assert (late["code"], "has ended already" in late["msg"]) == (8041, True)
    assert [new[name] for name in ("status", "stage", "user_id", "task_priority")] == [PENDING, "cut", "u1", 5]
    assert new["task_content"] == "x" * 2_000
    assert old["status"] == FAILED


async def test_the_admin_sees_and_steers_tasks_of_every_project(queue: Tasks) -> None:
    """Without naming a project; another project's key finds nothing."""
    [task_id, second] = await queue.create_many(2)
    _, other = await queue.api_client.make_project("other")
    paths: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "get_task", {"params": {"task_id": task_id}}),
        ("GET", "browse_tasks", {"params": {"task_type": queue.type}}),
        ("GET", "get_task_lanes", {"params": {"task_type": queue.type}}),
        ("GET", "get_task_counts_by_type", {"params": {"task_type": queue.type}}),
        ("POST", "pause_task_type", {"json": {"task_type": queue.type, **SIGNED}}),
        ("POST", "resume_task_type", {"json": {"task_type": queue.type, **SIGNED}}),
        ("POST", "cancel_task", {"json": {"task_id": task_id}}),
        ("POST", "put_back_tasks", {"json": {"task_list": [{"task_id": task_id}]}}),
        ("POST", "cancel_tasks", {"json": {"task_ids": [second]}}),
    ]

    theirs = [
        (await queue.api_client.ask(method, f"/v1/{path}", key=other, **sent)).body for method, path, sent in paths
    ]
    admins = [(await queue.api_client.as_admin(method, f"/v1/{path}", **sent)).body for method, path, sent in paths]

    assert {answer["code"] for answer in theirs} == {8035, 8045}
    assert [answer.get("pending") for answer in admins][3] == 2
    assert [answer["code"] for answer in admins] == [0] * len(paths)


@pytest.mark.parametrize("cursor", ["x", "1.2", "1.2.zz zz", "-1.2.3"])
async def test_a_cursor_that_somebody_made_up_is_refused(queue: Tasks, cursor: str) -> None:
    """And the answer says what to send."""
    answer = await queue.get("browse_tasks", task_type=queue.type, cursor=cursor)
    assert (answer["code"], "next_cursor" in answer["msg"]) == (8020, True)


async def test_the_figures_tell_how_a_queue_stands(queue: Tasks) -> None:
    """Depth, age of the oldest, lanes, leases and sizes of groups, by project and type."""
    type_ = f'project="{queue.project_id}",type="video"'
    await queue.create_many(15)
    await queue.hold(limit=3)

    async def figures() -> str:
        page = str((await queue.api_client.ask("GET", "/metrics")).body)
        assert f'haulage_task_depth{{project="{queue.project_id}",state="pending",type="video"}} 12.0' in page
        assert f'haulage_task_depth{{project="{queue.project_id}",state="running",type="video"}} 3.0' in page
        assert f"haulage_task_lanes{{{type_}}} 2.0" in page
        assert f'haulage_task_open_lane_events{{event="held",{type_}}} 3.0' in page
        return page

    page = await eventually(figures)
    assert f"haulage_task_oldest_due_seconds{{{type_}}}" in page
    assert f"haulage_task_group_requests_count{{{type_}}}" in page
    assert f'haulage_tasks_total{{event="created",{type_}}}' in page

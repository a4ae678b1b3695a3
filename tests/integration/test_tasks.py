"""Tasks through the public API: created, held, set, thrown back, cancelled, asked for."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.tasks.lane_caches import UNCHANGED_READS
from api.tasks.responses import HeldTaskResponse, TaskDetailsResponse, TaskResponse
from tests.support.api import running_api
from tests.support.tasks import CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, Json, Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

LONG = "x" * 5_000


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register()
    return shared_tasks


async def test_a_task_goes_its_way(queue: Tasks) -> None:
    """It is pending when created, running when held, and ended when set."""
    task_id = await queue.create(user_id="u1", task_content="{}", task_priority=5, task_stage="first")
    pending = await queue.task(task_id)
    [held] = await queue.hold()
    running = await queue.task(task_id)
    await queue.finish([held])
    ended = await queue.task(task_id)

    assert task_id.endswith("_video_1")
    assert [task["status"] for task in (pending, running, ended)] == [PENDING, RUNNING, SUCCESS]
    assert held["task_id"] == task_id
    assert (held["user_id"], held["task_content"], held["stage"]) == ("u1", "{}", "first")
    assert await queue.hold() == []
    assert await queue.counts() == {
        "task_count": 1,
        "pending": 0,
        "running": 0,
        "success": 1,
        "failed": 0,
        "cancelled": 0,
    }


async def test_tasks_are_told_as_the_document_says(queue: Tasks) -> None:
    """Every field is there, and no other."""
    task_id = await queue.create()
    [held] = await queue.hold()
    assert HeldTaskResponse.model_validate(held).model_dump().keys() == held.keys()
    assert TaskDetailsResponse.model_validate(await queue.task(task_id)).model_dump() == await queue.task(task_id)
    [listed] = good(await queue.get("get_task_list"))["task_list"]
    assert TaskResponse.model_validate(listed).model_dump() == listed


async def test_both_names_of_a_field_are_taken(queue: Tasks) -> None:
    """The original's documents and its code differ in them."""
    task_id = await queue.create(context="content", priority=7, stage="s1")
    [held] = await queue.hold()
    assert (held["task_content"], held["task_priority"], held["stage"]) == ("content", 7, "s1")
    said = {"task_id": task_id, "task_status": PENDING, "context": "more", "stage": "s2"}
    good(await queue.post("set_task", task_data=said))
    task = await queue.task(task_id)
    assert (task["task_content"], task["stage"], task["status"]) == ("more", "s2", PENDING)


@pytest.mark.parametrize("wrapper", ["task_type_data", "task_config_data", None])
@pytest.mark.parametrize("route", ["register_task_type", "register_task"])
async def test_a_type_is_registered_in_every_way_that_is_known(queue: Tasks, route: str, wrapper: str | None) -> None:
    """Either route, either object, or none."""
    config = {"task_type": "lark_doc.v2", "schedule_limit": 7}
    good(await queue.post(route, **({wrapper: config} if wrapper else config)))
    types = good(await queue.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
    assert types[0] == {
        "task_type": "lark_doc.v2",
        "schedule_limit": 7,
        "schedule_interval": 10,
        "max_retry_num": 3,
        "max_retry_interval": 30,
        "max_processing_time": 30,
        "retry_interval": 1,
        "lease_required": False,
        "paused": False,
        "schedule_begin_pos": 1,
        "schedule_end_pos": 1,
    }


async def test_a_type_with_underscores_is_found_in_its_ids(queue: Tasks) -> None:
    """The position follows the last underscore."""
    good(await queue.post("register_task_type", task_type_data={"task_type": "a_b_1"}))
    created = good(await queue.post("create_task", task_data={"task_type": "a_b_1"}))
    assert created["task_id"].endswith("_a_b_1_1")
    assert (await queue.task(created["task_id"]))["task_type"] == "a_b_1"


async def test_a_lease_that_is_over_refuses_who_had_it(queue: Tasks) -> None:
    """The task is given to another, and only that one's word counts."""
    await queue.register(max_processing_time=1, max_retry_interval=0)
    await queue.create()
    [stale] = await queue.hold()
    [fresh] = await queue.hold(wait=10)
    refused = await queue.try_set(stale, SUCCESS)

    assert fresh["task_id"] == stale["task_id"]
    assert (fresh["crt_retry_num"], fresh["lease"] > stale["lease"]) == (1, True)
    assert refused["code"] == 8041
    assert refused["msg"].startswith("FAIL_REASON::")
    await queue.set(fresh, SUCCESS)


async def test_the_archive_knows_who_ended_a_task(queue: Tasks) -> None:
    """A former holder is refused there, too; the one that ended it gets the same success again."""
    await queue.register(max_processing_time=1, max_retry_interval=0)
    task_id = await queue.create()
    [stale] = await queue.hold()
    [fresh] = await queue.hold(wait=10)
    await queue.set(fresh, SUCCESS)

    async def in_the_archive() -> bool:
        return bool((await queue.task(task_id))["archived"])

    await eventually(in_the_archive)
    assert (await queue.try_set(stale, SUCCESS))["code"] == 8041
    await queue.set(fresh, SUCCESS)


async def test_a_heartbeat_keeps_a_task(queue: Tasks) -> None:
    """While its holder sends heartbeats, no other worker gets it."""
    await queue.register(max_processing_time=2)
    await queue.create()
    [held] = await queue.hold()
    until = time.time() + 4
    while time.time() < until:
        beat = good(
            await queue.post("heartbeat_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}])
        )
        assert [result["code"] for result in beat["results"]] == [0]
        assert await queue.hold(wait=0.2) == []
    await queue.set(held, SUCCESS)
    late = await queue.post("heartbeat_tasks", task_list=[{"task_id": held["task_id"], "lease": held["lease"]}])
    assert late["results"][0]["code"] == 8041


async def test_a_failure_waits_and_the_last_one_ends_the_task(queue: Tasks) -> None:
    """Two retries are three attempts; the pauses are the original's."""
    await queue.register(max_retry_num=2, max_retry_interval=-1)
    task_id = await queue.create(task_priority=100)
    waits = []
    for attempt in range(3):
        [held] = await queue.hold(wait=10)
        assert held["crt_retry_num"] == attempt
        await queue.set(held, PENDING, crt_retry_num=attempt + 1, schedule_log=f"attempt {attempt}")
        task = await queue.task(task_id)
        waits.append(task["order_time_ms"] / 1_000 - time.time())
        assert await queue.hold() == []
    assert (task["status"], task["schedule_log"]) == (FAILED, "attempt 2")
    # Without its priority: else it would be due at once.
    assert all(0.2 < wait <= 1.1 for wait in waits[:2])


async def test_a_stage_goes_to_the_tail(queue: Tasks) -> None:
    """Tasks that were created meanwhile go first."""
    first, second = await queue.create(), await queue.create()
    [held] = await queue.hold(limit=1)
    await queue.set(held, PENDING, task_stage="next", crt_retry_num=0)
    assert [task["task_id"] for task in await queue.hold()] == [second, first]


async def test_attempts_that_did_not_end_a_task_are_told(queue: Tasks) -> None:
    """In its lane, also when that is idle, and in the archive; a hold does not return them."""
    await queue.register(max_processing_time=600, max_retry_interval=0)
    task_id = await queue.create()
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1)
    await queue.register(max_processing_time=1)
    assert await queue.hold(wait=20)
    await queue.register(max_processing_time=600)
    [third] = await queue.hold(wait=20)
    assert third.keys() == held.keys()
    await queue.set(third, PENDING, task_stage="mail")
    [fourth] = await queue.hold()
    good(await queue.post("put_back_tasks", task_list=[{"task_id": task_id, "lease": fourth["lease"]}]))
    told = [await queue.task(task_id) for _ in range(UNCHANGED_READS + 5)]
    await queue.finish(await queue.hold())

    async def is_archived() -> bool:
        return bool((await queue.task(task_id))["archived"])

    await eventually(is_archived)
    tried = told[0]["attempts"]
    assert [each["outcome"] for each in tried] == ["failed", "timed_out", "next_stage", "put_back"]
    moments = [each[name] for each in tried for name in ("held_time", "end_time")]
    assert moments == sorted(moments)
    assert all(each["attempts"] == tried for each in told)
    ended = await queue.task(task_id)
    assert (ended["attempts"], ended["attempts_left_out"], ended["status"]) == (tried, 0, SUCCESS)


async def test_a_cancelled_task_is_nobody_s(queue: Tasks) -> None:
    """Pending it is not given out; running its holder is refused. Twice is once."""
    pending, running = await queue.create(), await queue.create(task_priority=1_000)
    [held] = await queue.hold(limit=1)
    assert held["task_id"] == running
    for task_id in (pending, running, running):
        good(await queue.post("cancel_task", task_id=task_id))
    assert await queue.hold() == []
    assert (await queue.try_set(held, SUCCESS))["code"] == 8041
    assert [(await queue.task(task_id))["status"] for task_id in (pending, running)] == [CANCELLED, CANCELLED]


async def test_a_cancelled_task_is_told_from_a_failed_one(queue: Tasks) -> None:
    """In its lane and in the archive, in lists, counts and figures; and a failed one cannot be cancelled any more."""
    cancelled, failed = await queue.create(), await queue.create(task_priority=9)
    await queue.finish(await queue.hold(limit=1), FAILED)
    good(await queue.post("cancel_task", task_id=cancelled))

    async def look() -> list[Json]:
        counts = await queue.counts()
        assert (counts["task_count"], counts["failed"], counts["cancelled"]) == (2, 1, 1)
        for status, task_id in ((FAILED, failed), (CANCELLED, cancelled)):
            for route in ("get_task_list", "browse_tasks"):
                found = good(await queue.get(route, task_type=queue.type, status=status))["task_list"]
                assert [each["task_id"] for each in found] == [task_id], route
        return [await queue.task(task_id) for task_id in (failed, cancelled)]

    assert [task["status"] for task in await look()] == [FAILED, CANCELLED]

    async def are_archived() -> bool:
        return all(task["archived"] for task in await look())

    await eventually(are_archived)
    assert [task["status"] for task in await look()] == [FAILED, CANCELLED]
    assert (await queue.post("cancel_task", task_id=failed))["code"] == 8041
    good(await queue.post("cancel_task", task_id=cancelled))

    async def is_figured() -> bool:
        [row] = good(await queue.get("get_task_figures", prefix=queue.type))["type_list"]
        [lane] = good(await queue.get("get_task_lanes", task_type=queue.type))["lane_list"]
        return all((each["failed"], each["cancelled"]) == (1, 1) for each in (row, lane))

    await eventually(is_figured)


async def test_a_task_starts_at_its_time(queue: Tasks) -> None:
    """Not before, though it has the highest priority; a worker that waits gets it then."""
    start = datetime.now(UTC) + timedelta(seconds=1.5)
    task_id = await queue.create(task_id="later", task_priority=1_000, start_time=start.isoformat())
    assert await queue.create(task_id="later", task_priority=1_000, start_time=start.isoformat()) == task_id
    assert (await queue.task(task_id))["order_time_ms"] == round(start.timestamp() * 1_000)
    assert await queue.hold() == []
    [held] = await queue.hold(wait=20)
    assert (held["task_id"], datetime.now(UTC) >= start) == (task_id, True)
    said = {"task_type": queue.type, "task_id": "later", "task_priority": 1_000}
    assert (await queue.post("create_task", task_data=said))["code"] == 8037
    for wrong in ("2026-01-01T00:00:00", "tomorrow", 5, "2999-01-01T00:00:00Z"):
        answer = await queue.post("create_task", task_data={"task_type": queue.type, "start_time": wrong})
        assert (answer["code"], answer["errors"][0]["path"]) == (8020, "task_data.start_time"), answer


async def test_a_name_with_another_stage_is_another_task(queue: Tasks) -> None:
    """It was answered with 0 and the id of the first task, whose stage is none that was asked for."""
    said = {"task_type": queue.type, "task_id": "staged", "task_stage": "cut"}
    task_id = good(await queue.post("create_task", task_data=said))["task_id"]

    assert good(await queue.post("create_task", task_data=said))["task_id"] == task_id
    for stage in ("publish", ""):
        answer = await queue.post("create_task", task_data=said | {"task_stage": stage})
        assert (answer["code"], "stage" in answer["msg"]) == (8037, True)


async def test_a_type_may_demand_leases(queue: Tasks) -> None:
    """Then a result without one is refused, from the answer on; operators may put tasks back all the same."""
    await queue.create()
    [held] = await queue.hold()
    await queue.register(lease_required=True)
    refused = await queue.post("set_task", task_data={"task_id": held["task_id"], "status": SUCCESS})
    assert (refused["code"], "Send the lease" in refused["msg"]) == (8041, True)
    good(await queue.post("put_back_tasks", task_list=[{"task_id": held["task_id"]}]))
    [held] = await queue.hold()
    await queue.set(held, SUCCESS)
    assert (await queue.config())["lease_required"] is True


async def test_a_configuration_is_shown_with_a_task_at_once(queue: Tasks) -> None:
    """Also by another process than the one that changed it, and with a task in the archive."""
    task_id = await queue.create()
    async with running_api(queue.api_client.settings) as other:

        async def shown() -> int:
            reply = await other.ask("GET", "/v1/get_task", key=queue.key, params={"task_id": task_id})
            retries: int = good(reply.body)["task_data"]["max_retry_num"]
            return retries

        assert await shown() == 3
        for retries in range(10, 20):
            await queue.register(max_retry_num=retries)
            assert await shown() == retries
        await queue.finish(await queue.hold())

        async def is_archived() -> bool:
            return bool((await queue.task(task_id))["archived"])

        await eventually(is_archived)
        await queue.register(max_retry_num=20)
        assert await shown() == 20


async def test_intervals_of_the_original_have_its_meaning(queue: Tasks) -> None:
    """0 means its defaults, and the first delay is as long as it says."""
    await queue.register(schedule_limit=0, schedule_interval=0, retry_interval=2, max_retry_interval=30)
    config = await queue.config()
    assert (config["schedule_limit"], config["schedule_interval"], config["retry_interval"]) == (2_000, 20, 2)
    await queue.create()
    [held] = await queue.hold()
    await queue.set(held, PENDING, crt_retry_num=1)
    task = await queue.task(held["task_id"])
    due_after = task["order_time_ms"] / 1_000 - datetime.fromisoformat(task["modify_time"]).timestamp()
    assert due_after == pytest.approx(2, abs=0.01)


async def test_a_first_pause_that_is_longer_than_the_longest_is_refused(queue: Tasks) -> None:
    """Whether both are given or one is there already; nothing is changed. It used to be cut without a word."""

    async def register(**given: int) -> Json:
        data = {"task_type": queue.type} | given
        return await queue.post("register_task_type", task_type_data=data)

    await queue.register(retry_interval=5, max_retry_interval=30)
    before = await queue.config()
    for given in ({"retry_interval": 31}, {"max_retry_interval": 4}, {"retry_interval": 9, "max_retry_interval": 8}):
        refused = await register(schedule_limit=7, **given)
        assert (refused["code"], "more than max_retry_interval" in refused["msg"]) == (8020, True), refused
    assert await queue.config() == before
    good(await register(max_retry_interval=-4))
    good(await register(retry_interval=60))


async def test_a_caller_may_wait_for_a_task(queue: Tasks) -> None:
    """It is answered as soon as one comes, and only one of two gets it."""
    waiting = [asyncio.create_task(queue.hold(wait=20)) for _ in range(2)]
    begun = time.monotonic()
    task_id = await queue.create()
    done, others = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [[task["task_id"] for task in each.result()] for each in done] == [[task_id]]
    assert time.monotonic() - begun < 15
    second = await queue.create()
    assert [task["task_id"] for task in await others.pop()] == [second]


async def test_who_waits_in_vain_gets_an_empty_list(queue: Tasks) -> None:
    """When its time is over, and not before."""
    begun = time.monotonic()
    assert await queue.hold(wait=0.5) == []
    assert time.monotonic() - begun >= 0.5


async def test_a_paused_type_gives_nothing_out(queue: Tasks) -> None:
    """All else goes on; resumed, it gives out what has come meanwhile."""
    await queue.create()
    [held] = await queue.hold()
    good(await queue.post("pause_task_type", task_type=queue.type))
    await queue.create()
    assert await queue.hold() == []
    await queue.set(held, SUCCESS)
    assert (await queue.config())["paused"]
    good(await queue.post("resume_task_type", task_type=queue.type))
    assert len(await queue.hold(wait=5)) == 1


async def test_a_hold_gives_no_more_than_the_type_allows(queue: Tasks) -> None:
    """Who wants less gets less; the limit of the type is changed while tasks wait."""
    await queue.register(schedule_limit=3)
    await queue.create_many(10)
    assert [len(await queue.hold(**limit)) for limit in ({}, {"limit": 2}, {"limit": 100})] == [3, 2, 3]
    await queue.register(schedule_limit=100)
    assert len(await queue.hold()) == 2


async def test_long_texts_come_back_whole(queue: Tasks) -> None:
    """Content and log, live and archived, however they are set."""
    task_id = await queue.create(task_content=LONG)
    [held] = await queue.hold()
    assert held["task_content"] == LONG
    await queue.set(held, PENDING, task_content=LONG + "2", schedule_log="很长" * 500)
    task = await queue.task(task_id)
    assert (task["task_content"], task["schedule_log"]) == (LONG + "2", "很长" * 500)
    await queue.finish(await queue.hold())

    async def archived() -> Any:
        task = await queue.task(task_id)
        assert (task["task_content"], task["schedule_log"]) == (LONG + "2", "很长" * 500)
        listed = good(await queue.get("get_task_list", task_type=queue.type))["task_list"]
        assert [task | each for each in listed] == [task]
        return await is_archived(queue, task_id)

    assert await eventually(archived)


async def is_archived(queue: Tasks, task_id: str) -> bool:
    """Whether the database has it."""
    async with queue.worker.services.database.connection() as connection:
        return bool(await connection.fetchval("SELECT true FROM tasks_archive WHERE task_id = $1", task_id))


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


async def test_two_projects_have_a_type_of_one_name(queue: Tasks) -> None:
    """Each has its own queue, configuration, counts, names of tasks and pause."""
    project_id, key = await queue.api_client.make_project("neighbour")
    neighbour = Tasks(queue.api_client, key, queue.worker, project_id)
    await neighbour.register(max_retry_num=0)
    ours, theirs = await queue.create(task_id="one", user_id="a"), await neighbour.create(task_id="one", user_id="b")
    assert ours != theirs
    assert ((await queue.config())["max_retry_num"], (await neighbour.config())["max_retry_num"]) == (3, 0)

    good(await queue.post("pause_task_type", task_type=queue.type))
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
        sent = {"params": said} if method == "GET" else {"json": said}
        unclear = (await queue.api_client.as_admin(method, f"/v1/{route}", **sent)).body
        assert (unclear["code"], "2 projects" in unclear["msg"]) == (8045, True), unclear
        headers = {"Haulage-Project": project_id}
        good((await queue.api_client.as_admin(method, f"/v1/{route}", headers=headers, **sent)).body)
    rows = (await queue.api_client.as_admin("GET", "/v1/get_task_figures", params={"limit": 1})).body
    more = {"limit": 1, "cursor": rows["next_cursor"]}
    rest = (await queue.api_client.as_admin("GET", "/v1/get_task_figures", params=more)).body
    listed = [each["project_id"] for each in rows["type_list"] + rest["type_list"]]
    assert sorted(listed) == sorted([queue.project_id, project_id])

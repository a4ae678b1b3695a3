"""flowSvr's own client against the real API: its bytes, its ways of being late, its way of showing a key."""

from __future__ import annotations

import base64

import pytest

from tests.support.api import Reply
from tests.support.original_worker import Attempt, OriginalClient
from tests.support.tasks import Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

LATE = 8041


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register(max_processing_time=30, max_retry_interval=0, max_retry_num=3)
    return shared_tasks


@pytest.fixture
def client(queue: Tasks) -> OriginalClient:
    """The original's client, with the key in its address."""
    return OriginalClient(queue.api_client, queue.key)


async def test_a_task_goes_through_all_its_stages(queue: Tasks, client: OriginalClient) -> None:
    """Created, held, thrown back, failed, done: by the original's bytes alone."""
    created = await client.create(task_type=queue.type, context='{"a":1}', task_stage="sendmsg", priority=60)
    [first] = await client.hold(queue.type)
    assert (first["task_id"], first["context"], first["task_stage"]) == (created["task_id"], '{"a":1}', "sendmsg")
    assert (first["status"], first["priority"], first["crt_retry_num"], first["max_retry_num"]) == (2, 60, 0, 3)
    assert (await client.set(Attempt.of(first).goes_on("record", context='{"a":2}')))["code"] == 0

    [second] = await client.hold(queue.type, limit=100)
    assert (second["task_stage"], second["context"], second["crt_retry_num"]) == ("record", '{"a":2}', 0)
    assert (await client.set(Attempt.of(second).fails()))["code"] == 0

    [third] = await client.hold(queue.type, limit=9_999)
    assert (third["crt_retry_num"], third["task_stage"]) == (1, "record")
    assert (await client.set(Attempt.of(third).succeeds()))["code"] == 0
    assert (await client.get(created["task_id"]))["status"] == 3
    assert [task["task_id"] for task in await client.find(queue.type, 3, 0)] == [created["task_id"]]
    answer = good(await queue.get("get_task_counts_by_type", task_type=queue.type))
    assert (answer["counts"], answer["task_count"]) == (1, 1)


async def test_a_result_said_twice_does_not_hit_the_next_holder(queue: Tasks, client: OriginalClient) -> None:
    """Its client says it again at once when an answer gets lost; that is answered as the first time."""
    await client.create(task_type=queue.type)
    [first] = await client.hold(queue.type)
    said = Attempt.of(first).goes_on("record")
    assert (await client.set(said))["code"] == 0
    assert (await client.set(said))["code"] == 0, "while it waits"
    [second] = await client.hold(queue.type)
    assert (await client.set(said))["code"] == 0, "while another one holds it"
    assert (await queue.task(first["task_id"]))["status"] == 2
    assert (await client.set(Attempt.of(second).succeeds()))["code"] == 0


async def test_a_late_result_does_not_hit_the_next_holder(queue: Tasks, client: OriginalClient) -> None:
    """After a time-out the first holder's word is refused, whatever it is."""
    await queue.register(max_processing_time=1)
    await client.create(task_type=queue.type, task_stage="sendmsg")
    [first] = await client.hold(queue.type)
    await queue.register(max_processing_time=600)
    second = [task for task in await eventually(lambda: client.hold(queue.type)) if task]
    assert second[0]["crt_retry_num"] == 1
    late = Attempt.of(first)
    for said in (late.succeeds(), late.fails(), late.goes_on("sendmsg"), late.succeeds(status=4)):
        assert (await client.set(said))["code"] == LATE, said
    assert (await client.set(Attempt.of(second[0]).succeeds()))["code"] == 0


async def test_what_has_no_log_and_no_lease_is_taken_for_the_holder(queue: Tasks, client: OriginalClient) -> None:
    """A caller that writes down id and status alone, with all else at zero."""
    created = await client.create(task_type=queue.type, context="text", task_stage="sendmsg")
    await client.hold(queue.type)
    assert (await client.set({"task_id": created["task_id"], "status": 3}))["code"] == 0
    task = await queue.task(created["task_id"])
    assert (task["status"], task["task_content"], task["stage"]) == (3, "text", "sendmsg")


async def test_body_and_query_of_a_hold_must_not_differ(queue: Tasks) -> None:
    """One of them would be without effect; either alone will do."""
    await queue.create_many(2)
    headers = {"Authorization": f"Bearer {queue.key}"}

    async def hold(query: str, body: bytes) -> Reply:
        return await queue.api_client.ask(
            "POST",
            f"/v1/hold_tasks{query}",
            headers=headers,
            data=body or None,
            skip_auto_headers=("Content-Type",),
        )

    alone = [await hold("?task_type=video&limit=1", b""), await hold("", b'{"task_type": "video", "limit": 1}')]
    assert [len(each.body["task_list"]) for each in alone] == [1, 1]
    differ = await hold("?task_type=video&limit=1", b'{"task_type": "video", "limit": 2}')
    assert (differ.body["code"], differ.body["errors"][0]["path"]) == (8020, "limit")
    missing = await hold("", b"")
    assert (missing.body["code"], missing.body["errors"][0]["path"]) == (8020, "task_type")


@pytest.mark.parametrize("shown", [":{key}", "{key}:", "anybody:{key}"])
async def test_a_key_may_stand_in_the_address(queue: Tasks, shown: str) -> None:
    """As password, or as the user where there is none; for tasks alone."""
    word = base64.b64encode(shown.format(key=queue.key).encode()).decode()
    headers = {"Authorization": f"Basic {word}"}
    answer = await queue.api_client.ask("GET", "/v1/get_task_schedule_cfg_list", headers=headers)
    assert [each["task_type"] for each in answer.body["task_schedule_cfg_list"]] == ["video"]
    elsewhere = await queue.api_client.ask("GET", "/v1/downloads", headers=headers)
    assert elsewhere.status == 401


@pytest.mark.parametrize("word", ["", "!", "Og==", "aGxnX3g=", "hlg_x"])
async def test_a_wrong_key_in_the_address_is_no_key(queue: Tasks, word: str) -> None:
    """It is said as of any other: 401, which is no success to that client either."""
    answer = await queue.api_client.ask(
        "GET", "/v1/get_task_schedule_cfg_list", headers={"Authorization": f"Basic {word}"}
    )
    assert (answer.status, type(answer.body["code"])) == (401, str)

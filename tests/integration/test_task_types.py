"""Types of tasks: how they are registered and configured, and what they allow."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from api.tasks import actions, queries
from stores.tasks import types
from tests.support.api import running_api
from tests.support.tasks import PENDING, SIGNED, SUCCESS, Json, Tasks, good
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
async def queue(shared_tasks: Tasks) -> Tasks:
    """API and worker of this file's tests; a project of the test's own with a type of tasks."""
    await shared_tasks.register()
    return shared_tasks


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

        async def read_retries() -> int:
            reply = await other.ask("GET", "/v1/get_task", key=queue.key, params={"task_id": task_id})
            retries: int = good(reply.body)["task_data"]["max_retry_num"]
            return retries

        assert await read_retries() == 3
        for retries in range(10, 20):
            await queue.register(max_retry_num=retries)
            assert await read_retries() == retries
        await queue.finish(await queue.hold())

        async def is_archived() -> bool:
            return bool((await queue.task(task_id))["archived"])

        await eventually(is_archived)
        await queue.register(max_retry_num=20)
        assert await read_retries() == 20


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


async def test_a_paused_type_gives_nothing_out(queue: Tasks) -> None:
    """All else goes on; resumed, it gives out what has come meanwhile."""
    await queue.create()
    [held] = await queue.hold()
    good(await queue.post("pause_task_type", task_type=queue.type, **SIGNED))
    await queue.create()
    assert await queue.hold() == []
    await queue.set(held, SUCCESS)
    assert (await queue.config())["paused"]
    good(await queue.post("resume_task_type", task_type=queue.type, **SIGNED))
    assert len(await queue.hold(wait=5)) == 1


async def test_who_acts_on_a_type_and_why_is_demanded(queue: Tasks) -> None:
    """A name and a reason of three characters that can be seen, as of every other action of operators."""
    await queue.register()
    for wrong in (
        {},
        {"who": "ann"},
        {"reason": "a test"},
        {"who": " ", "reason": "a test"},
        {**SIGNED, "reason": "   "},
    ):
        for verb in ("pause", "resume", "remove"):
            refused = await queue.post(f"{verb}_task_type", task_type=queue.type, **wrong)
            assert refused["code"], (verb, wrong)
    assert not (await queue.config())["paused"]


async def test_a_hold_gives_no_more_than_the_type_allows(queue: Tasks) -> None:
    """Who wants less gets less; the limit of the type is changed while tasks wait."""
    await queue.register(schedule_limit=3)
    await queue.create_many(10)
    assert [len(await queue.hold(**limit)) for limit in ({}, {"limit": 2}, {"limit": 100})] == [3, 2, 3]
    await queue.register(schedule_limit=100)
    assert len(await queue.hold()) == 2


async def test_a_type_that_gets_a_task_while_it_is_removed_stays_as_it_is(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is not lost, and a paused type stays paused: undoing the removal had it give tasks out again."""
    good(await queue.post("pause_task_type", task_type=queue.type, **SIGNED))
    count_tasks = queries.count_pending_and_running_tasks
    created: list[str] = []

    async def count_and_then_create(*arguments: Any) -> int:
        counted = await count_tasks(*arguments)
        if not created:
            created.append(await queue.create())
        return counted

    monkeypatch.setattr(actions, "count_pending_and_running_tasks", count_and_then_create)
    refused = await queue.post("remove_task_type", task_type=queue.type, **SIGNED)

    assert (refused["code"], "has 1 unfinished tasks" in refused["msg"]) == (8045, True), refused
    assert (await queue.task(created[0]))["status"] == PENDING
    assert (await queue.config())["paused"]
    assert await queue.hold() == []
    await queue.create()


async def test_a_type_that_gets_a_task_of_another_process_after_the_last_count_stays(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is not lost: it was accepted, and never seen again. Later it was refused, though the type stayed."""
    count_tasks = queries.count_pending_and_running_tasks
    answers: list[Json] = []
    async with running_api(queue.api_client.settings) as other:

        async def create() -> Json:
            new = {"task_data": {"task_type": queue.type}}
            answer: Json = (await other.ask("POST", "/v1/create_task", key=queue.key, json=new)).body
            return answer

        good(await create())
        await queue.finish(await queue.hold(limit=1, wait=30))

        async def count_and_let_the_other_create(*arguments: Any) -> int:
            counted = await count_tasks(*arguments)
            answers.append(await create() if answers else {})
            return counted

        monkeypatch.setattr(actions, "count_pending_and_running_tasks", count_and_let_the_other_create)
        refused = await queue.post("remove_task_type", task_type=queue.type, **SIGNED)
        assert (refused["code"], "or received a task" in refused["msg"]) == (8045, True), refused
        good(answers[1])
        monkeypatch.undo()
        assert (await queue.counts())["task_count"] == 2
        await queue.finish(await queue.hold(limit=1, wait=30))
        good(await queue.post("remove_task_type", task_type=queue.type, **SIGNED))
        assert (await create())["code"] == 8045


async def test_a_type_that_is_changed_while_it_is_removed_stays(queue: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner has just registered it again, with success."""
    count_tasks = queries.count_pending_and_running_tasks
    counts: list[int] = []

    async def count_and_register(*arguments: Any) -> int:
        counts.append(await count_tasks(*arguments))
        if len(counts) == 2:
            await queue.register(max_retry_num=9)
        return counts[-1]

    monkeypatch.setattr(actions, "count_pending_and_running_tasks", count_and_register)
    refused = await queue.post("remove_task_type", task_type=queue.type, **SIGNED)

    assert (refused["code"], "was changed meanwhile" in refused["msg"]) == (8045, True), refused
    assert (await queue.config())["max_retry_num"] == 9
    await queue.create()


async def test_a_type_that_is_removed_while_it_is_paused_stays_removed(
    queue: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause was answered with success, and lanes took tasks of the removed type again."""
    set_paused = types.set_paused

    async def remove_and_set_paused(*arguments: Any, **options: Any) -> Any:
        good(await queue.post("remove_task_type", task_type=queue.type, **SIGNED))
        return await set_paused(*arguments, **options)

    monkeypatch.setattr(types, "set_paused", remove_and_set_paused)
    refused = await queue.post("pause_task_type", task_type=queue.type, **SIGNED)

    assert (refused["code"], "There is no type" in refused["msg"]) == (8045, True), refused
    assert (await queue.post("create_task", task_data={"task_type": queue.type}))["code"] == 8045

"""Quotas of a project in every system: what is beyond one is refused with 429, and the rest is accepted."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any
from urllib.parse import quote

import pytest

from api.http.middleware import QUOTA_PAUSE_SECONDS
from domain.quotas import QuotaLimits
from infra.settings import Settings
from tests.support.api import ApiClient, Reply, running_api
from tests.support.orders import Orders
from tests.support.tasks import Tasks, running_tasks
from tests.support.transfers import CONTENT, QUICK, Transfers, running_transfers
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

ENDLESS = QUICK.model_copy(update={"download_seconds": 3_600.0})
FULL, ROOM = 429, 8036
"""The status of a refusal, and flowSvr's code of it."""


def limit(settings: Settings, **quotas: int) -> Settings:
    """The same settings with these quotas of projects."""
    return settings.model_copy(update={"quotas": QuotaLimits(**quotas)})


async def read_used(api_client: ApiClient, key: str) -> dict[str, int | None]:
    """How much of each quota is used, as its owner sees it."""
    reply = await api_client.ask("GET", "/v1/quotas", key=key)
    assert reply.status == 200, reply.body
    return {quota["name"]: quota["used"] for quota in reply.body["items"]}


async def send_at_once(ask: Callable[[int], Awaitable[Reply]], numbers: Iterable[int]) -> Counter[int]:
    """Send requests at the same time; return how many had which status."""
    replies = await asyncio.gather(*map(ask, numbers))
    for reply in replies:
        if reply.status == FULL:
            assert int(reply.headers["Retry-After"]) >= 1
    return Counter(reply.status for reply in replies)


def check_envelope(reply: Reply, sentence: str) -> None:
    """A refusal of a route of tasks is one by its status and by its envelope."""
    assert (reply.status, reply.body["code"]) == (FULL, ROOM)
    assert reply.body["msg"].startswith(f"FAIL_REASON::This project {sentence}")
    assert int(reply.headers["Retry-After"]) >= 1


async def test_a_project_sees_its_quotas(settings: Settings) -> None:
    """Each with its limit, what is used, and when that comes back; a stranger sees none of it."""
    async with running_api(limit(settings, requests_per_minute=3, task_types=7)) as api_client:
        project_id, key = await api_client.make_project()
        _, stranger = await api_client.make_project()
        reply = await api_client.ask("GET", "/v1/quotas", key=key)
        theirs = await api_client.ask("GET", f"/v1/projects/{project_id}/quotas", key=stranger)
        own = await api_client.ask("GET", f"/v1/projects/{project_id}/quotas", key=key)
        no_limit = await api_client.ask("PUT", f"/v1/projects/{project_id}/quotas", key=key, json={"task_types": 99})
    shown = {quota["name"]: quota for quota in reply.body["items"]}
    assert shown.keys() == QuotaLimits.model_fields.keys() | {"streams_per_project"}
    assert 0 < shown["requests_per_minute"].pop("resets_in_seconds") <= 20
    assert shown["requests_per_minute"] | {"description": ""} == {
        "name": "requests_per_minute",
        "system": None,
        "description": "",
        "limit": 3,
        "default": 3,
        "used": 1,
    }
    assert (shown["task_types"]["limit"], shown["task_types"]["used"], shown["task_types"]["system"]) == (7, 0, "tasks")
    assert own.body["items"][1:] == reply.body["items"][1:]
    assert (theirs.code, no_limit.code) == ("not_found", "admin_key_needed")


async def test_the_administrator_sets_the_quotas_of_one_project(settings: Settings) -> None:
    """From the next request on, for that project alone, until they are taken back; nonsense is refused."""
    async with running_api(settings) as api_client:
        project_id, key = await api_client.make_project()
        _, other = await api_client.make_project()
        path = f"/v1/projects/{project_id}/quotas"
        reply = await api_client.as_admin("PUT", path, json={"requests_per_minute": 2, "platforms": None})
        assert reply.status == 200, reply.body
        shown = {quota["name"]: (quota["limit"], quota["default"]) for quota in reply.body["items"]}
        assert (shown["requests_per_minute"], shown["platforms"]) == ((2, 60_000), (100, 100))
        counted = await send_at_once(lambda _: api_client.ask("GET", "/v1/quotas", key=key), range(5))
        assert counted == {200: 2, FULL: 3}
        assert (await api_client.ask("GET", "/v1/quotas", key=other)).status == 200
        for wrong in ({"requests_per_minute": 0}, {"requests": 5}, {"tasks_per_request": 1_001}):
            assert (await api_client.as_admin("PUT", path, json=wrong)).code == "invalid_request"
        assert (await api_client.as_admin("PUT", path, json={})).status == 200
        assert (await api_client.ask("GET", "/v1/quotas", key=key)).status == 200
        assert (await api_client.as_admin("PUT", f"{path[:-10]}x/quotas", json={})).code == "not_found"


async def test_requests_beyond_the_rate_are_refused(settings: Settings) -> None:
    """On every route, with what a program needs; another project, the administrator and callers without keys go on."""
    began = time.monotonic()
    async with running_api(limit(settings, requests_per_minute=3)) as api_client:
        _, key = await api_client.make_project()
        _, other = await api_client.make_project()
        counted = await send_at_once(lambda _: api_client.ask("GET", "/v1/downloads", key=key), range(40))
        refused = await api_client.ask("GET", "/v1/transfers/jobs", key=key)
        in_envelope = await api_client.ask("GET", "/v1/get_task", key=key, params={"task_id": "x"})
        others = [
            await api_client.ask("GET", "/v1/downloads", key=other),
            await api_client.as_admin("GET", "/v1/downloads"),
            await api_client.ask("GET", "/v1/ping"),
        ]
    assert counted == {200: 3, FULL: 37}
    # Who repeats a refused request at once waits for each answer.
    assert time.monotonic() - began > 3 * QUOTA_PAUSE_SECONDS
    assert (refused.code, refused.body["violated-policies"]) == ("quota_exceeded", ["requests_per_minute"])
    assert 1 <= int(refused.headers["Retry-After"]) <= 20
    check_envelope(in_envelope, "sends more than 3 requests a minute")
    assert [reply.status for reply in others] == [200, 200, 200]


async def test_a_project_has_so_many_types_of_tasks(settings: Settings) -> None:
    """Not one more where many are registered at once; one that exists is changed as before."""
    async with running_tasks(limit(settings, task_types=5)) as tasks:

        async def register(number: int) -> Reply:
            body = {"task_type_data": {"task_type": f"type-{number}"}}
            return await tasks.api_client.ask("POST", "/v1/register_task_type", key=tasks.key, json=body)

        assert await send_at_once(register, range(20)) == {200: 5, FULL: 15}
        listed = (await tasks.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
        assert len(listed) == 5
        known = int(listed[0]["task_type"].removeprefix("type-"))
        assert (await register(known)).status == 200
        new = next(number for number in range(20) if f"type-{number}" not in {each["task_type"] for each in listed})
        check_envelope(await register(new), "has 5 types of tasks")
        assert (await read_used(tasks.api_client, tasks.key))["task_types"] == 5
        other = await tasks.for_another_project()
        await other.register()


async def test_a_project_has_so_many_open_tasks(settings: Settings) -> None:
    """Not one more where many are created at once, alone or in batches; those that end make room."""
    async with running_tasks(limit(settings, tasks_open=40, tasks_per_request=10)) as tasks:
        await tasks.register()
        new = {"task_type": tasks.type}

        async def create(number: int) -> Reply:
            if number % 2:
                return await tasks.api_client.ask("POST", "/v1/create_task", key=tasks.key, json={"task_data": new})
            return await tasks.api_client.ask("POST", "/v1/create_tasks", key=tasks.key, json={"task_list": [new] * 5})

        await send_at_once(create, range(60))
        assert (await tasks.counts())["task_count"] == 40
        check_envelope(await create(1), "has 40 tasks that have not ended")
        assert await eventually(lambda: _has_used(tasks, 40))
        await tasks.finish(await tasks.hold(limit=10))
        assert await eventually(lambda: _accepts(create))
        assert (await tasks.counts())["task_count"] <= 50


async def test_a_task_that_is_refused_does_not_count(settings: Settings) -> None:
    """Of a type that was not registered, or under an id that is taken: they used up the quota of a day."""
    # Around a read of the open ones those of three requests may count twice; 18 are refused here.
    async with running_tasks(limit(settings, tasks_per_day=3, tasks_open=10)) as tasks:
        await tasks.register()
        await tasks.create(task_id="one")
        for wrong in ({"task_type": "unknown"}, {"task_type": tasks.type, "task_id": "one", "user_id": "other"}) * 3:
            assert (await tasks.post("create_task", task_data=wrong))["code"] in (8037, 8045)
            assert (await tasks.post("create_tasks", task_list=[wrong] * 2))["code"] in (8037, 8045)
        await tasks.create_many(2)


async def test_ended_tasks_that_are_put_back_count_as_new_ones(settings: Settings) -> None:
    """A project with many ended tasks could have any number of open ones by that."""
    async with running_tasks(limit(settings, tasks_open=5)) as tasks:
        await tasks.register()
        await tasks.create_many(5)
        ended = await tasks.hold(limit=2)
        await tasks.finish(ended)

        async def fill(_number: int) -> Reply:
            new = [{"task_type": tasks.type}] * 2
            return await tasks.api_client.ask("POST", "/v1/create_tasks", key=tasks.key, json={"task_list": new})

        assert await eventually(lambda: _accepts(fill))
        answer = await tasks.post("put_back_tasks", task_list=[{"task_id": task["task_id"]} for task in ended])
        assert [result["code"] for result in answer["results"]] == [8036, 8036]
        assert "has 5 tasks that have not ended" in answer["msg"]


async def _has_used(tasks: Tasks, count: int) -> bool:
    return (await read_used(tasks.api_client, tasks.key))["tasks_open"] == count


async def _accepts(create: Callable[[int], Awaitable[Reply]]) -> bool:
    return (await create(1)).status == 200


async def test_a_request_creates_so_many_tasks(settings: Settings) -> None:
    """A larger one is refused as a whole, since waiting would not help."""
    async with running_tasks(limit(settings, tasks_per_request=10)) as tasks:
        await tasks.register()
        await tasks.create_many(10)
        answer = await tasks.post("create_tasks", task_list=[{"task_type": tasks.type}] * 11)
        assert (answer["code"], answer["errors"][0]["path"]) == (8020, "task_list")
        assert "11 tasks, and 10 are allowed" in answer["msg"]
        assert (await tasks.counts())["task_count"] == 10


async def test_a_project_creates_so_many_tasks_a_day(settings: Settings) -> None:
    """Those that have ended count, too; the project sees what is used and when some of it comes back."""
    async with running_tasks(limit(settings, tasks_per_day=10)) as tasks:
        await tasks.register()

        async def create(_number: int) -> Reply:
            body = {"task_data": {"task_type": tasks.type}}
            return await tasks.api_client.ask("POST", "/v1/create_task", key=tasks.key, json=body)

        assert await send_at_once(create, range(20)) == {200: 10, FULL: 10}
        await tasks.finish(await tasks.hold(limit=5))
        check_envelope(await create(1), "has used 10 of its quota tasks_per_day within a day")
        assert (await tasks.post("create_tasks", task_list=[{"task_type": tasks.type}] * 11))["code"] == 8020
        async with running_api(limit(settings, tasks_per_day=10)) as other_process:

            async def is_seen_there() -> bool:
                quotas = (await other_process.ask("GET", "/v1/quotas", key=tasks.key)).body["items"]
                [day] = [quota for quota in quotas if quota["name"] == "tasks_per_day"]
                return bool(day["used"] == 10 and 86_000 < day["resets_in_seconds"] < 90_000)

            assert await eventually(is_seen_there)


async def order(transfers: Transfers, number: int, targets: int = 1, **fields: Any) -> Reply:
    """Ask for a file for some targets."""
    body = transfers.build_request(file_path=f"/etc/{number}.conf", **fields)
    agents = [{"target_agent_id": f"agent-{each}"} for each in range(targets)]
    return await transfers.ask("POST", "/v1/transfers:batch", json=body | {"targets": agents})


async def test_a_project_has_so_many_open_jobs_and_targets(settings: Settings) -> None:
    """In windows that are open and in jobs that run; those that end make room."""
    quotas = limit(settings, transfer_jobs_open=3, transfer_targets_open=12)
    async with running_transfers(quotas, ENDLESS) as transfers:
        job_ids = []

        async def ask(number: int) -> Reply:
            reply = await order(transfers, number)
            if reply.status != FULL:
                job_ids.append(reply.body["job_id"])
            return reply

        assert await send_at_once(ask, range(10)) == {202: 3, FULL: 7}
        used = await read_used(transfers.api_client, transfers.key)
        assert (used["transfer_jobs_open"], used["transfer_targets_open"]) == (3, 3)
        too_many = await order(transfers, 0, 12)
        assert too_many.body["violated-policies"] == ["transfer_targets_open"]
        never = await order(transfers, 0, 13)
        assert (never.status, never.code) == (422, "too_many_targets"), "waiting would not help"

        for job_id in job_ids:
            assert (await transfers.ask("POST", f"/v1/transfers/jobs/{quote(job_id)}/cancel")).status == 202

        async def is_over() -> bool:
            return (await read_used(transfers.api_client, transfers.key))["transfer_jobs_open"] == 0

        assert await eventually(is_over)
        assert (await order(transfers, 5, 12)).status == 202


async def test_a_project_has_so_many_platforms(orders: Orders) -> None:
    """Not one more where several are set up at once; one that exists is changed as before."""
    path = f"/v1/projects/{orders.project_id}/quotas"
    assert (await orders.ask("PUT", path, json={"platforms": 2})).status == 200
    body = {"project_id": orders.project_id, "kind": "shopify", "shop": "s", "base_url": orders.platforms.url("1")}

    async def set_up(number: int) -> Reply:
        return await orders.ask("PUT", f"/v1/platforms/{number}", json=body)

    assert await send_at_once(set_up, range(1, 7)) == {200: 2, FULL: 4}
    listed = (await orders.ask("GET", "/v1/platforms")).body["items"]
    assert len(listed) == 2
    assert (await set_up(int(listed[0]["platform"]))).status == 200
    assert (await read_used(orders.api_client, orders.key))["platforms"] == 2


async def test_a_project_sends_to_so_many_targets_a_day(settings: Settings) -> None:
    """Those that have ended count, too, and so do the bytes that reached them."""
    quotas = limit(settings, transfer_targets_per_day=5, transfer_bytes_per_day=2 * len(CONTENT))
    async with running_transfers(quotas) as transfers:
        targets = [{"target_agent_id": f"agent-{each}"} for each in range(2)]
        first = await transfers.ask(
            "POST", "/v1/transfers:batch", json=transfers.build_request() | {"targets": targets}
        )
        assert first.status == 202, first.body
        beyond = await order(transfers, 2, 4)
        assert (beyond.status, beyond.body["violated-policies"]) == (FULL, ["transfer_targets_per_day"])
        never = await order(transfers, 2, 6)
        assert (never.status, never.code) == (422, "too_many_targets"), "waiting would not help"
        await transfers.wait_for_job_end(first.body["job_id"])
        used = await read_used(transfers.api_client, transfers.key)
        assert (used["transfer_targets_per_day"], used["transfer_bytes_per_day"]) == (2, 2 * len(CONTENT))
        no_bytes_left = await order(transfers, 3, 1)
        assert (no_bytes_left.status, no_bytes_left.body["violated-policies"]) == (FULL, ["transfer_bytes_per_day"])

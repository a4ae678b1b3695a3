"""A greedy project beside a modest one: the modest one's work is accepted, and done nearly as soon as alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from activities.transfers.repository import FileRepositoryClient
from domain.addresses.messages import Topic
from domain.orders.windows import TimeWindow
from domain.quotas import QuotaLimits
from infra.settings import Settings
from sims.platforms.scenario import PlatformScenario
from tests.support.api import ApiClient, Reply, running_api
from tests.support.downloads import running_downloads
from tests.support.orders import Orders, since
from tests.support.pace import measure_pace
from tests.support.pubsub import create_update
from tests.support.tasks import SUCCESS, Tasks, running_tasks
from tests.support.transfers import CONTENT, Transfers, running_transfers, window_begins
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

CALLERS = 30
"""Requests of the greedy project at a time."""
DELAY_SECONDS = 4.0
"""How much longer than twice its time alone the modest one's work may take; greedy callers are in this process, too."""

Ask = Callable[[int], Awaitable[Reply]]


def limit(settings: Settings, **quotas: int) -> Settings:
    """The same settings with these quotas of projects."""
    return settings.model_copy(update={"quotas": QuotaLimits(**quotas)})


@asynccontextmanager
async def flooding(ask: Ask) -> AsyncIterator[Counter[int]]:
    """Send requests without a pause, whatever is answered; yield the counts of statuses once some were refused."""
    statuses, numbers = Counter[int](), itertools.count()

    async def send() -> None:
        for number in numbers:
            statuses[(await ask(number)).status] += 1

    senders = [asyncio.create_task(send()) for _ in range(CALLERS)]
    try:
        await eventually(lambda: statuses[429] >= CALLERS)
        yield statuses
    finally:
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)


async def measure(work: Callable[[], Awaitable[None]]) -> float:
    """How long some work takes, on a core as it is now: the median of three times, so that no lucky one counts."""
    times = []
    for _ in range(3):
        began = time.monotonic()
        await work()
        times.append(time.monotonic() - began)
    return statistics.median(times)


async def compare(ask: Ask, work: Callable[[], Awaitable[None]]) -> Counter[int]:
    """Do some work alone and beside a flood, in nearly the same time; return the statuses that the flood got."""
    before = measure_pace()
    alone = await measure(work)
    async with flooding(ask) as statuses:
        beside = await measure(work)
    pace = max(before, measure_pace())
    assert beside < 2 * alone + DELAY_SECONDS * pace, (alone, beside, pace, statuses)
    assert statuses[429] >= CALLERS
    return statuses


async def test_requests_of_one_project_do_not_hold_up_another(settings: Settings) -> None:
    """The greedy one is served as much as it may, and the modest one as soon as alone."""
    async with running_api(limit(settings, requests_per_minute=120)) as api_client:
        _, greedy = await api_client.make_project()
        _, modest = await api_client.make_project()

        async def work() -> None:
            for _ in range(10):
                assert (await api_client.ask("GET", "/v1/downloads", key=modest)).status == 200

        statuses = await compare(lambda _: api_client.ask("GET", "/v1/downloads", key=greedy), work)
    assert statuses.keys() == {200, 429}


@pytest.mark.long
async def test_downloads_of_one_project_do_not_hold_up_another(settings: Settings) -> None:
    """The greedy one has slow downloads, as many as it may."""
    async with running_downloads(limit(settings, downloads_active=3)) as greedy:
        project_id, key = await greedy.api_client.make_project()
        modest = replace(greedy, project_id=project_id, key=key)
        seeds = itertools.count(1)

        async def work() -> None:
            status = await modest.run(modest.source.url(rows=500, seed=next(seeds)), page_size=100)
            assert (status["state"], status["rows"]) == ("succeeded", 500)

        async def ask(number: int) -> Reply:
            url = greedy.source.url(rows=1_000_000, delay_ms=500, tag=str(number))
            body = {"source_url": url, "page_size": 100}
            return await greedy.api_client.ask("POST", "/v1/downloads", key=greedy.key, json=body)

        statuses = await compare(ask, work)
        assert statuses[202] == 3
        listed = (await greedy.api_client.ask("GET", "/v1/downloads", key=greedy.key)).body["items"]
        for each in listed:
            await greedy.api_client.ask("POST", f"/v1/downloads/{each['task_id']}/cancel", key=greedy.key)


@pytest.mark.long
async def test_tasks_of_one_project_do_not_hold_up_another(settings: Settings) -> None:
    """The greedy one makes types, and large tasks in the largest requests, as many as it may."""
    async with running_tasks(limit(settings, task_types=3, tasks_open=300, requests_per_minute=300)) as greedy:
        modest = await greedy.for_another_project()
        await modest.register()

        async def work() -> None:
            task_id = await modest.create()
            [held] = await modest.hold(limit=1, wait=30)
            assert held["task_id"] == task_id
            await modest.set(held, SUCCESS)

        async def ask(number: int) -> Reply:
            name = f"type-{number % 10}"
            new = {"task_type": name, "task_content": "x" * 10_000}
            route, body = (
                ("register_task_type", {"task_type_data": {"task_type": name}})
                if number % 2
                else ("create_tasks", {"task_list": [new] * 50})
            )
            return await greedy.api_client.ask("POST", f"/v1/{route}", key=greedy.key, json=body)

        await compare(ask, work)
        await check_tasks(greedy)


async def check_tasks(greedy: Tasks) -> None:
    """The greedy project has as much as it may, and not more."""
    # On a fast machine the flood has used all requests of this minute.
    path = f"/v1/projects/{greedy.project_id}/quotas"
    raised = await greedy.api_client.as_admin("PUT", path, json={"requests_per_minute": 10_000})
    assert raised.status == 200, raised.body
    types = (await greedy.get("get_task_schedule_cfg_list"))["task_schedule_cfg_list"]
    assert len(types) == 3
    open_tasks = 0
    for each in types:
        counts = await replace(greedy, type=each["task_type"]).counts()
        open_tasks += counts["pending"] + counts["running"]
    assert open_tasks <= 300


@pytest.mark.long
async def test_transfers_of_one_project_do_not_hold_up_another(settings: Settings) -> None:
    """The greedy one begins jobs for files that nobody has, as many as it may."""
    async with running_transfers(limit(settings, transfer_jobs_open=4, transfer_targets_open=100)) as greedy:
        project_id, key = await greedy.api_client.make_project()
        modest = replace(greedy, project_id=project_id, key=key)
        agents = itertools.count(1)

        async def work() -> None:
            agent = f"modest-{next(agents)}"
            end = await modest.wait_for_end(await modest.join(agent))
            assert end["status"] == "Success", end
            assert modest.has_file(agent, content=CONTENT)

        async def ask(number: int) -> Reply:
            body = greedy.build_request(file_path=f"/etc/{number}.conf", signature=f"{number:064x}")
            targets = [{"target_agent_id": f"greedy-{each}"} for each in range(20)]
            return await greedy.ask("POST", "/v1/transfers:batch", json=body | {"targets": targets})

        await compare(ask, work)
        await check_transfers(greedy)


@pytest.mark.long
async def test_invented_signatures_of_one_project_do_not_delay_the_file_of_another(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The greedy one's are fetched in its turn, however many it asked for before the modest one."""
    fetched: list[str] = []
    write = FileRepositoryClient._write_from_store

    async def write_slowly(repository: FileRepositoryClient, key: str, path: Path) -> None:
        fetched.append(key.rpartition("/")[2])
        await asyncio.sleep(1)
        await write(repository, key, path)

    monkeypatch.setattr(FileRepositoryClient, "_write_from_store", write_slowly)
    window_seconds = round(6 * measure_pace())
    async with running_transfers(settings, window_seconds=window_seconds) as greedy:
        project_id, key = await greedy.api_client.make_project()
        modest = replace(greedy, project_id=project_id, key=key)
        await window_begins(window_seconds)
        invented = [f"{number:064x}" for number in range(40)]
        await asyncio.gather(*(greedy.join(f"greedy-{each[-4:]}", signature=each) for each in invented))
        task_id = await modest.join("modest-1")
        assert (await modest.wait_for_end(task_id))["status"] == "Success"
    place = fetched.index(str(modest.build_request()["signature"]))
    assert place < len(invented) * 3 / 4, place


async def check_transfers(greedy: Transfers) -> None:
    """The greedy project has as much as it may, and not more."""
    reply = await greedy.ask("GET", "/v1/quotas")
    used = {quota["name"]: quota["used"] for quota in reply.body["items"]}
    assert used["transfer_jobs_open"] <= 4
    assert used["transfer_targets_open"] <= 100


@pytest.mark.long
async def test_platforms_of_one_project_do_not_hold_up_another(orders: Orders) -> None:
    """The greedy one has used up its requests of a day: it waits, and the modest one's orders are all fetched."""
    greedy_id, _ = await orders.api_client.make_project()
    path = f"/v1/projects/{greedy_id}/quotas"
    assert (await orders.ask("PUT", path, json={"platforms": 1, "platform_requests_per_day": 2})).status == 200
    scenario = PlatformScenario(orders=60, span_seconds=3_600)
    greedy, modest = orders.play(scenario, "greedy"), orders.play(scenario, "modest")
    await orders.set_up("greedy", project_id=greedy_id)
    await orders.set_up("modest")
    for number, platform in (("greedy", greedy), ("modest", modest)):
        await orders.configure(number, starttime=since(platform, seconds=3_600))
    waiting = await orders.cycle("greedy")
    await eventually(lambda: sum(greedy.calls.values()) >= 1)
    await orders.fetch("modest")
    assert await orders.is_complete("modest")
    assert (await orders.findings("modest")).lost == []
    assert greedy.calls["200"] <= 2
    assert not await orders.is_complete("greedy")
    quotas = (await orders.ask("GET", path)).body["items"]
    [per_day] = [each for each in quotas if each["name"] == "platform_requests_per_day"]
    assert per_day["resets_in_seconds"] > 80_000

    # A raised quota applies to the slices that wait for it.
    assert (await orders.ask("PUT", path, json={"platforms": 1})).status == 200
    for row in await orders.slices("greedy"):
        name = TimeWindow(start=row.start_at, end=row.end_at)
        assert (await orders.ask("POST", f"/v1/platforms/greedy/slices/{name}/redo")).status == 202
    await waiting.result()
    assert await orders.is_complete("greedy")

    body = {"project_id": greedy_id, "kind": "shopify", "shop": "s", "base_url": orders.platforms.url("x")}
    refused = await orders.ask("PUT", "/v1/platforms/another", json=body)
    assert (refused.code, refused.body["violated-policies"]) == ("quota_exceeded", ["platforms"])


async def test_a_project_does_not_hold_up_addresses(settings: Settings) -> None:
    """No key of a project reaches a route of addresses; what floods them is refused, and a push is stored as alone."""
    secret = "a-secret-of-the-subscription"
    push = settings.addresses.push.model_copy(update={"secret": SecretStr(secret)})
    addresses = settings.addresses.model_copy(update={"push": push})
    small = limit(settings, requests_per_minute=60).model_copy(update={"addresses": addresses})
    async with running_api(small) as api_client:
        _, greedy = await api_client.make_project()
        numbers = itertools.count(1)

        async def work() -> None:
            assert (await push_message(api_client, next(numbers), secret)).status == 204

        statuses = await compare(lambda _: api_client.ask("GET", "/v1/addresses/messages", key=greedy), work)
    assert statuses.keys() == {403, 429}


async def push_message(api_client: ApiClient, number: int, secret: str) -> Reply:
    """Push a message as Pub/Sub does."""
    message = {"data": b64encode(json.dumps(create_update(number)).encode()).decode(), "messageId": str(number)}
    path = f"/v1/addresses/events/{Topic.CREATE_UPDATE}?token={secret}"
    return await api_client.ask("POST", path, json={"message": message})

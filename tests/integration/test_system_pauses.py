"""A system that is paused begins nothing until it is resumed; who paused it and why is said where work is refused."""

from __future__ import annotations

from typing import Any

import pytest

from domain.addresses import names as address_names
from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.orders import names as order_names
from domain.orders.activity_models import PlatformAndCycleRunFlags
from sims.platforms.scenario import PlatformScenario
from tests.support.addresses import Addresses
from tests.support.api import ApiClient
from tests.support.command import start_command, wait_for_exit
from tests.support.downloads import Downloads
from tests.support.orders import NUMBER, Orders, set_up_platform
from tests.support.tasks import Tasks
from tests.support.waiting import eventually
from workflows.orders.cycle import OrderCycleWorkflow
from workflows.orders.handle import build_search_attributes

pytestmark = pytest.mark.stack

SIGNED = {"who": "ann", "reason": "the database is being moved"}


async def steer(api_client: ApiClient, system: str, verb: str) -> dict[str, Any]:
    """Pause or resume a system; return what the API says of it."""
    reply = await api_client.as_admin("POST", f"/v1/systems/{system}/{verb}", json=SIGNED)
    assert reply.status == 200, reply.body
    shown: dict[str, Any] = reply.body
    return shown


async def test_requests_for_a_paused_system_are_refused_with_who_and_why(downloads: Downloads) -> None:
    """A download is taken again after the resume; the audit log has both actions, and the overview the pause."""
    api_client, body = downloads.api_client, {"source_url": downloads.source.url(rows=10, seed=1)}

    paused = await steer(api_client, "downloads", "pause")
    refused = await api_client.ask("POST", "/v1/downloads", key=downloads.key, json=body)
    overview = (await api_client.as_admin("GET", "/v1/overview")).body
    resumed = await steer(api_client, "downloads", "resume")
    taken = await api_client.ask("POST", "/v1/downloads", key=downloads.key, json=body)

    assert (paused["paused"]["who"], paused["paused"]["reason"]) == ("ann", SIGNED["reason"])
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (503, "system_paused", "1")
    assert "by ann: the database is being moved." in refused.body["detail"]
    [shown] = [each for each in overview["systems"] if each["system"] == "downloads"]
    [concern] = [each for each in shown["concerns"] if each["kind"] == "system_paused"]
    assert (concern["count"], concern["largest_groups"][0]["cause"]) == (1, f"ann: {SIGNED['reason']}")
    assert shown["paused"]["who"] == "ann"
    assert (resumed["paused"], taken.status) == (None, 202)
    audit = (await api_client.as_admin("GET", "/v1/audit?limit=10")).body["items"]
    assert [each["action"].rpartition("/")[2] for each in audit if each["who"] == "ann"] == ["resume", "pause"]
    assert {each["reason"] for each in audit if each["who"] == "ann"} == {SIGNED["reason"]}


async def test_workers_get_no_task_while_tasks_are_paused(tasks: Tasks) -> None:
    """Tasks are created all the same, and given out after the resume."""
    await tasks.register()
    await steer(tasks.api_client, "tasks", "pause")
    task_id = await tasks.create(task_content="{}")

    held = await tasks.post("hold_task", task_type=tasks.type)
    await steer(tasks.api_client, "tasks", "resume")

    assert (held["code"], held["msg"], held["task_list"]) == (0, "SUCCESS", [])
    assert held["paused"].startswith("Tasks are paused since 20")
    assert held["paused"].endswith("by ann: the database is being moved.")
    assert [each["task_id"] for each in await tasks.hold(limit=1, wait=30)] == [task_id]


async def test_a_hold_says_who_paused_its_type_and_why(tasks: Tasks) -> None:
    """The overview does as well; after the resume nothing is said."""
    await tasks.register()
    steered = {"task_type": tasks.type, "who": "ben", "reason": "the workers are replaced"}
    await tasks.post("pause_task_type", **steered)
    held = await tasks.post("hold_task", task_type=tasks.type)

    async def find_concern() -> Any:
        overview = (await tasks.api_client.ask("GET", "/v1/overview", key=tasks.key)).body
        [shown] = [each for each in overview["systems"] if each["system"] == "tasks"]
        return shown["concerns"]

    [concern] = await eventually(find_concern)
    await tasks.post("resume_task_type", **steered)
    resumed = await tasks.post("hold_task", task_type=tasks.type)

    assert held["paused"].startswith(f"Tasks of the type {tasks.type!r} are paused since 20")
    assert held["paused"].endswith("by ben: the workers are replaced.")
    assert concern["largest_groups"][0]["cause"] == "ben: the workers are replaced"
    assert "paused" not in resumed


async def test_no_slice_is_claimed_while_orders_are_paused(orders: Orders) -> None:
    """A platform that runs claims nothing; a cycle of it begins with the resume, as with its own."""
    await set_up_platform(orders, PlatformScenario(orders=20, span_seconds=3_600))
    await steer(orders.api_client, "orders", "pause")
    schedule = orders.engine.get_schedule_handle(order_names.build_cycle_schedule_id(NUMBER))

    async def count_runs() -> int:
        return (await schedule.describe()).info.num_actions

    async def has_run_since(runs: int) -> bool:
        return await count_runs() > runs

    runs = await count_runs()
    await orders.ask("POST", f"/v1/platforms/{NUMBER}/resume", json=SIGNED)
    await eventually(lambda: has_run_since(runs))

    async def run_cycle(name: str) -> None:
        await orders.engine.execute_workflow(
            OrderCycleWorkflow.run,
            PlatformAndCycleRunFlags(platform=NUMBER, heeds_pause=True),
            id=f"{order_names.build_cycle_schedule_id(NUMBER)}-{name}",
            task_queue=order_names.QUEUE,
            search_attributes=build_search_attributes(orders.project_id),
        )

    await run_cycle("paused")
    before, runs = (await orders.row()).claimed_to, await count_runs()
    await steer(orders.api_client, "orders", "resume")
    await eventually(lambda: has_run_since(runs))
    await run_cycle("resumed")

    assert before is None
    assert (await orders.row()).claimed_to is not None


async def test_no_cycle_begins_while_addresses_are_paused(addresses: Addresses) -> None:
    """Messages are received, and applied after the resume."""
    await steer(addresses.api_client, "addresses", "pause")
    message = await addresses.publish(Topic.CREATE_UPDATE, uprn=7, address_id=70, record={"street": "Main"})
    await addresses.resume()

    async def has_run() -> bool:
        query = f"WorkflowType = '{address_names.CYCLE_WORKFLOW}' AND ExecutionStatus = 'Completed'"
        return [each async for each in addresses.services.engine.list_workflows(query)] != []

    await eventually(has_run)
    before = addresses.states(Module.IM)
    await steer(addresses.api_client, "addresses", "resume")
    await addresses.resume()
    await addresses.wait_until_applied(message)

    assert before == {}
    assert addresses.states(Module.IM) == {7: (70, {"street": "Main"})}


@pytest.mark.long
async def test_systems_are_paused_from_the_command_line(api_client: ApiClient) -> None:
    """A list says which, by whom and why, and so does a command that waits; a system that there is not is refused."""
    key = api_client.settings.api.admin_key.get_secret_value()
    env = {"HAULAGE_API_URL": api_client.address, "HAULAGE_API_KEY": key}

    async def run(*arguments: str) -> tuple[int | None, str]:
        ended = await wait_for_exit(await start_command("systems", *arguments, env=env))
        return ended.code, ended.out

    paused = await run("pause", "transfers", "--reason", "GSE is upgraded", "--who", "ben")
    _, project_key = await api_client.make_project()
    sending = await start_command(
        *("transfers", "send", "app.conf", "--signature", "0" * 64, "--to", "host-1"),
        env={**env, "HAULAGE_API_KEY": project_key},
    )
    assert sending.stderr is not None
    waits = (await sending.stderr.readline()).decode()
    sending.kill()
    await sending.wait()
    listed = await run("list")
    unknown = await run("pause", "mail", "--reason", "GSE is upgraded")
    resumed = await run("resume", "transfers", "--reason", "GSE is back")

    assert waits.startswith("haulage: request_waits: for up to 60 s: Transfers are paused since 20")
    assert waits.endswith("by ben: GSE is upgraded. Send the request again later.\n")
    assert paused[0] == 0
    assert "by ben: GSE is upgraded" in paused[1]
    assert [line.split(":")[0] for line in listed[1].splitlines() if "paused" in line] == ["transfers"]
    assert (unknown[0], resumed) == (2, (0, "transfers: running\n"))

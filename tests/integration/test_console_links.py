"""The way back: who looks at a workflow in the engine's own pages finds the console's page of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, ScheduleActionStartWorkflow
from temporalio.worker import Replayer

import worker
from domain.addresses import names as addresses
from domain.orders import names as orders
from infra import housekeeping, temporal
from infra.database import Database
from infra.settings import Settings
from sims.platforms.dialects.plain import PLAIN
from sims.receiver import Receiver, running_receiver
from systems import SYSTEMS
from tests.support.api import ApiClient, running_api
from tests.support.downloads import FINAL
from tests.support.tasks import good
from tests.support.waiting import eventually
from tests.support.worker import running_worker
from workflows import systems

pytestmark = pytest.mark.stack

BASE = "https://haulage.example.com"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of callbacks."""
    async with running_receiver() as receiver:
        yield receiver


@pytest.fixture
async def api_client(settings: Settings, receiver: Receiver) -> AsyncIterator[ApiClient]:
    """API and worker of an installation that knows its public address."""
    allowed = [receiver.base.removeprefix("http://")]
    settings = settings.model_copy(
        update={
            "api": settings.api.model_copy(update={"public_base": BASE}),
            "guard": settings.guard.model_copy(update={"allow": allowed}),
        }
    )
    async with running_api(settings) as api_client, running_worker(settings):
        yield api_client


async def details(engine: Client, workflow_id: str) -> str | None:
    """What the engine's own page says of a workflow that was started."""
    return await (await engine.get_workflow_handle(workflow_id).describe()).static_details()


def build_link(page: str) -> str:
    """How it leads to a page."""
    return f"[Open in the console]({BASE}/console{page})"


@pytest.mark.long
async def test_what_clients_and_parents_start_leads_back(api_client: ApiClient, receiver: Receiver) -> None:
    """A download, the callback that it starts by itself, a transfer, a lane; and their histories replay without."""
    engine = await temporal.connect()
    project_id, key = await api_client.make_project()
    export = {"data": [{"a": 1}], "callback": receiver.url()}
    task_id = (await api_client.ask("POST", "/v1/downloads", key=key, json=export)).body["task_id"]
    file = {
        "biz_id": 2,
        "app_id": 7,
        "file_path": "/etc/app.conf",
        "file_name": "app.conf",
        "signature": "ab" * 32,
        "target_user": "root",
        "target_file_dir": "/data",
        "target_agent_id": "a",
    }
    job_id = (await api_client.ask("POST", "/v1/transfers", key=key, json=file)).body["job_id"]
    good((await api_client.ask("POST", "/v1/register_task_type", key=key, json={"task_type": "video"})).body)

    async def delivery() -> str:
        told = (await api_client.ask("GET", f"/v1/downloads/{task_id}/deliveries", key=key)).body["items"]
        return next((each["workflow_id"] for each in told if each["finished_at"]), "")

    callback_id = await eventually(delivery)
    download_id = (await api_client.ask("GET", f"/v1/downloads/{task_id}", key=key)).body["workflow_id"]
    assert await details(engine, download_id) == build_link(f"/downloads/{task_id}?project={project_id}")
    assert await details(engine, callback_id) == build_link(f"/downloads/{task_id}?project={project_id}")
    assert (await details(engine, job_id) or "").startswith(f"[Open in the console]({BASE}/console/transfers/jobs/")
    assert await details(engine, f"tasks/{project_id}/video/1") == build_link(
        f"/tasks/types/video?project={project_id}"
    )

    async def is_over() -> bool:
        return (await api_client.ask("GET", f"/v1/downloads/{task_id}", key=key)).body["state"] in FINAL

    await eventually(is_over)
    history = await engine.get_workflow_handle(download_id).fetch_history()
    await Replayer(workflows=worker.list_workflows(), plugins=[temporal.build_plugin()]).replay_workflow(history)


async def test_what_operators_start_leads_back(api_client: ApiClient, receiver: Receiver) -> None:
    """A platform's newest cycle, a purge, a comparison: their answers name the workflow, and that names the page."""
    engine = await temporal.connect()
    project_id, _ = await api_client.make_project()
    setup = {"project_id": project_id, "kind": "plain", "shop": "s", "base_url": receiver.base}
    path, capability = "/v1/platforms/shop-1", PLAIN.model_dump(mode="json")
    platform = await api_client.as_admin("PUT", path, json={**setup, "capability": capability})
    assert (platform.status, platform.body["workflow_id"]) == (200, None)
    assert (await api_client.as_admin("POST", f"{path}/trigger")).status == 202

    async def cycle() -> str:
        return str((await api_client.as_admin("GET", path)).body["workflow_id"] or "")

    assert await details(engine, await eventually(cycle)) == build_link("/orders/platforms/shop-1")
    named = {"address_ids": [7], "who": "me", "reason": "why not"}
    purge = (await api_client.as_admin("POST", "/v1/addresses/logical-deletes:purge", json=named)).body
    assert await details(engine, purge["workflow_id"]) == build_link(
        f"/addresses/logical-deletes/purges/{purge['purge_id']}"
    )
    comparison = (await api_client.as_admin("POST", "/v1/addresses/comparisons")).body
    assert await details(engine, comparison["workflow_id"]) == build_link(
        f"/addresses/comparisons/{comparison['comparison_id']}"
    )


@pytest.mark.long
async def test_what_schedules_start_leads_back(api_client: ApiClient, database: Database) -> None:
    """Those that are made, and those that were there before anybody had told the address."""
    silent, telling = await temporal.connect(), await temporal.connect(console=BASE)
    pages = {
        addresses.CYCLE_SCHEDULE: "/addresses",
        addresses.CHECK_SCHEDULE: "/addresses/logical-deletes",
        orders.WATCH: "/orders",
        **{housekeeping.build_schedule_id(system): "" for system in (*SYSTEMS, "webhooks")},
    }
    for engine, known in ((silent, False), (telling, True)):
        await systems.create_or_update_schedules(engine, database, api_client.settings)
        for name, page in pages.items():
            assert await read_details_of(silent, name) == (build_link(page) if known else None)
    for name in pages:
        await silent.get_schedule_handle(name).delete()


async def read_details_of(engine: Client, schedule: str) -> str | None:
    """The details that a schedule gives to its runs."""
    action = (await engine.get_schedule_handle(schedule).describe()).schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    raw = action.static_details
    if not isinstance(raw, Payload) or not raw.data:
        return None
    return engine.data_converter.payload_converter.from_payload(raw, str)

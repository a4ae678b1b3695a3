"""A Prometheus scrapes running processes: a planted fault of each family fires its alert, which ends with the fault."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from dev.local import list_api_names, list_worker_names
from domain.addresses.messages import Topic
from sims.platforms.scenario import PlatformFaults, PlatformScenario
from tests.support.caller import Caller, running_caller
from tests.support.deployment import PUSH_SECRET, SIGNED, Deployment
from tests.support.order_fleet import Fleet
from tests.support.prometheus import Prometheus, running_prometheus
from tests.support.requirements import PROMTOOL
from tests.support.waiting import eventually

FAILING = 24
"""More than the alerts of failed work bear within their time."""
SCRAPED_SECONDS = 3.0
"""After this a scrape has seen what was before."""

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]


@dataclass
class Scene:
    """A deployment, a project there, and what each fault needs to be mended."""

    deployment: Deployment
    caller: Caller
    prometheus: Prometheus
    asking: asyncio.Task[None] | None = None
    platforms: list[Any] = field(default_factory=list)

    async def post(self, path: str, body: Any, status: int) -> Any:
        """Repeat a request of the project until it is answered as it should be."""
        return await (await self.caller.call("POST", path, status, json=body)).json(content_type=None)

    async def fires(self, name: str, **labels: str) -> bool:
        """Return whether an alert with these labels fires."""
        wanted = {"alertname": name, **labels}.items()
        return any(wanted <= alert.items() for alert in await self.prometheus.list_firing())

    async def is_silent(self, name: str, **labels: str) -> bool:
        """Return whether no such alert fires."""
        return not await self.fires(name, **labels)


Step = Callable[[Scene], Coroutine[Any, Any, None]]


async def fail_downloads(scene: Scene) -> None:
    """Their source answers no JSON; projects have a quota of ten at a time.

    Until the alert fires: on a busy machine fewer than it takes may fail within its time.
    """
    url = f"{scene.deployment.source}/rows?rows=30&faults=not_json"

    async def fail_some() -> None:
        async with running_caller(scene.deployment) as caller:
            for task_id in [await caller.start(url, page_size=100) for _ in range(FAILING // 3)]:
                await caller.wait_for_end(task_id)

    while not await scene.fires("HaulageDownloadsFail"):
        await asyncio.gather(*(fail_some() for _ in range(3)))
        await asyncio.sleep(SCRAPED_SECONDS)


async def fail_transfers(scene: Scene) -> None:
    """Their file is not in the repository."""
    body = {
        "biz_id": 2,
        "app_id": 77,
        "file_path": "/etc/missing.conf",
        "file_name": "missing.conf",
        "signature": "0" * 64,
        "target_user": "root",
        "target_file_dir": "/data",
        "targets": [{"target_agent_id": f"alert-{number}"} for number in range(FAILING)],
    }
    await scene.post("/v1/transfers:batch", body, 202)


async def refuse_credentials(scene: Scene) -> None:
    """A platform refuses its account."""
    scenario = PlatformScenario(orders=20, span_seconds=3_600, faults=PlatformFaults(token_dead=True))
    fleet = Fleet(scene.deployment, scene.caller.project_id)
    scene.platforms.append(await fleet.begin("771", scenario))


async def accept_credentials(scene: Scene) -> None:
    """The platform accepts its account again."""
    [platform] = scene.platforms
    platform.set(platform.scenario.model_copy(update={"faults": PlatformFaults()}))
    await scene.deployment.as_admin("POST", "/v1/platforms/771/trigger")


async def push_unreadable(scene: Scene) -> None:
    """A message of addresses is no JSON."""
    envelope = {
        "message": {"messageId": "unreadable", "data": base64.b64encode(b"{").decode()},
        "subscription": "projects/p/subscriptions/s",
    }
    url = f"/v1/addresses/events/{Topic.CREATE_UPDATE}?token={PUSH_SECRET}"
    async with aiohttp.ClientSession(scene.deployment.api) as session, session.post(url, json=envelope) as answer:
        assert answer.status == 204, await answer.text()


async def discard_unreadable(scene: Scene) -> None:
    """An operator discards it."""
    listed = await scene.deployment.as_admin("GET", "/v1/addresses/quarantine")
    ids = [each["quarantine_id"] for each in listed["items"]]
    await scene.deployment.as_admin("POST", "/v1/addresses/quarantine:discard", json={"ids": ids, **SIGNED})


async def pause_tasks(scene: Scene) -> None:
    """A type of tasks is paused."""
    await scene.post("/v1/register_task_type", {"task_type_data": {"task_type": "alerts"}}, 200)
    await scene.post("/v1/pause_task_type", {"task_type": "alerts", **SIGNED}, 200)


async def resume_tasks(scene: Scene) -> None:
    """It is resumed."""
    await scene.post("/v1/resume_task_type", {"task_type": "alerts", **SIGNED}, 200)


async def fail_webhooks(scene: Scene) -> None:
    """A receiver takes no events any more: until the alert fires, as each worker's counter grows from its second on."""
    for number in itertools.count():
        if await scene.fires("HaulageWebhooksFail"):
            return
        callback = scene.deployment.receiver.url(tag=f"gone-{number}", answers="410")
        url = f"{scene.deployment.source}/rows?rows=10&seed={number}"
        task_id = await scene.caller.start(url, page_size=100, callback=callback)
        await scene.caller.wait_for_end(task_id)
        await eventually(partial(scene.deployment.receiver.list_received, f"gone-{number}"))
        await asyncio.sleep(SCRAPED_SECONDS)


async def ask_in_vain(scene: Scene) -> None:
    """A caller creates tasks of a type that there is not, again and again."""

    async def ask() -> None:
        while True:
            await scene.post("/v1/create_task", {"task_data": {"task_type": "none"}}, 200)
            await asyncio.sleep(0.1)

    scene.asking = asyncio.create_task(ask())


async def stop_asking(scene: Scene) -> None:
    """It gives up."""
    if scene.asking is not None:
        scene.asking.cancel()
        with suppress(asyncio.CancelledError):
            await scene.asking


async def do_nothing(_: Scene) -> None:
    """Wait: an alert of a growing number ends when it grows no more."""


async def set_read_only(scene: Scene, *, read_only: bool) -> None:
    """Have the database of the processes take writes, or not, and end all sessions that know it otherwise."""
    url = scene.deployment.settings.database.url.get_secret_value().replace("+asyncpg", "")
    base, _, name = url.rpartition("/")
    connection = await asyncpg.connect(f"{base}/postgres")
    try:
        await connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {read_only}')
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND pid <> pg_backend_pid()",
            name,
        )
    finally:
        await connection.close()


@dataclass(frozen=True)
class Fault:
    """A planted fault, the alert that it fires, and how it is mended."""

    alert: str
    labels: dict[str, str]
    plant: Step
    mend: Step


FAULTS = {
    "downloads": Fault("HaulageDownloadsFail", {}, fail_downloads, do_nothing),
    "transfers": Fault("HaulageTransfersFail", {}, fail_transfers, do_nothing),
    "orders": Fault("HaulageOrdersCredentialsRefused", {"platform": "771"}, refuse_credentials, accept_credentials),
    "addresses": Fault("HaulageAddressesQuarantined", {}, push_unreadable, discard_unreadable),
    "tasks": Fault("HaulageTasksPaused", {}, pause_tasks, resume_tasks),
    "webhooks": Fault("HaulageWebhooksFail", {}, fail_webhooks, do_nothing),
    "refusals": Fault("HaulageRefusals", {"code": "task_type_unknown"}, ask_in_vain, stop_asking),
}
"""By family; those of components and workers are below, as nothing else can happen meanwhile."""


@pytest.fixture
async def scene(deployment: Deployment, tmp_path: Path) -> AsyncIterator[Scene]:
    """Return the deployment, and a Prometheus that scrapes all of its processes."""
    PROMTOOL.require()
    program = shutil.which("prometheus") or PROMTOOL.miss()
    addresses = deployment.installation.stack.addresses
    jobs = {
        "haulage-api": [addresses[name].removeprefix("http://") for name in list_api_names()],
        "haulage-worker": [addresses[name].removeprefix("http://") for name in list_worker_names()],
    }
    async with running_prometheus(program, tmp_path, jobs) as prometheus, running_caller(deployment) as caller:

        async def are_up() -> bool:
            targets = await prometheus.list_targets()
            return set(targets.values()) == {"up"}

        await eventually(are_up)
        scene = Scene(deployment, caller, prometheus)
        yield scene
        await stop_asking(scene)


async def test_a_fault_of_each_system_fires_its_alert_and_the_alert_ends(scene: Scene) -> None:
    """Of every system, of webhooks, and of requests that are refused; none fires before."""
    for fault in FAULTS.values():
        # Workers still show what a test before left, until they look at it again.
        await eventually(partial(scene.is_silent, fault.alert, **fault.labels))
    missing = set(FAULTS)

    async def have_fired() -> bool:
        missing.difference_update(
            [name for name in missing if await scene.fires(FAULTS[name].alert, **FAULTS[name].labels)]
        )
        assert missing == set()
        return True

    async with asyncio.TaskGroup() as group:
        # While others are still being planted: what grows no more ends by itself.
        group.create_task(eventually(have_fired))
        for fault in FAULTS.values():
            group.create_task(fault.plant(scene))

    for fault in FAULTS.values():
        await fault.mend(scene)
    for fault in FAULTS.values():
        await eventually(partial(scene.is_silent, fault.alert, **fault.labels))


@asynccontextmanager
async def hanging(scene: Scene, name: str) -> AsyncIterator[None]:
    """Stop a process as long as the block lasts."""
    pid = scene.deployment.pids[name]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def read_only_database(scene: Scene, _: str) -> AsyncIterator[None]:
    """Let the database take no writes as long as the block lasts."""
    await set_read_only(scene, read_only=True)
    try:
        yield
    finally:
        await set_read_only(scene, read_only=False)


@pytest.mark.parametrize(
    ("plant", "name", "alert", "labels"),
    [
        pytest.param(hanging, "worker-1", "HaulageWorkerDown", {}, id="worker"),
        pytest.param(hanging, "engine", "HaulageComponentDown", {"component": "engine"}, id="engine"),
        pytest.param(hanging, "store", "HaulageComponentDown", {"component": "bucket"}, id="store"),
        pytest.param(read_only_database, "", "HaulageComponentDown", {"component": "database"}, id="database"),
    ],
)
async def test_a_fault_of_a_part_fires_its_alert_and_the_alert_ends(
    scene: Scene, plant: Any, name: str, alert: str, labels: dict[str, str]
) -> None:
    """A worker and components that hang, and a database that takes no writes."""
    # A test before may have killed the part, and a busy process may once be late for a scrape.
    await eventually(partial(scene.is_silent, alert, **labels))
    async with plant(scene, name):
        await eventually(lambda: scene.fires(alert, **labels))
    await eventually(partial(scene.is_silent, alert, **labels))

"""API and worker processes on this test process' stack, and all stand-ins that they may reach: for tests that kill.

`haulage up` starts the same processes. They are started once in a test process and shared by its tests, and so are
settings that let little work be enough: short windows, small steps, books of few rows. What only one test needs
starts them anew (`@pytest.mark.deployment`, which says why).
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import asyncpg
from pydantic import SecretStr
from temporalio.client import Client

from dev.embedded.components import NAMESPACE
from dev.embedded.stack import EmbeddedStack
from dev.local import LocalInstallation, run_installation_on_stack
from domain.addresses.messages import Topic
from infra import temporal
from infra.address_settings import AddressSettings
from infra.settings import Settings
from sims.gse.disks import HostDisks
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from sims.oss import scenario as oss_scenarios
from sims.oss.server import Oss, running_oss
from sims.platforms.server import Platforms, running_platforms
from sims.pubsub import scenario as pubsub_scenarios
from sims.pubsub.broker import Broker
from sims.pubsub.server import PubSubSim, running_pubsub
from sims.receiver import Receiver, running_receiver
from tests.support import modules, pubsub, transfers
from tests.support.pubsub import Publisher
from tests.support.stack import own_database, register_namespace
from tests.support.waiting import eventually
from tests.support.webhooks import with_receiver

PATIENCE_SECONDS = 300.0
PUSH_SECRET = "a-secret-of-sixteen-or-more"
WINDOW_SECONDS = 3
ACK_DEADLINE_SECONDS = 2
BOOK_MAX_ROWS = 12_000
SIGNED = {"who": "tests", "reason": "another test begins"}
IDLE = pubsub_scenarios.Scenario(wait_seconds=20)
"""Pulls of a subscription without messages return late, so that tests of other systems are not disturbed."""

Changes: TypeAlias = Mapping[str, Mapping[str, Any]]
RunProcesses: TypeAlias = Callable[[EmbeddedStack, Settings, str], AbstractAsyncContextManager[LocalInstallation]]


@dataclass(frozen=True)
class Deployment:
    """Where the processes and the stand-ins are reached."""

    installation: LocalInstallation
    namespace: str
    session: aiohttp.ClientSession
    """Sends the admin key."""
    platforms: Platforms
    world: GseWorld
    disks: HostDisks
    oss: Oss
    pubsub: PubSubSim
    publisher: Publisher
    receiver: Receiver

    @property
    def api(self) -> str:
        """The base address of the API."""
        return self.installation.api

    @property
    def source(self) -> str:
        """The base address of the sample source, a process that is never killed."""
        return self.installation.source

    @property
    def settings(self) -> Settings:
        """The settings of all processes."""
        return self.installation.settings

    @property
    def data_dir(self) -> Path:
        """The folder of everything that the parts and processes keep, logs included."""
        return self.installation.stack.data_dir

    @property
    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        return self.installation.stack.list_pids()

    def kill(self, name: str) -> None:
        """SIGKILL a part or a process; it is started again under the same address."""
        self.installation.stack.kill_and_let_restart(name)

    async def ready(self, name: str) -> None:
        """Wait until a part or process serves."""
        await self.installation.stack.wait_until_ready(name)

    async def engine(self) -> Client:
        """Connect to Temporal, in the namespace of the processes."""
        return await temporal.connect(self.installation.stack.build_environment(self.settings, self.namespace))

    async def connect_database(self) -> asyncpg.Connection[asyncpg.Record]:
        """Open a connection to the database of the processes."""
        return await asyncpg.connect(self.settings.database.url.get_secret_value().replace("+asyncpg", ""))

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Return the rows of a query."""
        connection = await self.connect_database()
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def as_admin(self, method: str, path: str, **options: Any) -> Any:
        """Send a request with the admin key until it succeeds: while parts are down, it cannot."""

        async def request_once() -> Any:
            try:
                async with self.session.request(method, self.api + path, **options) as answer:
                    assert answer.status < 300, await answer.text()
                    return await answer.json() or True
            except aiohttp.ClientError as error:
                raise AssertionError(str(error)) from error

        return await eventually(request_once, PATIENCE_SECONDS)

    async def rest(self) -> None:
        """Leave nothing of a test that goes on or alarms: address cycles and quarantine, pulls, platforms, faults."""
        self.oss.set(oss_scenarios.OssScenario())
        self.world.set(transfers.QUICK)
        self.pubsub.broker.scenario = IDLE
        await self.as_admin("POST", "/v1/addresses/cycle/pause", json=SIGNED)
        for number in self.platforms.by_number:
            await self.as_admin("POST", f"/v1/platforms/{number}/pause", json=SIGNED)
        self.platforms.by_number.clear()
        await self.fetch("DELETE FROM addr_sync_quarantine")


class Deployments:
    """Keep one deployment running: the one that the last test asked for.

    Args:
        stack: The parts below it.
        template: The name of the migrated database that each deployment gets a copy of.
    """

    def __init__(self, stack: EmbeddedStack, template: str) -> None:
        self._stack = stack
        self._template = template
        self._changes: Mapping[str, Mapping[str, Any]] = {}
        self._held = AsyncExitStack()
        self._running: Deployment | None = None

    async def get(self, changes: Mapping[str, Mapping[str, Any]]) -> Deployment:
        """Return the running deployment, after a restart if it has other settings."""
        if self._running is None or changes != self._changes:
            await self.close()
            self._running = await self._held.enter_async_context(
                running_deployment(self._stack, self._template, changes)
            )
            self._changes = changes
        return self._running

    async def close(self) -> None:
        """Stop the running deployment."""
        self._running = None
        await self._held.aclose()


@dataclass(frozen=True)
class OutsideSystems:
    """All stand-ins for outside systems, which know nothing of the deployment that calls them."""

    folder: Path
    """The disks of hosts, and the credentials with which a deployment calls the others."""
    platforms: Platforms
    world: GseWorld
    disks: HostDisks
    gse: str
    oss: Oss
    pubsub: PubSubSim
    publisher: Publisher
    receiver: Receiver


@asynccontextmanager
async def running_outside_systems() -> AsyncIterator[OutsideSystems]:
    """Start all stand-ins."""
    async with AsyncExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="haulage-deployment-")))
        (folder / "credentials").mkdir()
        disks = HostDisks(folder / "hosts", links=True)
        world = GseWorld(transfers.QUICK, disks)
        sim = await held.enter_async_context(running_pubsub(Broker(IDLE)))
        outside = OutsideSystems(
            folder=folder,
            platforms=await held.enter_async_context(running_platforms()),
            world=world,
            disks=disks,
            gse=await held.enter_async_context(running_gse(world)),
            oss=await held.enter_async_context(running_oss(folder)),
            pubsub=sim,
            publisher=await held.enter_async_context(pubsub.publisher(sim.base)),
            receiver=await held.enter_async_context(running_receiver()),
        )
        await _subscribe(outside.publisher)
        yield outside


@asynccontextmanager
async def running_deployment(
    stack: EmbeddedStack, template: str, changes: Changes, run: RunProcesses = run_installation_on_stack
) -> AsyncIterator[Deployment]:
    """Start stand-ins and processes in a namespace, a database and a key prefix of their own.

    Args:
        changes: By section, settings that replace those below.
        run: Runs the processes, with these settings and in this namespace.
    """
    async with own_database(stack, template) as database_url, running_outside_systems() as outside:
        own: Changes = {
            "database": {"url": SecretStr(database_url)},
            "objects": {"prefix": f"{secrets.token_hex(6)}/"},
        }
        namespace = await register_namespace(stack)
        async with running_processes(stack, outside, {**own, **changes}, namespace, run) as deployment:
            yield deployment


@asynccontextmanager
async def running_processes(
    stack: EmbeddedStack,
    outside: OutsideSystems,
    changes: Changes,
    namespace: str = NAMESPACE,
    run: RunProcesses = run_installation_on_stack,
) -> AsyncIterator[Deployment]:
    """Start processes that work with running stand-ins.

    Args:
        changes: By section, settings that replace those below.
        run: Runs the processes, with these settings and in this namespace.
    """
    settings = with_receiver(_settings(stack, outside.folder), outside.receiver)
    settings = transfers.with_gse(settings, outside.gse, outside.folder, window_seconds=WINDOW_SECONDS)
    settings = _with_orders(settings, outside.platforms, outside.folder)
    settings = _with_addresses(settings, outside.oss, outside.pubsub, outside.folder)
    settings = settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=dict(each)) for name, each in changes.items()}
    )
    async with run(stack, settings, namespace) as installation:
        headers = {"Authorization": f"Bearer {installation.admin_key}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            yield Deployment(
                installation,
                namespace,
                session,
                outside.platforms,
                outside.world,
                outside.disks,
                outside.oss,
                outside.pubsub,
                outside.publisher,
                outside.receiver,
            )


def _settings(stack: EmbeddedStack, folder: Path) -> Settings:
    tree = stack.build_settings()
    small_books = {"excel_file_max_rows": BOOK_MAX_ROWS}
    return tree.model_copy(
        update={
            "data_dir": folder,
            "downloads": tree.downloads.model_copy(update=small_books),
        }
    )


def _with_orders(settings: Settings, platforms: Platforms, folder: Path) -> Settings:
    allow = [*settings.guard.allow, platforms.base.removeprefix("http://")]
    orders = {"credentials_folder": folder / "credentials"}
    return settings.model_copy(
        update={
            "guard": settings.guard.model_copy(update={"allow": allow}),
            "orders": settings.orders.model_copy(update=orders),
        }
    )


def _with_addresses(settings: Settings, oss: Oss, sim: PubSubSim, folder: Path) -> Settings:
    """Small steps and short pauses, so that a kill finds work under way; pushed and pulled messages are taken."""
    quick = {"group_messages_max": 10, "threshold": 100, "pause_seconds": 1.0, "failed_cycles_max": 1_000}
    called = modules.module_settings(oss.base, folder, retry_pause_seconds=0.2, breaker_failures=10)
    push = called.push.model_copy(update={"secret": SecretStr(PUSH_SECRET)})
    addresses = called.model_copy(update={**quick, "push": push})
    pulling = pubsub.with_pubsub(settings.model_copy(update={"addresses": addresses}), sim.base, pull_max=7)
    return settings.model_copy(update={"addresses": pulling})


async def _subscribe(publisher: Publisher) -> None:
    names = AddressSettings().pubsub.subscriptions
    for topic, name in zip(Topic, (names.swap, names.create_update, names.delete), strict=True):
        await publisher.subscribe(topic, name, ackDeadlineSeconds=ACK_DEADLINE_SECONDS)


def write_credentials(deployment: Deployment, name: str, content: Mapping[str, Any]) -> None:
    """Lay down the credentials of a platform."""
    (deployment.settings.orders.credentials_folder / f"{name}.json").write_text(json.dumps(content))

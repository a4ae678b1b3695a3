"""The installation behind the console in tests: API and worker over embedded components, and every stand-in."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from dev.embedded.ports import reserve_ports
from dev.embedded.stack import EmbeddedStack
from infra.settings import Settings
from services.services import Services
from sims.gse.disks import HostDisks
from sims.gse.server import running_gse
from sims.gse.world import GseWorld
from sims.oss.server import Oss, running_oss
from sims.platforms.server import Platforms, running_platforms
from sims.receiver import Receiver, running_receiver
from sims.source import Source, running_source
from tests.support import modules as module_peers
from tests.support import orders, stack, transfers
from tests.support.api import ApiClient, running_api
from tests.support.downloads import Downloads
from tests.support.orders import Orders
from tests.support.tasks import Tasks
from tests.support.transfers import Transfers
from tests.support.worker import RunningWorker, running_worker

UI = "http://temporal.example.com"


@dataclass(frozen=True)
class Project:
    """A tenant of the test's own."""

    project_id: str
    key: str
    name: str


@dataclass(frozen=True)
class Console:
    """Everything that runs, and each system's own helper for it."""

    api_client: ApiClient
    worker: RunningWorker
    source: Source
    receiver: Receiver
    platforms: Platforms
    world: GseWorld
    disks: HostDisks
    oss: Oss

    @property
    def address(self) -> str:
        """Where the API serves; pages are at `/console` below it."""
        return self.api_client.address

    @property
    def admin_key(self) -> str:
        """The key that sees all projects."""
        return self.api_client.settings.api.admin_key.get_secret_value()

    @property
    def services(self) -> Services:
        """The worker's clients, e.g. `services.database`."""
        return self.worker.services

    async def make_project(self, name: str = "") -> Project:
        """Another tenant."""
        name = name or f"project-{secrets.token_hex(4)}"
        project_id, key = await self.api_client.make_project(name)
        return Project(project_id, key, name)

    def exports(self, project: Project) -> Downloads:
        """Downloads of a project."""
        return Downloads(self.api_client, self.source, self.services, project.project_id, project.key, self.worker)

    def transfers(self, project: Project) -> Transfers:
        """Transfers of a project; put a file into the store before it is asked for."""
        return Transfers(self.api_client, self.world, self.disks, self.worker, project.project_id, project.key)

    def orders(self, project: Project) -> Orders:
        """Orders of platforms: all projects share these, so a test gives its own a name of its own."""
        return Orders(self.api_client, self.platforms, self.services, project.project_id, project.key)

    def tasks(self, project: Project, task_type: str = "video") -> Tasks:
        """Tasks of a project."""
        return Tasks(self.api_client, project.key, self.worker, project.project_id, task_type)


@asynccontextmanager
async def running(parts: EmbeddedStack, template: str, folder: Path) -> AsyncIterator[Console]:
    """Start API, worker and stand-ins over these parts."""
    async with AsyncExitStack() as held:
        database_url = await held.enter_async_context(stack.own_database(parts, template))
        source = await held.enter_async_context(running_source())
        receiver = await held.enter_async_context(running_receiver())
        disks = HostDisks(folder / "hosts", links=True)
        world = GseWorld(transfers.QUICK, disks)
        gse = await held.enter_async_context(running_gse(world))
        platforms = await held.enter_async_context(running_platforms())
        oss = await held.enter_async_context(running_oss(folder))
        port = held.enter_context(reserve_ports({})).reserve("api")
        settings = _settings(parts, database_url, folder, port)
        settings = transfers.with_gse(settings, gse, folder)
        settings = orders.with_platforms(settings, platforms.base, own_address=f"http://127.0.0.1:{port}")
        settings = _opened_to(settings, [source.base, receiver.base], oss, folder)
        with pytest.MonkeyPatch.context() as patch:
            # Only while clients connect: other tests of this process have namespaces of their own.
            await _own_namespace(parts, patch)
            api_client = await held.enter_async_context(running_api(settings, port=port))
            worker = await held.enter_async_context(running_worker(api_client.settings))
        yield Console(api_client, worker, source, receiver, platforms, world, disks, oss)


async def _own_namespace(parts: EmbeddedStack, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("TEMPORAL_ADDRESS", parts.addresses["engine"])
    patch.setenv("TEMPORAL_NAMESPACE", await stack.register_namespace(parts))


def _settings(parts: EmbeddedStack, database_url: str, folder: Path, port: int) -> Settings:
    tree = parts.build_settings()
    return tree.model_copy(
        update={
            "data_dir": folder,
            "api": tree.api.model_copy(update={"port": port}),
            "database": tree.database.model_copy(update={"url": SecretStr(database_url)}),
            "engine": tree.engine.model_copy(update={"ui_url": UI}),
            "objects": tree.objects.model_copy(update={"prefix": f"{secrets.token_hex(6)}/"}),
        }
    )


def _opened_to(settings: Settings, bases: Sequence[str], oss: Oss, folder: Path) -> Settings:
    allow = [*settings.guard.allow, *(base.removeprefix("http://") for base in bases)]
    quick = {"retry_pause_seconds": 0.01, "rerun_pause_seconds": 0.01}
    return settings.model_copy(
        update={
            "guard": settings.guard.model_copy(update={"allow": allow}),
            "downloads": settings.downloads.model_copy(update=quick),
            "addresses": module_peers.module_settings(oss.base, folder, batch=500, retries=0),
        }
    )

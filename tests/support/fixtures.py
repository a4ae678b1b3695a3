# ruff: noqa: PLC0415 - a unit test must not pay for drivers that it does not use
"""The fixtures that every test may ask for; README.md lists them.

One stack (engine, database, object store) in a test process; each test has a namespace, a database and a key prefix of
its own on it. Systems and stand-ins run in the test process, unless the test kills: see `deployment.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import SecretStr

from dev.embedded.stack import EmbeddedStack, run_stack
from infra.settings import Settings
from tests.support import stack as parts
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from infra.database import Database
    from infra.objects import ObjectStore
    from sims.oss.server import Oss
    from sims.platforms.server import Platforms
    from sims.pubsub.server import PubSubSim
    from sims.receiver import Receiver
    from sims.source import Source
    from tests.support.address_world import CycleHarness
    from tests.support.addresses import Addresses
    from tests.support.api import ApiClient
    from tests.support.downloads import Downloads
    from tests.support.gse import Gse
    from tests.support.orders import Orders
    from tests.support.tasks import Tasks
    from tests.support.transfers import Transfers
    from tests.support.webhooks import Webhooks
    from tests.support.worker import RunningWorker


@pytest.fixture(scope="session")
async def stack() -> AsyncIterator[EmbeddedStack]:
    """Engine, database and object store in a temporary folder; neither API nor workers."""
    from infra import database
    from infra.limits import limiter

    folder = Path(tempfile.mkdtemp(prefix="haulage-test-"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            # API, worker and stand-ins are one process here, and what holds up one of them holds up all.
            patch.setattr(limiter, "HELD_UP_SECONDS", PATIENCE_SECONDS)
            patch.setattr(database, "IDLE_TIMEOUT_SECONDS", 2 * PATIENCE_SECONDS)
            async with run_stack(folder, ui=False, for_tests=True, ports=parts.ANY_PORTS) as running:
                yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
async def template(stack: EmbeddedStack) -> str:
    """The name of a database that carries all migrations."""
    from stores import migrate

    await parts.administer(stack, "CREATE DATABASE template_migrated TEMPLATE template0")
    await migrate.migrate(stack.build_database_url("template_migrated"))
    return "template_migrated"


@pytest.fixture(scope="session")
async def databases(stack: EmbeddedStack, template: str) -> AsyncIterator[parts.Databases]:
    """Copies of `template` that tests have one after the other; ask for `database_url`."""
    lent = parts.Databases(stack, template)
    yield lent
    await lent.close()


@pytest.fixture(scope="session")
def namespaces(stack: EmbeddedStack) -> parts.Namespaces:
    """What `namespace` is taken from; `namespaces.keeping_engine()` is for what outlives a test."""
    return parts.Namespaces(stack)


@pytest.fixture
async def namespace(stack: EmbeddedStack, namespaces: parts.Namespaces) -> AsyncIterator[str]:
    """A Temporal namespace of the test's own; the `TEMPORAL_…` variables lead to it."""
    async with parts.entered_namespace(stack, namespaces) as name:
        yield name


@pytest.fixture
async def database_url(databases: parts.Databases) -> AsyncIterator[str]:
    """The address of a migrated database of the test's own."""
    async with databases.lend() as url:
        yield url


@pytest.fixture
async def empty_database_url(stack: EmbeddedStack) -> AsyncIterator[str]:
    """The address of a database of the test's own without any table."""
    async with parts.own_database(stack) as url:
        yield url


@pytest.fixture
async def world(stack: EmbeddedStack, database_url: str) -> AsyncIterator[CycleHarness]:
    """An empty log of address messages, and four empty modules in plain Python."""
    from tests.support.address_world import CycleHarness

    world = CycleHarness(stack.build_settings().database.model_copy(update={"url": SecretStr(database_url)}))
    await world.begin()
    yield world
    await world.database.close()


@pytest.fixture
def prefix() -> str:
    """The test's own place in the bucket."""
    return parts.new_prefix()


@pytest.fixture
def settings(stack: EmbeddedStack, namespace: str, database_url: str, prefix: str, tmp_path: Path) -> Settings:
    """The whole tree, leading to the test's own namespace, database and key prefix."""
    return parts.own_settings(stack, database_url, prefix, tmp_path)


@pytest.fixture(scope="module")
async def shared_settings(
    stack: EmbeddedStack,
    namespaces: parts.Namespaces,
    databases: parts.Databases,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Settings]:
    """As `settings`, but the same for all tests of a file: for tests that keep to a project of their own."""
    async with parts.entered_namespace(stack, namespaces), databases.lend() as url:
        yield parts.own_settings(stack, url, parts.new_prefix(), tmp_path_factory.mktemp("shared"))


@pytest.fixture
def environment(stack: EmbeddedStack, settings: Settings, namespace: str) -> dict[str, str]:
    """What `settings` says, as the variables that API and worker processes are started with."""
    return {**os.environ, **stack.build_environment(settings, namespace)}


@pytest.fixture
async def database(stack: EmbeddedStack, database_url: str) -> AsyncIterator[Database]:
    """The test's own database, migrated and empty."""
    from infra.database import Database

    settings = stack.build_settings().database.model_copy(update={"url": SecretStr(database_url)})
    database = Database(settings)
    yield database
    await database.close()


@pytest.fixture
async def objects(stack: EmbeddedStack, prefix: str) -> AsyncIterator[ObjectStore]:
    """The object store below the test's own prefix."""
    from infra.objects import ObjectStore

    store = ObjectStore(stack.build_settings().objects.model_copy(update={"prefix": prefix}))
    yield store
    await store.close()


@pytest.fixture
async def api_client(settings: Settings) -> AsyncIterator[ApiClient]:
    """A client of the whole API, which runs in this process."""
    from tests.support.api import running_api

    async with running_api(settings) as client:
        yield client


@pytest.fixture(scope="module")
async def shared_api_client(shared_settings: Settings) -> AsyncIterator[ApiClient]:
    """As `api_client`, but the same for all tests of a file: they begin with `make_project()`."""
    from tests.support.api import running_api

    async with running_api(shared_settings) as client:
        yield client


@pytest.fixture
async def worker(settings: Settings) -> AsyncIterator[RunningWorker]:
    """A worker of all task queues, in this process."""
    from tests.support.worker import running_worker

    async with running_worker(settings) as running:
        yield running


@pytest.fixture
async def downloads(settings: Settings, source: Source) -> AsyncIterator[Downloads]:
    """API, worker and a source of rows; a project that asks for downloads."""
    from tests.support.downloads import running_downloads

    async with running_downloads(settings, source=source) as running:
        yield running


@pytest.fixture(scope="module")
async def downloads_of_file(shared_settings: Settings) -> AsyncIterator[Downloads]:
    """Behind `shared_downloads`: what its tests share."""
    from tests.support.downloads import running_downloads

    async with running_downloads(shared_settings) as running:
        yield running


@pytest.fixture
async def shared_downloads(downloads_of_file: Downloads) -> AsyncIterator[Downloads]:
    """As `downloads`, but the same for all tests of a file, each with a project of its own."""
    async with downloads_of_file.lend() as lent:
        yield lent


@pytest.fixture
async def transfers(settings: Settings, gse: Gse) -> AsyncIterator[Transfers]:
    """API, worker and a GSE with hosts; a project that asks for transfers."""
    from tests.support.transfers import running_transfers

    async with running_transfers(settings, gse=gse) as running:
        yield running


@pytest.fixture
async def orders(settings: Settings, platforms: Platforms) -> AsyncIterator[Orders]:
    """API, worker and order platforms; a project whose orders are fetched."""
    from tests.support.orders import running_orders

    async with running_orders(settings, platforms=platforms) as running:
        yield running


@pytest.fixture
async def addresses(settings: Settings, tmp_path: Path, modules: Oss) -> AsyncIterator[Addresses]:
    """API, worker and the four modules; messages that change addresses."""
    from tests.support.addresses import running_addresses

    async with running_addresses(settings, tmp_path, modules=modules) as running:
        yield running


@pytest.fixture
async def tasks(settings: Settings) -> AsyncIterator[Tasks]:
    """API and worker; a project with a type of tasks."""
    from tests.support.tasks import running_tasks

    async with running_tasks(settings) as running:
        yield running


@pytest.fixture(scope="module")
async def tasks_of_file(shared_settings: Settings) -> AsyncIterator[Tasks]:
    """Behind `shared_tasks`: what its tests share."""
    from tests.support.tasks import running_tasks

    async with running_tasks(shared_settings) as running:
        yield running


@pytest.fixture
async def shared_tasks(tasks_of_file: Tasks) -> Tasks:
    """As `tasks`, but the same for all tests of a file, each with a project of its own."""
    return await tasks_of_file.for_another_project()


@pytest.fixture
async def webhooks(settings: Settings, receiver: Receiver) -> AsyncIterator[Webhooks]:
    """API, worker and a receiver; a project whose events are delivered."""
    from tests.support.webhooks import running_webhooks

    async with running_webhooks(settings, receiver=receiver) as running:
        yield running


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    """A source of rows that downloads read."""
    from sims.source import running_source

    async with running_source() as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of webhooks."""
    from sims.receiver import running_receiver

    async with running_receiver() as running:
        yield running


@pytest.fixture
async def gse(tmp_path: Path) -> AsyncIterator[Gse]:
    """A GSE with hosts whose disks are folders: `gse.base` is its address, `gse.world.set` changes what goes wrong."""
    from tests.support.gse import running_hosts

    async with running_hosts(tmp_path / "hosts") as running:
        yield running


@pytest.fixture
async def platforms() -> AsyncIterator[Platforms]:
    """Order platforms; `platforms.add` begins one."""
    from sims.platforms.server import running_platforms

    async with running_platforms() as running:
        yield running


@pytest.fixture
async def modules(tmp_path: Path) -> AsyncIterator[Oss]:
    """The four modules that keep addresses."""
    from sims.oss.server import running_oss

    async with running_oss(tmp_path) as running:
        yield running


@pytest.fixture
async def pubsub() -> AsyncIterator[PubSubSim]:
    """A Pub/Sub without topics."""
    from sims.pubsub.broker import Broker
    from sims.pubsub.server import running_pubsub

    async with running_pubsub(Broker()) as running:
        yield running

# ruff: noqa: PLC0415 - a unit test must not pay for drivers that it does not use
"""Fixtures: one embedded stack a session, and for each test a namespace, a database and a key prefix of its own."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from pydantic import SecretStr
from temporalio.client import Client

from infra.embedded import Stack, embedded
from infra.settings import Settings
from tests import scheduling
from tests import stack as parts

if TYPE_CHECKING:
    from infra.database import Database
    from infra.objects import ObjectStore

# On a busy machine an example may take long without being wrong; a failing one prints how to run it again.
hypothesis.settings.register_profile(
    "house", deadline=None, print_blob=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("house")

SESSION = pytest.StashKey[pytest.Session]()


@pytest.fixture(scope="session")
async def stack() -> AsyncIterator[Stack]:
    """Engine, database and object store in a temporary folder; neither API nor workers."""
    from infra import database
    from infra.limits import limiter

    folder = Path(tempfile.mkdtemp(prefix="haulage-test-"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            # API, worker and stand-ins are one process here, and what holds up one of them holds up all.
            patch.setattr(limiter, "HELD_UP_SECONDS", parts.PATIENCE_SECONDS)
            patch.setattr(database, "IDLE_TIMEOUT_SECONDS", 2 * parts.PATIENCE_SECONDS)
            async with embedded(folder, ui=False, time_skipping=True, ports=parts.ANY_PORTS) as running:
                yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
async def template(stack: Stack) -> str:
    """The name of a database that carries all migrations."""
    from infra import migrate

    await parts.administer(stack, "CREATE DATABASE template_migrated TEMPLATE template0")
    await migrate.migrate(stack.database_url("template_migrated"))
    return "template_migrated"


@pytest.fixture
async def namespace(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> str:
    """A Temporal namespace of the test's own; the `TEMPORAL_…` variables lead to it."""
    from infra import temporal

    address = stack.addresses["engine"]
    name = await parts.register_namespace(await Client.connect(address))
    monkeypatch.setenv("TEMPORAL_ADDRESS", address)
    monkeypatch.setenv("TEMPORAL_NAMESPACE", name)
    await temporal.ensure_search_attributes(await Client.connect(address, namespace=name))
    return name


@pytest.fixture
async def database_url(stack: Stack, template: str) -> AsyncIterator[str]:
    """The address of a migrated database of the test's own."""
    async with parts.own_database(stack, template) as url:
        yield url


@pytest.fixture
async def empty_database_url(stack: Stack) -> AsyncIterator[str]:
    """The address of a database of the test's own without any table."""
    async with parts.own_database(stack) as url:
        yield url


@pytest.fixture
def prefix() -> str:
    """The test's own place in the bucket."""
    return f"{secrets.token_hex(6)}/"


@pytest.fixture
def settings(stack: Stack, namespace: str, database_url: str, prefix: str, tmp_path: Path) -> Settings:
    """The whole tree, leading to the test's own namespace, database and key prefix."""
    tree = stack.settings()
    return tree.model_copy(
        update={
            "data_dir": tmp_path,
            "database": tree.database.model_copy(update={"url": SecretStr(database_url)}),
            "objects": tree.objects.model_copy(update={"prefix": prefix}),
        }
    )


@pytest.fixture
def environment(stack: Stack, settings: Settings, namespace: str) -> dict[str, str]:
    """What `settings` says, as the variables that API and worker processes are started with."""
    return {**os.environ, **stack.environment(settings, namespace)}


@pytest.fixture
async def database(stack: Stack, database_url: str) -> AsyncIterator[Database]:
    """The test's own database, migrated and empty."""
    from infra.database import Database

    settings = stack.settings().database.model_copy(update={"url": SecretStr(database_url)})
    database = Database(settings)
    yield database
    await database.close()


@pytest.fixture
async def objects(stack: Stack, prefix: str) -> AsyncIterator[ObjectStore]:
    """The object store below the test's own prefix."""
    from infra.objects import ObjectStore

    store = ObjectStore(stack.settings().objects.model_copy(update={"prefix": prefix}))
    yield store
    await store.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, in whatever order the rest is."""
    items.sort(key=lambda item: not item.nodeid.startswith(scheduling.LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.OneHouseAtATime:
    """Give out files in that order, and all houses to one worker."""
    config.option.loadscopereorder = False
    return scheduling.OneHouseAtATime(config, log)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the session: its exit status is complete only after the last hook."""
    session.config.stash[SESSION] = session


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave at once: the interpreter may crash at exit once the Temporal client was used (sdk-python #300)."""
    session = config.stash.get(SESSION, None)
    if session is None or "temporalio.bridge.temporal_sdk_bridge" not in sys.modules:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(session.exitstatus)

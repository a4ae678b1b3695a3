"""What each test has of its own on the shared stack: a database and a Temporal namespace."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from google.protobuf.duration_pb2 import Duration
from pydantic import SecretStr
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from dev.embedded import components
from dev.embedded.stack import EmbeddedStack
from infra import temporal
from infra.component_settings import EmbeddedPortSettings
from infra.settings import Settings

ANY_PORTS = EmbeddedPortSettings(engine_port=0, ui_port=0, database_port=0, store_port=0)
RETENTION = timedelta(days=1)
NAMESPACES_AHEAD = 4
NAMESPACES_MAX = 50
"""With 120 the idle engine takes 2 % of a core, and to register one costs it 25 ms; with none 0.2 % and 8 ms."""
DELETED_MAX_BYTES = 256 * 1024
"""From small tables rows are deleted; to truncate makes new files for each and for all that refer to it."""


@asynccontextmanager
async def own_database(stack: EmbeddedStack, template: str | None = None) -> AsyncIterator[str]:
    """A database of one test's own: empty, or a clone of a template. Yields its address for SQLAlchemy."""
    name = f"test_{secrets.token_hex(6)}"
    await administer(stack, f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"')
    try:
        yield stack.build_database_url(name)
    finally:
        await administer(stack, f'DROP DATABASE "{name}" WITH (FORCE)')


class Databases:
    """Lend migrated databases, each to one test at a time, empty and without a session.

    To clone a database and to drop it costs more than most tests do. So what a test leaves behind is removed; a
    database whose tables were changed is dropped.

    Args:
        template: The name of the migrated database that they are clones of.
    """

    def __init__(self, stack: EmbeddedStack, template: str) -> None:
        self._stack = stack
        self._template = template
        self._held = AsyncExitStack()
        self._free: list[str] = []
        self._shape = self._revision = ""

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[str]:
        """Yield the address of a database of the borrower's own, for SQLAlchemy."""
        url = self._free.pop() if self._free else await self._clone()
        try:
            yield url
        finally:
            if await self._empty(url):
                self._free.append(url)

    async def close(self) -> None:
        """Drop them all."""
        await self._held.aclose()

    async def _clone(self) -> str:
        url = await self._held.enter_async_context(own_database(self._stack, self._template))
        if not self._shape:
            async with _connect(url) as connection:
                self._shape = await connection.fetchval(_SHAPE)
                self._revision = await connection.fetchval(_REVISION)
        return url

    async def _empty(self, url: str) -> bool:
        """Remove rows and sessions, begin sequences anew, and return whether nothing else was changed."""
        async with _connect(url) as connection:
            await connection.execute(_END_OTHER_SESSIONS)
            if await connection.fetchval(_SHAPE) != self._shape:
                return False
            if await connection.fetchval(_REVISION) != self._revision:
                return False
            written = await connection.fetch(_WRITTEN)
            if large := [name for name, size in written if size > DELETED_MAX_BYTES]:
                await connection.execute(f"TRUNCATE {', '.join(large)} CASCADE")
            deletes = [f"DELETE FROM {name}" for name, _ in written if name not in large]  # noqa: S608
            await connection.execute("; ".join(["SET session_replication_role = replica", *deletes]))
            await connection.execute(_RESTART_SEQUENCES)
        return True


_END_OTHER_SESSIONS = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_SHAPE = """
    SELECT md5(string_agg(part, ';' ORDER BY part)) FROM (
        SELECT concat_ws(',', oid, relname, relkind, relpersistence, reloptions) FROM pg_class
        WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace
        UNION ALL
        SELECT concat_ws(',', attrelid, attname, atttypid, atttypmod, attnotnull, atthasdef) FROM pg_attribute
        WHERE attrelid >= 16384 AND attnum > 0
        UNION ALL
        SELECT concat_ws(',', oid, conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE oid >= 16384
    ) AS parts(part)
"""
_REVISION = "SELECT string_agg(version_num, ',') FROM alembic_version"
_WRITTEN = """
    SELECT oid::regclass::text, pg_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'
    AND pg_relation_size(oid) > 0
"""
"""A table has a size also when its rows are deleted."""
_RESTART_SEQUENCES = """
    SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence
    WHERE pg_sequence_last_value(seqrelid) IS NOT NULL
"""


async def administer(stack: EmbeddedStack, statement: str) -> None:
    """Run one statement that needs no transaction, beside all test databases."""
    async with _connect(stack.build_database_url("postgres")) as connection:
        await connection.execute(statement)


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()


class Namespaces:
    """Lend Temporal namespaces, each to one test, and begin the engine anew after some.

    The engine looks through all of them every two seconds. Schedules work in a namespace only when it has been seen, so
    some are registered before they are needed; those of earlier tests are needed no more.
    """

    def __init__(self, stack: EmbeddedStack) -> None:
        self._stack = stack
        self._ready: deque[str] = deque()
        self._registered = 0
        self._users = 0

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[str]:
        """Yield the name of a namespace of the borrower's own."""
        if self._registered >= NAMESPACES_MAX and not self._users:
            await self._renew_engine()
        while len(self._ready) <= NAMESPACES_AHEAD:
            self._ready.append(await register_namespace(self._stack))
            self._registered += 1
        with self.keeping_engine():
            yield self._ready.popleft()

    @contextmanager
    def keeping_engine(self) -> Iterator[None]:
        """Keep the engine with all that it holds for the length of the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    async def _renew_engine(self) -> None:
        for path in (self._stack.data_dir / components.ENGINE).glob("temporal.sqlite*"):
            path.unlink()
        self._stack.kill_and_let_restart(components.ENGINE)
        await self._stack.wait_until_ready(components.ENGINE)
        self._ready.clear()
        self._registered = 0


@asynccontextmanager
async def entered_namespace(stack: EmbeddedStack, namespaces: Namespaces) -> AsyncIterator[str]:
    """Lend a namespace that is ready for use, and let the `TEMPORAL_…` variables lead to it until the block ends."""
    address = stack.addresses[components.ENGINE]
    async with namespaces.lend() as name:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TEMPORAL_ADDRESS", address)
            patch.setenv("TEMPORAL_NAMESPACE", name)
            yield name
            # They would start work for ever that no worker does any more, and the engine is shared.
            client = await Client.connect(address, namespace=name)
            async for each in await client.list_schedules():
                try:
                    await client.get_schedule_handle(each.id).delete()
                except RPCError as error:
                    # The list lags behind: this one was deleted at the end of the test before, in the same namespace.
                    if error.status is not RPCStatusCode.NOT_FOUND:
                        raise


def own_settings(stack: EmbeddedStack, database_url: str, prefix: str, data_dir: Path) -> Settings:
    """The whole tree of settings, leading to this database, key prefix and folder."""
    tree = stack.build_settings()
    return tree.model_copy(
        update={
            "data_dir": data_dir,
            "database": tree.database.model_copy(update={"url": SecretStr(database_url)}),
            "objects": tree.objects.model_copy(update={"prefix": prefix}),
        }
    )


def new_prefix() -> str:
    """A place in the bucket that nothing else has."""
    return f"{secrets.token_hex(6)}/"


async def register_namespace(stack: EmbeddedStack) -> str:
    """Make a Temporal namespace that nothing else uses, with our search attributes."""
    client = await Client.connect(stack.addresses[components.ENGINE])
    name = f"test-{secrets.token_hex(6)}"
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
    await client.workflow_service.register_namespace(request)
    await temporal.ensure_search_attributes(await Client.connect(stack.addresses[components.ENGINE], namespace=name))
    return name

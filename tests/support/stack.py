"""What each test has of its own on the shared stack: a database and a Temporal namespace."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client

from dev.embedded import Stack
from infra.settings import EmbeddedSettings

ANY_PORTS = EmbeddedSettings(engine_port=0, ui_port=0, database_port=0, store_port=0)
RETENTION = timedelta(days=1)


@asynccontextmanager
async def own_database(stack: Stack, template: str | None = None) -> AsyncIterator[str]:
    """A database of one test's own: empty, or a clone of a template. Yields its address for SQLAlchemy."""
    name = f"test_{secrets.token_hex(6)}"
    await administer(stack, f'CREATE DATABASE "{name}" TEMPLATE "{template or "template0"}"')
    try:
        yield stack.database_url(name)
    finally:
        await administer(stack, f'DROP DATABASE "{name}" WITH (FORCE)')


async def administer(stack: Stack, statement: str) -> None:
    """Run one statement that needs no transaction, beside all test databases."""
    connection = await asyncpg.connect(stack.database_url("postgres").replace("+asyncpg", ""))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def register_namespace(client: Client) -> str:
    """A Temporal namespace of one test's own."""
    name = f"test-{secrets.token_hex(6)}"
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
    await client.workflow_service.register_namespace(request)
    return name

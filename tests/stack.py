"""Helpers for tests against the running parts."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar, overload

import asyncpg
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from infra.embedded import Stack
from infra.settings import EmbeddedSettings

ANY_PORTS = EmbeddedSettings(engine_port=0, ui_port=0, database_port=0, store_port=0)
RETENTION = timedelta(days=1)
POLL_SECONDS = 0.02
# A busy machine may take long over what is right; only what never comes is waited for so long.
PATIENCE_SECONDS = 60.0

T = TypeVar("T")


@overload
async def eventually(predicate: Callable[[], Coroutine[Any, Any, T]], timeout: float = PATIENCE_SECONDS) -> T: ...


@overload
async def eventually(predicate: Callable[[], T], timeout: float = PATIENCE_SECONDS) -> T: ...


async def eventually(predicate: Callable[[], T | Coroutine[Any, Any, T]], timeout: float = PATIENCE_SECONDS) -> T:
    """Ask until the answer is true and return it.

    While the predicate fails an assertion, or asks the engine for what is not there yet, it is asked again too.
    """
    deadline = time.monotonic() + timeout
    while True:
        failed: AssertionError | RPCError | None = None
        answer: T | None = None
        try:
            asked = predicate()
            answer = await asked if inspect.isawaitable(asked) else asked
        except AssertionError as error:
            failed = error
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            failed = error
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; the last answer was {answer!r}") from failed
        await asyncio.sleep(POLL_SECONDS)


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

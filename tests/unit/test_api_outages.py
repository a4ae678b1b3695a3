"""Outages: what is worth asking again in a moment, and what is not."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import asyncpg
import pytest
from asyncpg.exceptions import ConnectionDoesNotExistError, UniqueViolationError
from asyncpg.exceptions._base import DataError
from minio.error import S3Error
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode
from urllib3 import HTTPResponse

from api.http import problems
from api.transfers.joins import JoinTimeout
from cli.outside_checks import CheckFailed, open_database_for_check
from infra.component_settings import DatabaseSettings
from infra.database import Database
from infra.objects import BucketMissing, ObjectMissing, StoreFailure, StoreRefused, StoreUnreachable
from infra.objects.failures import build_s3_failure
from infra.outages import Component, ComponentHangs, EngineUnresponsive
from infra.settings import Settings
from workflows.tasks.handle import LaneUnresponsive

SSL_REQUEST: Final = 80_877_103
STATEMENT: Final = {"P", "Q"}
"""Messages of a driver that begin a statement."""


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (ConnectionDoesNotExistError("connection was closed in the middle of operation"), Component.DATABASE),
        (asyncpg.InterfaceError("connection is closed"), Component.DATABASE),
        (asyncpg.AdminShutdownError("terminating connection due to administrator command"), Component.DATABASE),
        (asyncpg.CannotConnectNowError("the database system is starting up"), Component.DATABASE),
        (asyncpg.TooManyConnectionsError("sorry, too many clients already"), Component.DATABASE),
        (asyncpg.DiskFullError("could not extend file: No space left on device"), Component.DATABASE),
        (asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction"), Component.DATABASE),
        (asyncpg.DeadlockDetectedError("deadlock detected"), Component.DATABASE),
        (asyncpg.SerializationError("could not serialize access"), Component.DATABASE),
        (asyncpg.QueryCanceledError("canceling statement due to statement timeout"), Component.DATABASE),
        (asyncpg.LockNotAvailableError("could not obtain lock"), Component.DATABASE),
        (PoolTimeoutError("QueuePool limit reached"), Component.DATABASE),
        (RPCError("no connection", RPCStatusCode.UNAVAILABLE, b""), Component.ENGINE),
        (RPCError("transport error", RPCStatusCode.UNKNOWN, b""), Component.ENGINE),
        (
            RPCError(
                "Unable to query workflow due to Workflow Task in failed state.",
                RPCStatusCode.FAILED_PRECONDITION,
                b"",
            ),
            Component.ENGINE,
        ),
        (WorkflowUpdateRPCTimeoutOrCancelledError(), Component.ENGINE),
        (JoinTimeout("a batch could not join"), Component.ENGINE),
        (LaneUnresponsive("the engine let go of the update"), Component.ENGINE),
        (StoreUnreachable("no usable answer", key="files/1", code=""), Component.STORE),
        (ComponentHangs(Component.DATABASE), Component.DATABASE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_outage_names_the_part(error: Exception, part: Component) -> None:
    """A part that cannot serve is 503, and the answer says which one, whatever raised the error."""
    problem = problems.convert_error_to_problem(error, "r-1")

    assert (problem.status, problem.code) == (503, "unavailable")
    assert problem.detail.startswith(str(part))
    assert " at present. " in problem.detail
    may_have_happened = isinstance(error, (EngineUnresponsive, ComponentHangs))
    assert ("may have happened all the same" in problem.detail) == may_have_happened


@pytest.mark.parametrize("code", ["InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"])
def test_a_store_that_says_that_it_cannot_serve_is_away(code: str) -> None:
    """The codes of S3 that another request does not mend, but time does."""
    refused = S3Error(HTTPResponse(status=503), code, "wait", "/haulage/files/1", "", "", "haulage", "files/1")

    assert problems.convert_error_to_problem(build_s3_failure(refused, "files/1"), "r-1").detail.startswith(
        Component.STORE
    )


@pytest.mark.parametrize("error", [ConnectionResetError("by peer"), TimeoutError()], ids=repr)
def test_an_outage_of_a_part_that_is_not_known_is_one_all_the_same(error: Exception) -> None:
    """It is 503, too, and names no part."""
    problem = problems.convert_error_to_problem(error, "r-1")

    assert (problem.status, problem.code) == (503, "unavailable")
    assert not any(part in problem.detail for part in Component)


@pytest.mark.parametrize(
    "error",
    [
        UniqueViolationError("duplicate key"),
        DataError("invalid input for query argument $1"),
        asyncpg.UndefinedTableError("relation does not exist"),
        asyncpg.InvalidPasswordError("password authentication failed"),
        RPCError("a payload is too large", RPCStatusCode.INVALID_ARGUMENT, b""),
        ObjectMissing("There is no object", key="files/1", code="NoSuchKey"),
        BucketMissing("There is no bucket", key="", code="NoSuchBucket"),
        StoreRefused("The keys are wrong", key="files/1", code="AccessDenied"),
        StoreFailure("EntityTooLarge", key="files/1", code="EntityTooLarge"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_mistake_is_no_outage(error: Exception) -> None:
    """To ask again in a moment would not help: it is 500, and says nothing but the request id."""
    assert problems.convert_error_to_problem(error, "r-1").status == 500


@pytest.mark.parametrize("state", ["57P03", "53300"])
async def test_a_server_that_takes_no_connection_is_an_outage(state: str) -> None:
    """PostgreSQL that starts up after a crash, or has no connection left, says so to all who connect."""
    problem = await ask(state, at_connect=True)

    assert (problem.status, problem.detail) == (503, "PostgreSQL does not serve at present. Try again in a moment.")


@pytest.mark.parametrize("state", ["53100", "25006", "53200", "58030", "57P01", "57P02", "40001", "40P01", "57014"])
async def test_a_server_that_cannot_carry_out_a_statement_is_an_outage(state: str) -> None:
    """Full or broken disk, no writes, shutdown, deadlock, timeout: SQLAlchemy wraps it as it wraps a mistake."""
    problem = await ask(state, at_connect=False)

    assert (problem.status, problem.detail) == (503, "PostgreSQL does not serve at present. Try again in a moment.")


@pytest.mark.parametrize(
    ("state", "at_connect"), [("28P01", True), ("3D000", True), ("42P01", False), ("22003", False)]
)
async def test_a_server_that_refuses_is_none(state: str, *, at_connect: bool) -> None:
    """A wrong password or a mistake in a statement stays for the operator to mend: 500."""
    assert (await ask(state, at_connect=at_connect)).status == 500


async def test_the_doctor_says_what_a_server_refuses() -> None:
    """In the server's words, not in those of the libraries between; it runs, so the remedy is not to start it."""
    async with running_server("28P01", at_connect=True) as port:
        url = f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/installation"
        settings = Settings(database=DatabaseSettings(url=url))
        with pytest.raises(CheckFailed) as refused:
            async with open_database_for_check(settings) as database:
                await database.now()

    assert str(refused.value).startswith("PostgreSQL answers, and refuses: ")
    assert "sqlalchemy" not in str(refused.value)
    assert str(refused.value).endswith(". Correct HAULAGE_DATABASE__URL, or see PostgreSQL's log.")


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    """A socket's error could be any part's; the answer still names PostgreSQL, and not its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

        problem = await ask_at(port)

    assert (problem.status, problem.detail) == (503, "PostgreSQL does not serve at present. Try again in a moment.")


async def ask(state: str, *, at_connect: bool) -> problems.Problem:
    """The problem that a caller gets where PostgreSQL answers with this SQLSTATE."""
    async with running_server(state, at_connect=at_connect) as port:
        return await ask_at(port)


async def ask_at(port: int) -> problems.Problem:
    """The problem that a caller gets of a statement to the server at a port."""
    database = Database(DatabaseSettings(url=f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/installation"))
    try:
        with pytest.raises((OSError, SQLAlchemyError, asyncpg.PostgresError)) as caught:
            async with database.session() as session:
                await session.execute(text("INSERT INTO toys VALUES (1)"))
        return problems.convert_error_to_problem(caught.value, "r-1")
    finally:
        await database.close()


@asynccontextmanager
async def running_server(state: str, *, at_connect: bool) -> AsyncIterator[int]:
    """Run a server that speaks PostgreSQL's protocol just far enough to fail, and yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await take_startup(reader, writer)
            if at_connect:
                writer.write(error_message(state, severity=b"FATAL"))
                await writer.drain()
                return
            # Authenticated, ready for a statement.
            version = message(b"S", b"server_version\x0018.0\0")
            writer.write(message(b"R", struct.pack("!I", 0)) + version + message(b"Z", b"I"))
            while True:
                kind = (await reader.readexactly(1)).decode()
                (length,) = struct.unpack("!I", await reader.readexactly(4))
                await reader.readexactly(length - 4)
                if kind == "X":
                    return
                if kind in STATEMENT:
                    writer.write(error_message(state, severity=b"ERROR"))
                if kind in {"Q", "S"}:
                    writer.write(message(b"Z", b"I"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def take_startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a client's first messages, and refuse to speak TLS."""
    while True:
        (length,) = struct.unpack("!I", await reader.readexactly(4))
        body = await reader.readexactly(length - 4)
        if struct.unpack("!I", body[:4]) != (SSL_REQUEST,):
            return
        writer.write(b"N")


def error_message(state: str, *, severity: bytes) -> bytes:
    """What PostgreSQL says that went wrong."""
    return message(b"E", b"S" + severity + b"\0V" + severity + b"\0C" + state.encode() + b"\0Mit cannot\0\0")


def message(kind: bytes, body: bytes) -> bytes:
    """A message of the protocol."""
    return kind + struct.pack("!I", 4 + len(body)) + body

"""Outages: what is worth asking again in a moment, and what is not."""

from __future__ import annotations

import asyncio
import struct

import asyncpg
import pytest
from asyncpg.exceptions import ConnectionDoesNotExistError, UniqueViolationError
from asyncpg.exceptions._base import DataError
from temporalio.service import RPCError, RPCStatusCode

from api import problems
from infra.database import OUTAGES, Database
from infra.settings import DatabaseSettings

SSL_REQUEST = 80_877_103


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConnectionDoesNotExistError("connection was closed in the middle of operation"), 503),
        (asyncpg.InterfaceError("connection is closed"), 503),
        (asyncpg.AdminShutdownError("terminating connection due to administrator command"), 503),
        (asyncpg.CannotConnectNowError("the database system is starting up"), 503),
        (RPCError("no connection", RPCStatusCode.UNAVAILABLE, b""), 503),
        (ConnectionResetError("by peer"), 503),
        (UniqueViolationError("duplicate key"), 500),
        (DataError("invalid input for query argument $1"), 500),
        (RPCError("a payload is too large", RPCStatusCode.INVALID_ARGUMENT, b""), 500),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_outage_says_so(error: Exception, status: int) -> None:
    """A part that cannot be reached is 503, whoever says it; a mistake of ours is 500."""
    assert problems.of(error, "r-1").status == status


async def test_a_server_that_is_starting_up_is_an_outage() -> None:
    """PostgreSQL accepts connections after a crash before it serves them, and says so to whoever connects."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!I", await reader.readexactly(4))
            message = await reader.readexactly(length - 4)
            if struct.unpack("!I", message[:4]) != (SSL_REQUEST,):
                break
            writer.write(b"N")
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        writer.write(b"E" + struct.pack("!I", 4 + len(fields)) + fields)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        database = Database(DatabaseSettings(url=f"postgresql+asyncpg://me:secret@127.0.0.1:{port}/house"))
        with pytest.raises(OUTAGES, match="starting up") as caught:
            await database.ping()
        await database.close()

    assert problems.of(caught.value, "r-1").status == 503

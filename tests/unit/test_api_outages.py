"""Outages: what is worth asking again in a moment, and what is not."""

from __future__ import annotations

import asyncpg
import pytest
from asyncpg.exceptions import ConnectionDoesNotExistError, UniqueViolationError
from asyncpg.exceptions._base import DataError
from temporalio.service import RPCError, RPCStatusCode

from api import problems


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

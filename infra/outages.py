"""Outages: the one definition of a part that is away, so that the same request may succeed in a moment."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from temporalio.client import RPCTimeoutOrCancelledError, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from infra.objects.failures import StoreUnreachable


class Part(StrEnum):
    """A part that an installation is made of, as operators call it."""

    DATABASE = "PostgreSQL"
    ENGINE = "Temporal"
    STORE = "The object store"


class DatabaseUnreachable(ConnectionError):
    """PostgreSQL took no connection."""


class EngineSilent(ConnectionError):
    """Temporal, or a worker that it asked, did not answer in time; what was asked may have been done."""


CONNECTION_LOST: Final = "08"
"""The class of SQLSTATEs that say so."""
SERVER_AWAY: Final = frozenset(
    {
        "25006",  # a standby, or a primary that became one, takes no writes
        "25P03",  # it ended a transaction of a process that was held up
        "53000",  # it has no memory, no room on its disk, or no connection left
        "53100",
        "53200",
        "53300",
        "57P01",  # it stops, has crashed, or is starting up
        "57P02",
        "57P03",
        "57P05",
        "58030",  # its disk cannot be read or written
    }
)
ENGINE_AWAY: Final = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
    }
)


def find_part(error: BaseException) -> Part | None:
    """Return which part is away; None where the error says no such thing, or not of which part."""
    match error:
        case RPCError():
            return Part.ENGINE if error.status in ENGINE_AWAY else None
        # Queries of ours do not fail: the workflow has news that it has not taken up yet.
        case EngineSilent() | RPCTimeoutOrCancelledError() | WorkflowQueryFailedError():
            return Part.ENGINE
        case StoreUnreachable():
            return Part.STORE
        case _:
            return Part.DATABASE if _is_of_database(error) else None


def is_outage(error: BaseException) -> bool:
    """Whether a part could not be reached or does not serve right now, whichever it is."""
    return isinstance(error, (ConnectionError, TimeoutError)) or find_part(error) is not None


def describe(error: BaseException) -> str:
    """Return the sentence for a caller about an outage: which part, and what to do. It gives no address away."""
    match find_part(error):
        case None:
            return "A part that this request needs does not answer right now. Try again in a moment."
        case Part.ENGINE:
            return f"{Part.ENGINE}, or a worker that it asked, does not answer right now. Try again in a moment."
        case part:
            return f"{part} does not serve right now. Try again in a moment."


def _is_of_database(error: BaseException) -> bool:
    match error:
        case DBAPIError():
            # SQLAlchemy sorts errors by the driver's few classes: a full disk and a mistake in a statement are alike.
            cause = error.orig and error.orig.__cause__
            if isinstance(cause, (asyncpg.PostgresError, asyncpg.InterfaceError)):
                return _is_of_database(cause)
            return isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
        case asyncpg.PostgresError():
            state = str(error.sqlstate)
            return state.startswith(CONNECTION_LOST) or state in SERVER_AWAY
        case asyncpg.InterfaceError():
            # The driver's own word for a connection that has gone; one that is a ValueError is a mistake of ours.
            return not isinstance(error, ValueError)
        case _:
            return isinstance(error, (DatabaseUnreachable, PoolTimeoutError))

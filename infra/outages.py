"""Outages: errors that say that a component does not serve at present, so that the same request may succeed later."""

from __future__ import annotations

import socket
from enum import StrEnum
from typing import Final

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from temporalio.client import RPCTimeoutOrCancelledError, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from domain.faults import ComponentUnreachable, ExplainedFailure
from infra.objects.failures import StoreFailure, StoreUnreachable
from infra.payloads import PayloadKeyMissing


class Component(StrEnum):
    """A component that requests depend on, by its name for operators."""

    DATABASE = "PostgreSQL"
    ENGINE = "Temporal"
    STORE = "The object store"


class DatabaseUnreachable(ComponentUnreachable, ConnectionError):
    """PostgreSQL accepted no connection."""


class DatabaseReadOnly(ConnectionError):
    """PostgreSQL answers, and takes no writes: it is a standby, or was made read-only."""


class EngineUnreachable(ComponentUnreachable, ConnectionError):
    """Temporal accepted no connection."""


class EngineUnresponsive(ConnectionError):
    """Temporal, or a worker that it waited for, did not answer in time; the request may have been carried out."""


class ComponentHangs(ConnectionError):
    """A component did not answer while a request waited; the request may have been carried out."""

    def __init__(self, component: Component) -> None:
        self.component = component
        super().__init__(f"{component} hangs.")


_ENGINE_OR_WORKER: Final = f"{Component.ENGINE}, or a worker that it waits for,"
_POOL_IN_USE: Final = f"{Component.DATABASE} has no free connection for this process at present"
NO_ANSWER: Final = "it does not answer."
"""What is wrong with a component that fails its check without a word."""
CONNECTION_ERRORS: Final = "08"
"""The class of SQLSTATEs of lost connections."""
DEADLOCK: Final = "40P01"
INSUFFICIENT_RESOURCES: Final = "53"
"""The class of SQLSTATEs of a full disk, memory or connections that are used up."""
OUTAGE_STATES: Final = frozenset(
    {
        "25006",  # read_only_sql_transaction: a standby, or a primary that became one
        "25P03",  # idle_in_transaction_session_timeout: this process was held up
        "40001",  # serialization_failure
        DEADLOCK,
        "53000",  # insufficient_resources: memory, disk or connections
        "53100",
        "53200",
        "53300",
        "55P03",  # lock_not_available
        "57014",  # query_canceled: the statement_timeout
        "57P01",  # admin_shutdown, crash_shutdown, cannot_connect_now: it stops, has crashed, or is starting up
        "57P02",
        "57P03",
        "57P05",
        "58030",  # io_error
    }
)
STATES_OF_LARGE_STATEMENTS: Final = frozenset({"53200", "57014"})
"""Out of memory, and the statement_timeout: those of `OUTAGE_STATES` that the size of a statement may cause as well."""
ENGINE_OUTAGE_STATUSES: Final = frozenset(
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


_TCP_SILENCE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 11_000}
"""Seconds until the first probe and between probes, probes, and milliseconds for what was sent: 11 s in both cases."""


def enable_keepalive_against_silent_peer(connection: socket.socket | None) -> None:
    """Have the kernel end a connection of TCP whose peer neither confirms what is sent nor answers probes.

    By default it probes after two hours, and no time-out of a server's ends a request to a host that is cut off.
    """
    if connection is None or connection.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_SILENCE.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has each
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def is_workflow_or_schedule_missing(error: RPCError) -> bool:
    """Return whether Temporal says that the workflow or schedule does not exist.

    One that has just started may not know its own namespace for a moment, which says nothing of what is in it.
    """
    return error.status is RPCStatusCode.NOT_FOUND and not _is_namespace_missing(error)


def _is_namespace_missing(error: RPCError) -> bool:
    return error.status is RPCStatusCode.NOT_FOUND and error.message.startswith("Namespace ")


def _is_query_of_failed_workflow_task(error: RPCError) -> bool:
    """Return whether a query met a failed task of its workflow, as those of schedules do in a busy engine."""
    return error.message.startswith("Unable to query workflow")


def find_component_in_outage(error: BaseException) -> Component | None:
    """Return the component whose outage an error reports; None if it reports none, or does not say of which."""
    match error:
        case RPCError():
            is_out = (
                error.status in ENGINE_OUTAGE_STATUSES
                or _is_namespace_missing(error)
                or _is_query_of_failed_workflow_task(error)
            )
            return Component.ENGINE if is_out else None
        # Our queries raise nothing: the failure is that of `infra.query_guard`.
        case (
            EngineUnreachable()
            | EngineUnresponsive()
            | PayloadKeyMissing()
            | RPCTimeoutOrCancelledError()
            | WorkflowQueryFailedError()
        ):
            return Component.ENGINE
        case StoreUnreachable():
            return Component.STORE
        case ComponentHangs():
            return error.component
        case _:
            return Component.DATABASE if _is_database_outage(error) else None


def is_outage(error: BaseException) -> bool:
    """Return whether an error reports that some component cannot be reached or does not serve at present."""
    return isinstance(error, (ConnectionError, TimeoutError)) or find_component_in_outage(error) is not None


def describe_expected_failure(error: BaseException) -> str | None:
    """Return a sentence for operators about an outage or another failure outside; None for an error of this program."""
    if isinstance(error, (ExplainedFailure, ApplicationError)):
        return str(error)
    if not is_outage(error):
        return None
    if isinstance(error, PoolTimeoutError):
        return f"{_POOL_IN_USE}: all those of HAULAGE_DATABASE__POOL_SIZE are in use."
    root = error
    while isinstance(root, DBAPIError) and root.orig is not None:
        root = root.orig.__cause__ or root.orig
    component = find_component_in_outage(error)
    text = (str(root) or type(root).__name__).splitlines()[0]
    return f"{component} does not serve at present: {text}" if component else text


def is_deadlock(error: DBAPIError) -> bool:
    """Return whether PostgreSQL ended this transaction to end a deadlock."""
    return error.orig is not None and getattr(error.orig, "sqlstate", None) == DEADLOCK


def describe_failed_check(error: BaseException) -> str:
    """Return what is wrong with a component that failed a check, for anybody: it contains no address and no path."""
    cause: BaseException | None = error
    while cause is not None:
        match cause:
            case DatabaseReadOnly():
                return "it takes no writes: it is a standby, or was made read-only."
            case asyncpg.PostgresError() if str(cause.sqlstate).startswith(INSUFFICIENT_RESOURCES):
                return "it lacks disk space, memory or connections."
            case StoreUnreachable():
                return "it does not answer, or takes no writes."
            case StoreFailure():
                return "it has no such bucket, or refuses its credentials."
        cause = cause.__cause__
    return NO_ANSWER


def may_be_caused_by_statement(error: BaseException) -> bool:
    """Return whether an outage may come again however often it is waited for, since the statement is too large."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, asyncpg.PostgresError):
            return str(cause.sqlstate) in STATES_OF_LARGE_STATEMENTS
        cause = cause.__cause__
    return False


def find_postgres_error_message(error: BaseException) -> str | None:
    """Return what PostgreSQL said where it answers with an error; None where it does not answer."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, asyncpg.PostgresError):
            return str(cause).partition("\n")[0]
        cause = cause.__cause__
    return None


def describe_outage(error: BaseException) -> str:
    """Return a sentence for callers about an outage: which component, and what to do. It contains no address."""
    if isinstance(error, PayloadKeyMissing):
        return str(error)
    if isinstance(error, PoolTimeoutError):
        return f"{_POOL_IN_USE}. Try again in a moment."
    if isinstance(error, (ComponentHangs, EngineUnresponsive)):
        part = str(error.component) if isinstance(error, ComponentHangs) else _ENGINE_OR_WORKER
        return (
            f"{part} does not answer at present. What this request was to start or change may have happened all the "
            "same. Look, or repeat it with the same key or id, in a moment."
        )
    match find_component_in_outage(error):
        case None:
            return "A component that this request needs does not answer at present. Try again in a moment."
        case Component.ENGINE:
            return f"{_ENGINE_OR_WORKER} does not answer at present. Try again in a moment."
        case component:
            return f"{component} does not serve at present. Try again in a moment."


def _is_database_outage(error: BaseException) -> bool:
    match error:
        case DBAPIError():
            # SQLAlchemy knows the driver's few classes only: a full disk and a wrong statement are the same to it.
            cause = error.orig and error.orig.__cause__
            if isinstance(cause, (asyncpg.PostgresError, asyncpg.InterfaceError)):
                return _is_database_outage(cause)
            return isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
        case asyncpg.PostgresError():
            state = str(error.sqlstate)
            return state.startswith(CONNECTION_ERRORS) or state in OUTAGE_STATES
        case asyncpg.InterfaceError():
            # The driver's error for a closed connection; one that is a ValueError is a wrong call.
            return not isinstance(error, ValueError)
        case _:
            return isinstance(error, (DatabaseUnreachable, DatabaseReadOnly, PoolTimeoutError))

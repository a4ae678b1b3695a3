"""What operators read of an activity that failed: one line with a cause; a traceback only where this program erred."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import asyncpg
import pytest
from sqlalchemy.exc import InterfaceError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.service import RPCError, RPCStatusCode

from clients.pubsub import PubSubFailure
from infra import interceptors, outages

if TYPE_CHECKING:
    from temporalio.worker import ExecuteWorkflowInput, WorkflowInboundInterceptor

AWAY = PubSubFailure("Pub/Sub gave no answer. Check the network.", is_transient=True)
CLOSED = asyncpg.ConnectionDoesNotExistError("the connection was closed\nDETAIL: in the middle")
BROKEN = InterfaceError("SELECT 1", None, CLOSED)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(AWAY, "Pub/Sub gave no answer. Check the network.", id="outside-service"),
        pytest.param(CLOSED, "PostgreSQL does not serve at present: the connection was closed", id="driver"),
        pytest.param(BROKEN, "PostgreSQL does not serve at present: the connection was closed", id="database"),
        pytest.param(
            PoolTimeoutError("QueuePool limit of size 8 overflow 0 reached"),
            "PostgreSQL has no free connection for this process at present: all those of HAULAGE_DATABASE__POOL_SIZE "
            "are in use.",
            id="pool",
        ),
        pytest.param(
            RPCError("shutting down", RPCStatusCode.UNAVAILABLE, b""),
            "Temporal does not serve at present: shutting down",
            id="engine",
        ),
        pytest.param(ApplicationError("No worker serves it."), "No worker serves it.", id="said-by-an-activity"),
        pytest.param(ConnectionResetError(104, "reset"), "[Errno 104] reset", id="network"),
        pytest.param(KeyError("uprn"), None, id="error-of-this-program"),
    ],
)
def test_an_outage_is_a_sentence(error: Exception, sentence: str | None) -> None:
    """Its first line, and which component it is about."""
    assert outages.describe_expected_failure(error) == sentence


FAILED = "Completing activity as failed ({})"
UNREAD = "Future exception was never retrieved\nfuture: <Future finished>"
OTHER = "Failed completing activity task"


@pytest.mark.parametrize(
    ("text", "error", "lines"),
    [
        pytest.param(FAILED, AWAY, [], id="activity-ended-has-it"),
        pytest.param(FAILED, asyncio.CancelledError(), [], id="cancelled"),
        pytest.param(UNREAD, asyncio.CancelledError(), [], id="cancelled-at-its-end"),
        pytest.param(UNREAD, KeyError("uprn"), [(UNREAD, True, None)], id="defect-unread"),
        pytest.param(FAILED, KeyError("uprn"), [(FAILED, True, None)], id="defect"),
        pytest.param(OTHER, AWAY, [(OTHER, False, str(AWAY))], id="another-line"),
    ],
)
def test_the_sdk_logs_no_traceback_of_an_outage(
    caplog: pytest.LogCaptureFixture, text: str, error: BaseException, lines: list[tuple[str, bool, str | None]]
) -> None:
    """Where an activity failed of it, the SDK's line is left out; where its line is another, that has the sentence."""
    logger = logging.getLogger("tests.sdk")
    logger.addFilter(interceptors._TRACEBACKS)

    logger.warning(text, exc_info=error)

    logged = [(each.getMessage(), bool(each.exc_info), getattr(each, "error", None)) for each in caplog.records]
    assert logged == lines


@pytest.mark.parametrize(
    ("error", "reason", "outcome"),
    [
        pytest.param(asyncio.CancelledError(), "", "cancelled", id="while-it-waits"),
        pytest.param(CancelledError("no more"), "no more", "cancelled", id="by-an-activity"),
        pytest.param(asyncio.CancelledError(), None, "failed", id="without-a-request"),
        pytest.param(ApplicationError("broken"), "", "failed", id="failed-meanwhile"),
    ],
)
async def test_a_workflow_that_is_cancelled_ends_with_a_line(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    reason: str | None,
    outcome: str,
) -> None:
    """Wherever it waits when it is cancelled; as the engine shows its end."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    named = dict.fromkeys(("workflow_id", "run_id", "workflow_type"), "w")
    info = SimpleNamespace(**named, typed_search_attributes={}, headers={}, workflow_start_time=began)

    async def raise_error(_: ExecuteWorkflowInput) -> None:
        raise error

    monkeypatch.setattr(workflow, "info", lambda: info)
    monkeypatch.setattr(workflow, "now", lambda: began)
    monkeypatch.setattr(workflow, "cancellation_reason", lambda: reason)
    monkeypatch.setattr(workflow.unsafe, "is_replaying", lambda: False)
    inner = cast("WorkflowInboundInterceptor", SimpleNamespace(execute_workflow=raise_error))
    with caplog.at_level(logging.INFO), pytest.raises(type(error)):
        await interceptors._LoggingWorkflowInterceptor(inner).execute_workflow(cast("ExecuteWorkflowInput", None))

    assert [(each.getMessage(), vars(each)["outcome"]) for each in caplog.records] == [("workflow_ended", outcome)]

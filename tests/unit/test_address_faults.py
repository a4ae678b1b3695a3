"""Why a comparison failed, as the API says it."""

from __future__ import annotations

from unittest.mock import AsyncMock, MagicMock

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    RetryState,
    TerminatedError,
    TimeoutError,  # noqa: A004 - Temporal's
    TimeoutType,
)

from workflows.addresses import handle


def build_activity_error(cause: BaseException) -> ActivityError:
    """The error of a comparison whose activity has failed for good."""
    error = ActivityError(
        "Activity task failed",
        scheduled_event_id=5,
        started_event_id=6,
        identity="worker",
        activity_type="address_compare",
        activity_id="1",
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "code", "message", "retryable"),
    [
        pytest.param(
            build_activity_error(ApplicationError("Module od is away.", type="ModuleFailure")),
            *("module_failed", "Module od is away.", True),
            id="a module failed",
        ),
        pytest.param(
            build_activity_error(TimeoutError("no heartbeat", type=TimeoutType.HEARTBEAT, last_heartbeat_details=[])),
            *("internal_error", "The activity address_compare failed and is not retried: no heartbeat.", False),
            id="its worker was lost",
        ),
        pytest.param(
            TerminatedError("too busy today"),
            *("comparison_ended", "The workflow of the comparison was ended in Temporal before it was done: "),
            False,
            id="terminated",
        ),
        pytest.param(
            CancelledError("Workflow cancelled"),
            *("comparison_ended", "The workflow of the comparison was ended in Temporal before it was done: "),
            False,
            id="cancelled",
        ),
    ],
)
async def test_a_failed_comparison_has_a_fault(cause: BaseException, code: str, message: str, retryable: bool) -> None:
    """With a code, and a sentence that says what to do."""
    engine = MagicMock(spec=Client)
    engine.get_workflow_handle.return_value.result = AsyncMock(side_effect=WorkflowFailureError(cause=cause))

    fault = await handle.read_fault_of_failed_comparison(engine, "addresses-comparison:1")

    assert (fault.code, fault.retryable) == (code, retryable)
    assert fault.message.startswith(message)
    assert fault.message.endswith(".")
    assert fault.hint

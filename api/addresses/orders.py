"""Orders: workflows that operators have started, and how far they are."""

from __future__ import annotations

from enum import StrEnum

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from domain.addresses import names
from infra import temporal


class Progress(StrEnum):
    """How far it is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


def attributes() -> TypedSearchAttributes:
    """What the Web UI finds it by."""
    return TypedSearchAttributes([SearchAttributePair(temporal.ROOM, names.SYSTEM)])


async def progress(engine: Client, workflow_id: str) -> Progress | None:
    """How far a workflow is; None if there is none of this id, or none any more."""
    try:
        description = await engine.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    match description.status:
        case WorkflowExecutionStatus.RUNNING:
            return Progress.RUNNING
        case WorkflowExecutionStatus.COMPLETED:
            return Progress.DONE
        case _:
            return Progress.FAILED


async def fault(engine: Client, workflow_id: str) -> str:
    """Why one has failed: the first of its causes."""
    try:
        await engine.get_workflow_handle(workflow_id).result()
    except WorkflowFailureError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        return str(cause)
    return ""

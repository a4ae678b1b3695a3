"""How a plan reads the error that an activity ended in."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel
from temporalio.exceptions import ActivityError, ApplicationError

from domain.faults import FaultRecord
from infra.interceptors import FAULT_TYPE

Model = TypeVar("Model", bound=BaseModel)


def fault_of(error: ActivityError) -> FaultRecord:
    """The user's fault that it was, or else a sentence that takes the blame."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == FAULT_TYPE:
        return FaultRecord.model_validate(cause.details[0])
    return FaultRecord(
        code="internal",
        message=f"Our own step {error.activity_type} failed for good: {cause or error}.",
        hint="Start again; if it stays, give the operator this id: the history tells all attempts.",
    )


def note_of(error: ActivityError, model: type[Model]) -> Model | None:
    """What else the user's fault says, if it says that."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == FAULT_TYPE and len(cause.details) > 1:
        return model.model_validate(cause.details[1])
    return None


def is_type(error: ActivityError, name: str) -> bool:
    """Whether an activity ended in an error of the class called *name*."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == name

"""Starting workflows from outside: the one place where a start says all that it must say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from temporalio.client import Client, WithStartWorkflowOperation
from temporalio.common import (
    Priority,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError

from infra import temporal

SUMMARY_MAX_BYTES: Final = 300
"""Temporal promises to take 400, with quotes and what JSON escapes; its servers may take more."""


class SameId(Enum):
    """What becomes of a start whose id is that of another workflow: the policies for one that ended, and that runs."""

    REFUSED = (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDConflictPolicy.FAIL)
    """An id is used once, for as long as the engine remembers it."""
    REFUSED_WHILE_RUNNING = (WorkflowIDReusePolicy.ALLOW_DUPLICATE, WorkflowIDConflictPolicy.FAIL)
    JOINED_WHILE_RUNNING = (WorkflowIDReusePolicy.ALLOW_DUPLICATE, WorkflowIDConflictPolicy.USE_EXISTING)
    JOINED_OR_REFUSED = (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDConflictPolicy.USE_EXISTING)
    """The one that runs takes it; one that ended is not started again."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A workflow to be started.

    Args:
        workflow: The name that its class is registered by.
        order: The one argument that it takes.
        same_id: What becomes of it if there is a workflow of this id.
        attributes: What it is found by in the engine.
        summary: What it is for, in a few words for the Web UI; cut where it is too long.
        signal: A signal that it gets, or that one gets which runs already.
        task_timeout: How long a worker may take over one of its tasks; the engine's default if None.
    """

    workflow: str
    order: object
    id: str
    queue: str
    same_id: SameId
    attributes: TypedSearchAttributes
    summary: str
    memo: Mapping[str, Any] | None = None
    signal: str | None = None
    task_timeout: timedelta | None = None
    priority: Priority = Priority.default

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that the SDK's ways to start a workflow have in common."""
        reuse, conflict = self.same_id.value
        return {
            "id": self.id,
            "task_queue": self.queue,
            "id_reuse_policy": reuse,
            "id_conflict_policy": conflict,
            "search_attributes": self.attributes,
            "static_summary": self.summary.encode()[:SUMMARY_MAX_BYTES].decode(errors="ignore"),
            "memo": self.memo,
            "task_timeout": self.task_timeout,
            "priority": self.priority,
        }


async def start(engine: Client, wanted: Start) -> bool:
    """Start a workflow; False where that was refused because of another one of the same id."""
    try:
        await engine.start_workflow(wanted.workflow, wanted.order, start_signal=wanted.signal, **wanted.options)
    except WorkflowAlreadyStartedError:
        return False
    return True


def with_start(wanted: Start) -> WithStartWorkflowOperation[Any, Any]:
    """The start that goes together with an update."""
    return WithStartWorkflowOperation[Any, Any](wanted.workflow, wanted.order, **wanted.options)


def attributes(system: str, *, project_id: str | None = None, state: str | None = None) -> TypedSearchAttributes:
    """What a workflow of a system is found by in the engine."""
    pairs = [SearchAttributePair(temporal.ROOM, system)]
    if project_id is not None:
        pairs.append(SearchAttributePair(temporal.PROJECT, project_id))
    if state is not None:
        pairs.append(SearchAttributePair(temporal.STATE, state))
    return TypedSearchAttributes(pairs)

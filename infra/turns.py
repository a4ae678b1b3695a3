"""Workflows act only in turns that the engine has begun.

A query that reaches a worker without the workflow in its memory is answered from history. Where history goes on behind
the last turn that was completed, the SDK lets the workflow act on that at once, and goes on from there when the turn
comes: a timer has fired and the turn for it has not begun, or it began on a worker that has died since. Nothing of
this is in history: the next worker that replays it decides otherwise, and the workflow is stuck, or has lost what it
accepted. Here such a query fails instead, so that the SDK forgets the workflow; our clients ask again, and are
answered.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from temporalio import client, workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.converter import SerializationContext, StorageDriverStoreContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

SENTENCE = "the workflow has news that it takes up in its next turn; ask again"
ASKED_AGAIN_SECONDS: Final = 5.0
"""How long a client asks: a turn begins within the time that a dead worker's workflows take to come to another."""
PAUSE_SECONDS: Final = 0.05

_NO_ACTS = {"query_workflow", "remove_from_cache"}
_QUERY_ALONE = "legacy_query"
"""What the SDK calls a query that comes outside of any turn."""


class Turns(WorkflowRunner):
    """Runs workflows as another runner does, and refuses what is no turn.

    Args:
        inner: Makes the instances.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: workflow._Definition) -> None:
        """See that the workflow can be run."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """Begin a workflow."""
        return InTurns(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: object) -> None:
        """Hand on what counts as a failure of workflows."""
        self._inner.set_worker_level_failure_exception_types(types)  # type: ignore[arg-type]


class InTurns(WorkflowInstance):
    """A workflow that acts only in turns.

    A turn has a time of its own. What comes in the time of the turn before, and from farther on in history, belongs to
    none. What follows from the workflow's own commands comes in their turn, and from no farther on.

    A turn that began elsewhere has a time of its own, too. Whether what comes behind the replay is that or the turn
    for which the workflow was replayed, only what comes next tells: a query at once is what it was replayed for.

    Args:
        inner: The workflow.
    """

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        self._time = -1
        self._events = 0
        self._was_replayed = False
        self._acts = 0  # behind the replay
        self._is_answering = False

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Let the workflow do what there is to do."""
        if {job.WhichOneof("variant") for job in act.jobs} <= _NO_ACTS:
            return self._answer(act)
        at = act.timestamp.ToNanoseconds()
        # In what is replayed, turns may have the same time where the engine's clock is coarse; there all is in history.
        if at == self._time and act.history_length > self._events and not act.is_replaying:
            return _refused(act)
        self._time, self._events = at, act.history_length
        self._was_replayed |= act.is_replaying
        self._acts += not act.is_replaying
        return self._inner.activate(act)

    def _answer(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        is_alone = any(job.query_workflow.query_id == _QUERY_ALONE for job in act.jobs)
        if is_alone and self._was_replayed and self._acts == 1 and not self._is_answering:
            return _refused(act)
        self._is_answering |= is_alone
        return self._inner.activate(act)

    def get_info(self) -> workflow.Info:
        """What the workflow knows of itself."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """Which thread runs it now."""
        return self._inner.get_thread_id()

    def get_serialization_context(self, command_info: object) -> SerializationContext | None:
        """Return what the converter needs for a command."""
        return self._inner.get_serialization_context(command_info)  # type: ignore[arg-type]

    def get_external_store_context(self, command_info: object) -> StorageDriverStoreContext:
        """Return what a store of payloads needs for a command."""
        return self._inner.get_external_store_context(command_info)  # type: ignore[arg-type]


def _refused(act: WorkflowActivation) -> WorkflowActivationCompletion:
    refused = WorkflowActivationCompletion(run_id=act.run_id)
    refused.failed.failure.message = SENTENCE
    return refused


class AskingAgain(client.Interceptor):
    """Asks again where a query came before the workflow's turn."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        return _Client(next)


class _Client(client.OutboundInterceptor):
    async def query_workflow(self, input: client.QueryWorkflowInput) -> Any:  # noqa: A002
        until = time.monotonic() + ASKED_AGAIN_SECONDS
        while True:
            try:
                return await super().query_workflow(input)
            except client.WorkflowQueryFailedError as error:
                if SENTENCE not in str(error) or time.monotonic() > until:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

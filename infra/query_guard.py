"""A guard that lets workflows act only within workflow tasks that the engine has started.

A query that reaches a worker without the workflow in its cache is answered from history. Where history goes on behind
the last completed workflow task, the SDK lets the workflow act on those events at once, and goes on from there when
the task comes: a timer has fired and its task has not started, or it started on a worker that has died since. None of
this is in history: the next worker that replays it decides otherwise, and the workflow is stuck, or has lost what it
accepted. The guard fails such a query instead, so that the SDK evicts the workflow; the client repeats the query, and
is answered.
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

QUERY_TOO_EARLY = "the workflow has events that its next workflow task takes up; repeat the query"
RETRY_SECONDS: Final = 5.0
"""How long a client repeats a query: a task starts within the time in which a dead worker's workflows are moved."""
PAUSE_SECONDS: Final = 0.05

_PASSIVE_JOBS = {"query_workflow", "remove_from_cache"}
_DIRECT_QUERY = "legacy_query"
"""The SDK's name for a query outside of any workflow task."""


class WorkflowTaskOnlyRunner(WorkflowRunner):
    """Run workflows as another runner does, and refuse activations that belong to no workflow task.

    Args:
        inner: The runner that creates the instances.
    """

    def __init__(self, inner: WorkflowRunner) -> None:
        self._inner = inner

    def prepare_workflow(self, defn: workflow._Definition) -> None:
        """See base class."""
        self._inner.prepare_workflow(defn)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """See base class."""
        return WorkflowTaskOnlyInstance(self._inner.create_instance(det))

    def set_worker_level_failure_exception_types(self, types: object) -> None:
        """See base class."""
        self._inner.set_worker_level_failure_exception_types(types)  # type: ignore[arg-type]


class WorkflowTaskOnlyInstance(WorkflowInstance):
    """A workflow that acts only within workflow tasks.

    Each workflow task has its own time. An activation with the time of the task before, and events farther on in
    history, belongs to none. What follows from the workflow's own commands comes within their task, with no new events.

    A task that started on another worker has its own time as well. Whether the activation behind a replay is that one
    or the task for which the workflow was replayed shows only in the activation after it: a query that follows at once
    is what the workflow was replayed for.

    Args:
        inner: The workflow.
    """

    def __init__(self, inner: WorkflowInstance) -> None:
        self._inner = inner
        self._time = -1
        self._events = 0
        self._was_replayed = False
        self._tasks = 0  # behind the replay
        self._is_answering = False

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Pass the activation on, or fail it if it belongs to no workflow task."""
        if {job.WhichOneof("variant") for job in act.jobs} <= _PASSIVE_JOBS:
            return self._activate_unless_query_before_task(act)
        at = act.timestamp.ToNanoseconds()
        # During a replay, tasks may share a time where the engine's clock is coarse; all their events are in history.
        if at == self._time and act.history_length > self._events and not act.is_replaying:
            return _build_query_too_early_completion(act)
        self._time, self._events = at, act.history_length
        self._was_replayed |= act.is_replaying
        self._tasks += not act.is_replaying
        return self._inner.activate(act)

    def _activate_unless_query_before_task(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        is_direct = any(job.query_workflow.query_id == _DIRECT_QUERY for job in act.jobs)
        if is_direct and self._was_replayed and self._tasks == 1 and not self._is_answering:
            return _build_query_too_early_completion(act)
        self._is_answering |= is_direct
        return self._inner.activate(act)

    def get_info(self) -> workflow.Info:
        """See base class."""
        return self._inner.get_info()

    def get_thread_id(self) -> int | None:
        """See base class."""
        return self._inner.get_thread_id()

    def get_serialization_context(self, command_info: object) -> SerializationContext | None:
        """See base class."""
        return self._inner.get_serialization_context(command_info)  # type: ignore[arg-type]

    def get_external_store_context(self, command_info: object) -> StorageDriverStoreContext:
        """See base class."""
        return self._inner.get_external_store_context(command_info)  # type: ignore[arg-type]


def _build_query_too_early_completion(act: WorkflowActivation) -> WorkflowActivationCompletion:
    refusal = WorkflowActivationCompletion(run_id=act.run_id)
    refusal.failed.failure.message = QUERY_TOO_EARLY
    return refusal


class QueryRetryInterceptor(client.Interceptor):
    """Repeat a query that came before the workflow's next task."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        return _EarlyQueryRetryClient(next)


class _EarlyQueryRetryClient(client.OutboundInterceptor):
    async def query_workflow(self, input: client.QueryWorkflowInput) -> Any:  # noqa: A002
        until = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                return await super().query_workflow(input)
            except client.WorkflowQueryFailedError as error:
                if QUERY_TOO_EARLY not in str(error) or time.monotonic() > until:
                    raise
            await asyncio.sleep(PAUSE_SECONDS)

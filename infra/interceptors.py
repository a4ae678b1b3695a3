"""Interceptors of the engine's client and workers: log context, metrics and faults."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, NoReturn

from temporalio import activity, client, worker, workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowHandle
from temporalio.common import SearchAttributeKey
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, FailureError, is_cancelled_exception
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.workflow import ChildWorkflowHandle

from domain.faults import Fault
from infra import log, metrics, outages

FAULT_TYPE = "Fault"
ALL_PROJECTS: Final = "*"
"""The project of workflows that belong to none or to several."""

# `infra.temporal`, which imports this module, has all three search attributes.
_PROJECT: Final = SearchAttributeKey.for_keyword("HaulageProject")

_log = log.get(__name__)


CONTEXT_HEADER: Final = "haulage-context"
"""The header of workflows and activities with the ids that their log lines have."""
_CONTEXT_FIELDS: Final = ("request_id", "project_id")


class LogContextAndFaultErrorInterceptor(client.Interceptor, worker.Interceptor):
    """Log and measure workflows and activities, and report a `Fault` as an error that is not retried.

    Their log lines have the ids of the workflow, the run and the project, and of the request that started them.
    """

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002
        """See base class."""
        return _LogContextHeaderClientInterceptor(next)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        _drop_expected_tracebacks_from_sdk_logs()
        return _LoggingActivityInterceptor(next)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """See base class."""
        _drop_expected_tracebacks_from_sdk_logs()
        return _LoggingWorkflowInterceptor


class _LogContextHeaderClientInterceptor(client.OutboundInterceptor):
    async def start_workflow(self, input: client.StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        input.headers = _add_log_context_header(input.headers)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self,
        input: client.StartWorkflowUpdateWithStartInput,  # noqa: A002
    ) -> client.WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        start.headers = _add_log_context_header(start.headers)
        return await super().start_update_with_start_workflow(input)


def _add_log_context_header(headers: Mapping[str, Payload], **fields: str) -> Mapping[str, Payload]:
    """Add the ids that are bound to log lines to headers; later fields replace those."""
    bound = {name: value for name in _CONTEXT_FIELDS if (value := log.get_bound_field(name)) is not None}
    if not (values := {**bound, **fields}):
        return headers
    return {**headers, CONTEXT_HEADER: Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(values).encode())}


def _read_log_context_header(headers: Mapping[str, Payload]) -> dict[str, str]:
    """Return the ids in headers; nothing where another version or another client wrote something else."""
    if (payload := headers.get(CONTEXT_HEADER)) is None:
        return {}
    try:
        values = json.loads(payload.data)
    except ValueError:
        return {}
    return {name: values[name] for name in _CONTEXT_FIELDS if name in values} if isinstance(values, dict) else {}


class _LoggingActivityInterceptor(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        if info.attempt > 1:
            metrics.ACTIVITY_RETRIES.labels(info.activity_type).inc()
        if not info.is_local:
            wait = info.started_time - info.current_attempt_scheduled_time
            metrics.ACTIVITY_WAITS.labels(info.activity_type).observe(max(0.0, wait.total_seconds()))
        with (
            log.bind_temporarily(
                workflow_id=info.workflow_id,
                run_id=info.workflow_run_id,
                activity=info.activity_type,
                attempt=info.attempt,
                **_read_log_context_header(input.headers),
            ),
            _log_and_measure_outcome(info.activity_type),
        ):
            try:
                return await self.next.execute_activity(input)
            except Fault as fault:
                raise ApplicationError(
                    fault.record.sentence,
                    fault.record,
                    *fault.notes,
                    type=FAULT_TYPE,
                    non_retryable=True,
                    category=ApplicationErrorCategory.BENIGN,
                ) from None


@contextmanager
def _log_and_measure_outcome(activity_type: str) -> Iterator[None]:
    """Log and measure how the body ends."""
    started = time.perf_counter()
    outcome, why = "done", dict[str, str]()
    try:
        yield
    except BaseException as raised:
        why = _describe_failure(raised)
        outcome = _classify_activity_error(raised)
        raise
    finally:
        seconds = time.perf_counter() - started
        metrics.ACTIVITIES.labels(activity_type, outcome).observe(seconds)
        write = _log.warning if outcome == "failed" else _log.info
        write("activity_ended", outcome=outcome, seconds=round(seconds, 3), **why)


def _describe_failure(raised: BaseException) -> dict[str, str]:
    """Return the fields of a line about a failure: its type, and a sentence where it is no error of this program."""
    cause = (isinstance(raised, ApplicationError) and raised.type) or type(raised).__name__
    return {"cause": cause, "error": outages.describe_expected_failure(raised) or repr(raised)}


class _ExpectedErrorTracebackFilter(logging.Filter):
    """Have the SDK log no traceback of what is no error of this program.

    Where an activity fails of it, `activity_ended` is the only line.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """See base class."""
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return True
        if is_cancelled_exception(error):
            sentence = "It was cancelled."
        elif (described := outages.describe_expected_failure(error)) is not None:
            sentence = described
        else:
            return True
        record.exc_info = record.exc_text = None
        record.cause, record.error = type(error).__name__, sentence
        return not record.getMessage().startswith((_FAILED_ACTIVITY, _UNREAD_FUTURE))


_FAILED_ACTIVITY: Final = "Completing activity as failed"
# The SDK does not look at the end of an activity whose caller is cancelled at that very moment.
_UNREAD_FUTURE: Final = "Future exception was never retrieved"
_TRACEBACKS: Final = _ExpectedErrorTracebackFilter()
_SDK_LOGGERS: Final = (
    *("temporalio.activity", "temporalio.worker._activity", "temporalio.worker._worker"),
    "temporalio.worker._workflow_instance",
)


def _drop_expected_tracebacks_from_sdk_logs() -> None:
    for name in _SDK_LOGGERS:
        logging.getLogger(name).addFilter(_TRACEBACKS)


def _classify_activity_error(raised: BaseException) -> str:
    if isinstance(raised, ApplicationError) and raised.type == FAULT_TYPE:
        return "fault"
    if not is_cancelled_exception(raised):
        return "failed"
    details = activity.cancellation_details()
    return "timed_out" if details is not None and details.timed_out else "cancelled"


class _LoggingWorkflowInterceptor(WorkflowInboundInterceptor):
    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        super().init(_LoggingOutboundInterceptor(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        info = workflow.info()
        with log.bind_temporarily(
            workflow_id=info.workflow_id,
            run_id=info.run_id,
            workflow=info.workflow_type,
            **_build_header_and_project_log_fields(info),
        ):
            try:
                result = await super().execute_workflow(input)
            except (FailureError, asyncio.CancelledError) as error:
                _log_and_count_failure(info, error)
                raise
            _log_workflow_end(info, logging.INFO, "completed")
            return result


def _build_header_and_project_log_fields(info: workflow.Info) -> dict[str, str]:
    """Return the ids of a workflow's log lines and of its activities': its project, and the request that began it."""
    project_id = info.typed_search_attributes.get(_PROJECT)
    own = {} if project_id in {None, ALL_PROJECTS} else {"project_id": str(project_id)}
    return {**_read_log_context_header(info.headers), **own}


def _log_and_count_failure(info: workflow.Info, error: BaseException) -> None:
    """Count and log a workflow that fails in the engine; what a user can mend completes with `HaulageState=failed`."""
    if workflow.unsafe.is_replaying():
        return
    # As the SDK decides: what is cancelled within a workflow that was not cancelled itself makes it fail.
    if is_cancelled_exception(error) and workflow.cancellation_reason() is not None:
        _log_workflow_end(info, logging.INFO, "cancelled")
        return
    root = error
    while isinstance(root, FailureError) and root.cause is not None:
        root = root.cause
    cause = (isinstance(root, ApplicationError) and root.type) or type(root).__name__
    metrics.WORKFLOWS_FAILED.labels(info.workflow_type, cause).inc()
    _log_workflow_end(info, logging.ERROR, "failed", cause=cause, error=str(root))


def _log_workflow_end(info: workflow.Info, level: int, outcome: str, **fields: str) -> None:
    if workflow.unsafe.is_replaying():
        return
    seconds = (workflow.now() - info.workflow_start_time).total_seconds()
    # Not by `_log`, whose buffer calls itself later: within a workflow that would be a timer in its history.
    logging.getLogger(__name__).log(level, "workflow_ended", extra={"outcome": outcome, "seconds": seconds, **fields})


class _LoggingOutboundInterceptor(worker.WorkflowOutboundInterceptor):
    """Pass the ids of a workflow on to its activities and children."""

    @cached_property
    def _context(self) -> dict[str, str]:
        return _build_header_and_project_log_fields(workflow.info())

    def start_activity(self, input: worker.StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002
        input.headers = _add_log_context_header(input.headers, **self._context)
        return super().start_activity(input)

    def start_local_activity(self, input: worker.StartLocalActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002
        input.headers = _add_log_context_header(input.headers, **self._context)
        return super().start_local_activity(input)

    async def start_child_workflow(
        self,
        input: worker.StartChildWorkflowInput,  # noqa: A002
    ) -> ChildWorkflowHandle[Any, Any]:
        input.headers = _add_log_context_header(input.headers, **self._context)
        return await super().start_child_workflow(input)

    def continue_as_new(self, input: worker.ContinueAsNewInput) -> NoReturn:  # noqa: A002
        input.headers = _add_log_context_header(input.headers, **self._context)
        super().continue_as_new(input)

"""What happens around every activity and workflow: log context, a metric, and faults turned into results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from temporalio import activity, workflow
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, is_cancelled_exception
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from domain.faults import Fault
from infra import log, metrics

FAULT_TYPE = "Fault"

_log = log.get(__name__)


class ContextInterceptor(Interceptor):
    """Installs the two interceptors below on every worker and replayer."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        return _Activity(next)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """See base class."""
        return _Workflow


class _Activity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        with (
            log.bound(workflow_id=info.workflow_id, activity=info.activity_type, attempt=info.attempt),
            _told(info.activity_type),
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
def _told(activity_type: str) -> Iterator[None]:
    """Log and measure how the body ends."""
    started = time.perf_counter()
    outcome, error = "done", None
    try:
        yield
    except BaseException as raised:
        error = repr(raised)
        outcome = _outcome(raised)
        raise
    finally:
        seconds = time.perf_counter() - started
        metrics.ACTIVITIES.labels(activity_type, outcome).observe(seconds)
        write = _log.warning if outcome == "failed" else _log.info
        write("activity_ended", outcome=outcome, seconds=round(seconds, 3), **({"error": error} if error else {}))


def _outcome(raised: BaseException) -> str:
    if isinstance(raised, ApplicationError) and raised.type == FAULT_TYPE:
        return "fault"
    return "cancelled" if is_cancelled_exception(raised) else "failed"


class _Workflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        info = workflow.info()
        with log.bound(workflow_id=info.workflow_id, workflow=info.workflow_type):
            return await super().execute_workflow(input)

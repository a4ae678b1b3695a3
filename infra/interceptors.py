"""What happens around every activity and workflow: log context, a metric, and faults turned into results."""

from __future__ import annotations

import time
from typing import Any

import structlog
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
        started = time.perf_counter()
        outcome = "failed"
        with structlog.contextvars.bound_contextvars(
            workflow_id=info.workflow_id, activity=info.activity_type, attempt=info.attempt
        ):
            try:
                result = await self.next.execute_activity(input)
                outcome = "done"
            except Fault as fault:
                outcome = "fault"
                raise ApplicationError(
                    fault.record.sentence,
                    fault.record,
                    type=FAULT_TYPE,
                    non_retryable=True,
                    category=ApplicationErrorCategory.BENIGN,
                ) from None
            except BaseException as error:
                outcome = "cancelled" if is_cancelled_exception(error) else "failed"
                if outcome == "failed":
                    log.get(__name__).warning("activity_failed", error=repr(error))
                raise
            else:
                return result
            finally:
                metrics.ACTIVITIES.labels(info.activity_type, outcome).observe(time.perf_counter() - started)


class _Workflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        info = workflow.info()
        with structlog.contextvars.bound_contextvars(workflow_id=info.workflow_id, workflow=info.workflow_type):
            return await super().execute_workflow(input)

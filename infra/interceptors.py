"""Interceptors of the engine's client and workers: log context, metrics, faults, and links to the console."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

from temporalio import activity, client, worker, workflow
from temporalio.client import ScheduleActionStartWorkflow, ScheduleUpdate, ScheduleUpdateInput, WorkflowHandle
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, is_cancelled_exception
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)
from temporalio.workflow import ChildWorkflowHandle

from domain.faults import Fault
from infra import log, metrics

FAULT_TYPE = "Fault"

_RUN: Final = r"(?:-\d{4}-\d\d-\d\dT[0-9:.]+Z)?"
"""The suffix of the workflow ids that a schedule starts."""

_PAGES: Final = tuple(
    (re.compile(pattern), find_page)
    for pattern, find_page in (
        (r"download:(?P<project>[^:]+):(?P<task>.+)", "/downloads/{task}?project={project}"),
        (r"webhook:(?P<project>[^:]+):.+", "/downloads?project_id={project}"),
        (r"(?P<job>AsyncDownloadJob:.+)", "/transfers/jobs/{job}"),
        (rf"order-cycle:(?P<platform>.+?){_RUN}", "/orders/platforms/{platform}"),
        (
            r"order-slice:(?P<platform>[^:]+):(?P<slice>[^:]+:[^:]+)(?::.+)?",
            "/orders/platforms/{platform}/slices/{slice}",
        ),
        (r"order-report:(?P<platform>[^:]+):.+", "/orders/platforms/{platform}"),
        (rf"orders-watch{_RUN}", "/orders"),
        (r"addresses-purge:(?P<purge>.+)", "/addresses/logical-deletes/purges/{purge}"),
        (r"addresses-drift:(?P<report>.+)", "/addresses/drift/{report}"),
        (rf"addresses-check{_RUN}", "/addresses/logical-deletes"),
        (rf"addresses-intake:.+|OSS_IM_INFI_SYNC_EVENT{_RUN}", "/addresses"),
        (r"tasks/(?P<project>[^/]+)/(?P<type>[^/]+)/\d+", "/tasks/types/{type}?project={project}"),
        (rf"[a-z]+-housekeeping{_RUN}", ""),
    )
)

_log = log.get(__name__)


class ContextInterceptor(worker.Interceptor):
    """Log and measure every activity, bind ids to log lines, and report a `Fault` as an error that is not retried."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        return _ContextActivity(next)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """See base class."""
        return _ContextWorkflow


class _ContextActivity(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        with (
            log.bound_fields(workflow_id=info.workflow_id, activity=info.activity_type, attempt=info.attempt),
            _log_outcome(info.activity_type),
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
def _log_outcome(activity_type: str) -> Iterator[None]:
    """Log and measure how the body ends."""
    started = time.perf_counter()
    outcome, error = "done", None
    try:
        yield
    except BaseException as raised:
        error = repr(raised)
        outcome = _classify(raised)
        raise
    finally:
        seconds = time.perf_counter() - started
        metrics.ACTIVITIES.labels(activity_type, outcome).observe(seconds)
        write = _log.warning if outcome == "failed" else _log.info
        write("activity_ended", outcome=outcome, seconds=round(seconds, 3), **({"error": error} if error else {}))


def _classify(raised: BaseException) -> str:
    if isinstance(raised, ApplicationError) and raised.type == FAULT_TYPE:
        return "fault"
    return "cancelled" if is_cancelled_exception(raised) else "failed"


class _ContextWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:  # noqa: A002
        info = workflow.info()
        with log.bound_fields(workflow_id=info.workflow_id, workflow=info.workflow_type):
            return await super().execute_workflow(input)


class ConsoleLinkInterceptor(client.Interceptor, worker.Interceptor):
    """Link every workflow that a client, a schedule or a parent starts to its page in the console.

    Args:
        base: Scheme and host of the console; empty for no links.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._workflow = type("_LinkWorkflow", (_LinkWorkflow,), {"base": base})

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002
        """See base class."""
        return _LinkClient(next, self._base)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """See base class."""
        return self._workflow


class _LinkClient(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_workflow(self, input: client.StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        input.static_details = build_details(self._base, input.id)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self,
        input: client.StartWorkflowUpdateWithStartInput,  # noqa: A002
    ) -> client.WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        start.static_details = build_details(self._base, start.id)
        return await super().start_update_with_start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:  # noqa: A002
        self._add_link(input.schedule)
        return await super().create_schedule(input)

    async def update_schedule(self, input: client.UpdateScheduleInput) -> None:  # noqa: A002
        input.updater = self._wrap_updater(input.updater)
        await super().update_schedule(input)

    def _wrap_updater(self, updater: Callable[[ScheduleUpdateInput], Any]) -> Callable[[ScheduleUpdateInput], Any]:
        def update(current: ScheduleUpdateInput) -> Any:
            changed = updater(current)
            if isinstance(changed, ScheduleUpdate):
                self._add_link(changed.schedule)
            return changed

        return update

    def _add_link(self, schedule: client.Schedule) -> None:
        if isinstance(schedule.action, ScheduleActionStartWorkflow):
            schedule.action.static_details = build_details(self._base, schedule.action.id)


class _LinkWorkflow(WorkflowInboundInterceptor):
    base = ""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        super().init(_LinkOutbound(outbound, self.base))


class _LinkOutbound(worker.WorkflowOutboundInterceptor):
    def __init__(self, next: worker.WorkflowOutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_child_workflow(
        self,
        input: worker.StartChildWorkflowInput,  # noqa: A002
    ) -> ChildWorkflowHandle[Any, Any]:
        # A replay does not compare details, so that they may change from one version to the next.
        input.static_details = build_details(self._base, input.id)
        return await super().start_child_workflow(input)


def find_page(workflow_id: str) -> str | None:
    """Return the path of the page that shows a workflow; None if there is none."""
    for pattern, path in _PAGES:
        if match := pattern.fullmatch(workflow_id):
            return "/console" + path.format_map(
                {name: quote(text, safe="") for name, text in match.groupdict().items()}
            )
    return None


def build_details(base: str, workflow_id: str) -> str | None:
    """Return the link to a workflow's page in Markdown; None if it has none, or the console's address is not set."""
    path = find_page(workflow_id) if base else None
    return path and f"[Open in the console]({base.rstrip('/')}{path})"

"""Links from each workflow in the engine to its page in the console."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from temporalio import client, worker
from temporalio.client import ScheduleActionStartWorkflow, ScheduleUpdate, ScheduleUpdateInput, WorkflowHandle
from temporalio.worker import WorkflowInboundInterceptor, WorkflowInterceptorClassInput
from temporalio.workflow import ChildWorkflowHandle

from domain.webhooks import WebhookDeliveryInput

_RUN: Final = r"(?:-\d{4}-\d\d-\d\dT[0-9:.]+Z)?"
"""The suffix of the workflow ids that a schedule starts."""

_PAGES: Final = tuple(
    (re.compile(pattern), find_page)
    for pattern, find_page in (
        (r"download:(?P<project>[^:]+):(?P<task>.+)", "/downloads/{task}?project={project}"),
        (r"(?P<job>AsyncDownloadJob:.+)", "/transfers/jobs/{job}"),
        (rf"order-cycle:(?P<platform>.+?){_RUN}", "/orders/platforms/{platform}"),
        (
            r"order-slice:(?P<platform>[^:]+):(?P<slice>[^:]+:[^:]+)(?::.+)?",
            "/orders/platforms/{platform}/slices/{slice}",
        ),
        (r"order-backfill:(?P<platform>[^:]+):.+", "/orders/platforms/{platform}?tab=backfills"),
        (r"order-report:(?P<platform>[^:]+):.+", "/orders/platforms/{platform}"),
        (rf"orders-watch{_RUN}", "/orders"),
        (r"addresses-purge:(?P<purge>.+)", "/addresses/logical-deletes/purges/{purge}"),
        (r"addresses-comparison:(?P<comparison>.+)", "/addresses/comparisons/{comparison}"),
        (rf"addresses-check{_RUN}", "/addresses/logical-deletes"),
        (rf"addresses-intake:.+|OSS_IM_INFI_SYNC_EVENT{_RUN}", "/addresses"),
        (r"tasks/(?P<project>[^/]+)/(?P<type>[^/]+)/\d+", "/tasks/types/{type}?project={project}"),
        (rf"[a-z]+-housekeeping{_RUN}", ""),
    )
)

_PAGES_OF_OWNERS: Final = {
    "downloads": "/downloads/{owner}?project={project}",
    "orders": "/orders/platforms/{owner}",
}
"""By the system of what a webhook is about."""


class ConsoleLinkInterceptor(client.Interceptor, worker.Interceptor):
    """Link every workflow that a client, a schedule or a parent starts to its page in the console.

    Args:
        base: Scheme and host of the console; empty for no links.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._workflow = type("_ConsoleLinkWorkflowInterceptor", (_ConsoleLinkWorkflowInterceptor,), {"base": base})

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002
        """See base class."""
        return _ConsoleLinkClientInterceptor(next, self._base)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002
        """See base class."""
        return self._workflow


class _ConsoleLinkClientInterceptor(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_workflow(self, input: client.StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        input.static_details = build_markdown_console_link(self._base, input.id, input.args)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self,
        input: client.StartWorkflowUpdateWithStartInput,  # noqa: A002
    ) -> client.WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        start.static_details = build_markdown_console_link(self._base, start.id, start.args)
        return await super().start_update_with_start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:  # noqa: A002
        self._add_link(input.schedule)
        return await super().create_schedule(input)

    async def update_schedule(self, input: client.UpdateScheduleInput) -> None:  # noqa: A002
        input.updater = self._wrap_updater(input.updater)
        await super().update_schedule(input)

    def _wrap_updater(self, updater: Callable[[ScheduleUpdateInput], Any]) -> Callable[[ScheduleUpdateInput], Any]:
        def update_and_add_link(current: ScheduleUpdateInput) -> Any:
            changed = updater(current)
            if isinstance(changed, ScheduleUpdate):
                self._add_link(changed.schedule)
            return changed

        return update_and_add_link

    def _add_link(self, schedule: client.Schedule) -> None:
        if isinstance(schedule.action, ScheduleActionStartWorkflow):
            schedule.action.static_details = build_markdown_console_link(self._base, schedule.action.id)


class _ConsoleLinkWorkflowInterceptor(WorkflowInboundInterceptor):
    base = ""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        super().init(_ConsoleLinkOutboundInterceptor(outbound, self.base))


class _ConsoleLinkOutboundInterceptor(worker.WorkflowOutboundInterceptor):
    def __init__(self, next: worker.WorkflowOutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_child_workflow(
        self,
        input: worker.StartChildWorkflowInput,  # noqa: A002
    ) -> ChildWorkflowHandle[Any, Any]:
        # A replay does not compare details, so that they may change from one version to the next.
        input.static_details = build_markdown_console_link(self._base, input.id, input.args)
        return await super().start_child_workflow(input)


def build_console_path_of_workflow(workflow_id: str, args: Sequence[object] = ()) -> str | None:
    """Return the path of the page that shows a workflow; None if there is none.

    Args:
        args: Those of the workflow: only they say what a webhook is about.
    """
    match args:
        case [WebhookDeliveryInput(project_id=project, owner=owner)] if page := _PAGES_OF_OWNERS.get(owner.system):
            return _fill_path(page, {"project": project, "owner": owner.id})
    for pattern, path in _PAGES:
        if match := pattern.fullmatch(workflow_id):
            return _fill_path(path, match.groupdict())
    return None


def build_markdown_console_link(base: str, workflow_id: str, args: Sequence[object] = ()) -> str | None:
    """Return the link to a workflow's page in Markdown; None if it has none, or the console's address is not set."""
    path = build_console_path_of_workflow(workflow_id, args) if base else None
    return path and f"[Open in the console]({base.rstrip('/')}{path})"


def _fill_path(path: str, values: Mapping[str, str]) -> str:
    return "/console" + path.format_map({name: quote(text, safe="") for name, text in values.items()})

"""The way back: what is started in the engine says where the console shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from temporalio import client, worker
from temporalio.client import ScheduleActionStartWorkflow, ScheduleUpdate, ScheduleUpdateInput, WorkflowHandle
from temporalio.workflow import ChildWorkflowHandle

from domain import console


class Backlinks(client.Interceptor, worker.Interceptor):
    """Puts the console's page into the fixed details of workflows, whoever starts them: a client, a schedule, a parent.

    Args:
        base: Scheme and host of the console; empty for no links.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._workflow = type("_Workflow", (_Workflow,), {"base": base})

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002 (the SDK's name)
        """See base class."""
        return _Client(next, self._base)

    def workflow_interceptor_class(
        self,
        input: worker.WorkflowInterceptorClassInput,  # noqa: A002
    ) -> type[worker.WorkflowInboundInterceptor]:
        """See base class."""
        return self._workflow


class _Client(client.OutboundInterceptor):
    def __init__(self, next: client.OutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_workflow(self, input: client.StartWorkflowInput) -> WorkflowHandle[Any, Any]:  # noqa: A002
        input.static_details = console.build_details(self._base, input.id)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self,
        input: client.StartWorkflowUpdateWithStartInput,  # noqa: A002
    ) -> client.WorkflowUpdateHandle[Any]:
        begun = input.start_workflow_input
        begun.static_details = console.build_details(self._base, begun.id)
        return await super().start_update_with_start_workflow(input)

    async def create_schedule(self, input: client.CreateScheduleInput) -> client.ScheduleHandle:  # noqa: A002
        self._lead_back(input.schedule)
        return await super().create_schedule(input)

    async def update_schedule(self, input: client.UpdateScheduleInput) -> None:  # noqa: A002
        input.updater = self._leading_back(input.updater)
        await super().update_schedule(input)

    def _leading_back(self, updater: Callable[[ScheduleUpdateInput], Any]) -> Callable[[ScheduleUpdateInput], Any]:
        def update(found: ScheduleUpdateInput) -> Any:
            wanted = updater(found)
            if isinstance(wanted, ScheduleUpdate):
                self._lead_back(wanted.schedule)
            return wanted

        return update

    def _lead_back(self, schedule: client.Schedule) -> None:
        if isinstance(schedule.action, ScheduleActionStartWorkflow):
            schedule.action.static_details = console.build_details(self._base, schedule.action.id)


class _Workflow(worker.WorkflowInboundInterceptor):
    base = ""

    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound, self.base))


class _Outbound(worker.WorkflowOutboundInterceptor):
    def __init__(self, next: worker.WorkflowOutboundInterceptor, base: str) -> None:  # noqa: A002
        super().__init__(next)
        self._base = base

    async def start_child_workflow(
        self,
        input: worker.StartChildWorkflowInput,  # noqa: A002
    ) -> ChildWorkflowHandle[Any, Any]:
        # The engine compares no details when it leads a history on, so that they may change between two versions.
        input.static_details = console.build_details(self._base, input.id)
        return await super().start_child_workflow(input)

"""The plan of a delivery: attempt, pause, attempt again, until the receiver takes it or the ladder ends."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from datetime import timedelta

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from activities.webhooks.steps import WebhookSteps
    from domain.webhooks import names
    from domain.webhooks.deliveries import AttemptOrder, DeliveryState, Progress, WebhookOrder
    from infra import temporal
    from workflows.activity_calls import SHORT_ACTIVITY, WEBHOOK_ATTEMPT, without_retry_on
    from workflows.webhooks.handle import priority, search_attributes


# An event that makes no body never will.
_ENTERING = without_retry_on(SHORT_ACTIVITY, ValueError)


def new_delivery_id() -> str:
    """An id for an order that a workflow is about to announce."""
    return f"msg_{workflow.uuid4().hex}"


async def announce(order: WebhookOrder) -> None:
    """Start a delivery from another plan, which need not live as long; announcing the same order again does nothing."""
    with suppress(WorkflowAlreadyStartedError):
        await workflow.start_child_workflow(
            WebhookDelivery.run,
            order,
            id=names.workflow_id(order.project_id, order.delivery_id),
            task_queue=names.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=ParentClosePolicy.ABANDON,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            search_attributes=search_attributes(order),
            static_summary=f"tell {order.event.type}",
            priority=priority(order),
        )


@workflow.defn(name=names.DELIVERY_WORKFLOW)
class WebhookDelivery:
    """One event for one receiver, once up the ladder."""

    @workflow.init
    def __init__(self, order: WebhookOrder) -> None:
        self._order = order
        self._progress = Progress()
        self._asked = False

    @workflow.run
    async def run(self, order: WebhookOrder) -> Progress:
        """Read this as the story."""
        self._tell(Progress(state=await self._enter()))
        if self._progress.state is DeliveryState.DISABLED and not self._asked:
            return self._progress
        for number in itertools.count(1):
            self._asked = False
            self._tell(await self._attempt(number))
            if await self._asked_meanwhile():
                workflow.continue_as_new(order.model_copy(update={"redelivery": True}))
            if self._progress.pause_seconds is None:
                break
        return self._progress

    @workflow.signal(name=names.REDELIVER)
    def redeliver(self) -> None:
        """Attempt it now, and begin the ladder anew."""
        self._asked = True

    @workflow.query
    def status(self) -> Progress:
        """Where the delivery stands."""
        return self._progress

    async def _enter(self) -> DeliveryState:
        # Local, so that a new delivery needs no slot among attempts that wait for slow receivers.
        return await workflow.execute_local_activity_method(
            WebhookSteps.enter,
            self._order,
            **_ENTERING,
        )

    async def _attempt(self, number: int) -> Progress:
        return await workflow.execute_activity_method(
            WebhookSteps.attempt,
            AttemptOrder(delivery_id=self._order.delivery_id, number=number),
            **WEBHOOK_ATTEMPT,
            summary=f"attempt {number}",
        )

    async def _asked_meanwhile(self) -> bool:
        """Whether somebody asks for a redelivery before the next attempt is due, or has asked during the last."""
        pause = self._progress.pause_seconds
        if pause is None or self._asked:
            return self._asked
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._asked,
                timeout=timedelta(seconds=pause),
                timeout_summary=f"pause before attempt {self._progress.number + 1}",
            )
        return self._asked

    def _tell(self, progress: Progress) -> None:
        """Show where the delivery stands in the search attributes and the Web UI."""
        self._progress = progress
        workflow.upsert_search_attributes([temporal.STATE.value_set(progress.state)])
        workflow.set_current_details(f"**{progress.state}**, attempts: {progress.number}. {progress.error or ''}")

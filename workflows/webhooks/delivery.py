"""The workflow of a delivery: attempt, pause, attempt again, until the receiver accepts it or no retry is left."""

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
    from activities.webhooks import WebhookActivities
    from domain import webhooks
    from domain.webhooks import DeliveryState, DeliveryStateAfterAttempt, WebhookAttemptInput, WebhookDeliveryInput
    from infra import temporal
    from workflows.activity_calls import SHORT_ACTIVITY, WEBHOOK_ATTEMPT, disable_retry_on_error_types
    from workflows.webhooks.handle import build_priority, build_search_attributes


# An event that is too large for a body stays too large.
_SAVE_DELIVERY = disable_retry_on_error_types(SHORT_ACTIVITY, ValueError)


def create_delivery_id() -> str:
    """Return an id for a delivery that a workflow is about to start."""
    return f"msg_{workflow.uuid4().hex}"


async def start_delivery(delivery: WebhookDeliveryInput) -> None:
    """Start a delivery that may outlive the calling workflow; do nothing if it was started before."""
    with suppress(WorkflowAlreadyStartedError):
        await workflow.start_child_workflow(
            WebhookDelivery.run,
            delivery,
            id=webhooks.build_delivery_workflow_id(delivery.project_id, delivery.delivery_id),
            task_queue=webhooks.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            parent_close_policy=ParentClosePolicy.ABANDON,
            cancellation_type=ChildWorkflowCancellationType.ABANDON,
            search_attributes=build_search_attributes(delivery),
            static_summary=f"deliver {delivery.event.type}",
            priority=build_priority(delivery),
        )


@workflow.defn(name=webhooks.DELIVERY_WORKFLOW)
class WebhookDelivery:
    """One event for one receiver, with all its attempts."""

    @workflow.init
    def __init__(self, delivery: WebhookDeliveryInput) -> None:
        self._delivery = delivery
        self._progress = DeliveryStateAfterAttempt()
        self._redelivery_requested = False

    @workflow.run
    async def run(self, delivery: WebhookDeliveryInput) -> DeliveryStateAfterAttempt:
        """Save the delivery, then attempt it until it ends; return its last state."""
        self._keep_and_publish_progress(DeliveryStateAfterAttempt(state=await self._insert_delivery_or_make_pending()))
        if self._progress.state is DeliveryState.DISABLED and not self._redelivery_requested:
            return self._progress
        redelivery = delivery.redelivery or self._redelivery_requested
        for number in itertools.count(1):
            self._redelivery_requested = False
            self._keep_and_publish_progress(await self._make_attempt(number, redelivery=redelivery))
            if await self._wait_for_attempt_or_redelivery():
                workflow.continue_as_new(delivery.model_copy(update={"redelivery": True}))
            if self._progress.pause_seconds is None:
                break
        return self._progress

    @workflow.signal(name=webhooks.REDELIVER)
    def redeliver(self) -> None:
        """Attempt it now, with a full set of retries."""
        self._redelivery_requested = True

    @workflow.query
    def status(self) -> DeliveryStateAfterAttempt:
        """Return the state of the delivery."""
        return self._progress

    async def _insert_delivery_or_make_pending(self) -> DeliveryState:
        # A local activity needs no slot among attempts that wait for slow receivers.
        return await workflow.execute_local_activity_method(
            WebhookActivities.insert_delivery_or_make_pending,
            self._delivery,
            **_SAVE_DELIVERY,
        )

    async def _make_attempt(self, number: int, *, redelivery: bool) -> DeliveryStateAfterAttempt:
        return await workflow.execute_activity_method(
            WebhookActivities.attempt_delivery,
            WebhookAttemptInput(delivery_id=self._delivery.delivery_id, number=number, redelivery=redelivery),
            **WEBHOOK_ATTEMPT,
            summary=f"attempt {number}",
        )

    async def _wait_for_attempt_or_redelivery(self) -> bool:
        """Wait until the next attempt is due; return early with True if a redelivery was requested."""
        pause = self._progress.pause_seconds
        if pause is None or self._redelivery_requested:
            return self._redelivery_requested
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._redelivery_requested,
                timeout=timedelta(seconds=pause),
                timeout_summary=f"pause before attempt {self._progress.number + 1}",
            )
        return self._redelivery_requested

    def _keep_and_publish_progress(self, progress: DeliveryStateAfterAttempt) -> None:
        """Keep the state, and show it in the search attributes and the Web UI."""
        self._progress = progress
        workflow.upsert_search_attributes([temporal.STATE.value_set(progress.state)])
        workflow.set_current_details(f"**{progress.state}**, attempts: {progress.number}. {progress.error or ''}")

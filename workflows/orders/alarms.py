"""Alarms: signed webhooks to a platform's administrator, delivered even if the workflow that sends them ends."""

from __future__ import annotations

from collections.abc import Iterable

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from domain.orders import names
    from domain.orders.activity_models import Alarm
    from domain.webhooks import WebhookDeliveryInput, WebhookEvent, WebhookOwner
    from workflows.webhooks import delivery


async def send_alarms(alarms: Iterable[Alarm]) -> None:
    """Start the delivery of each alarm."""
    for alarm in alarms:
        event = WebhookEvent(
            type=alarm.type,
            timestamp=workflow.now(),
            data={"platform": alarm.platform, "message": alarm.message},
        )
        await delivery.start_delivery(
            WebhookDeliveryInput(
                delivery_id=delivery.create_delivery_id(),
                project_id=alarm.project_id,
                owner=WebhookOwner(system=names.SYSTEM, id=alarm.platform),
                url=alarm.notify,
                event=event,
            )
        )

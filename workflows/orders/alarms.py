"""Alarms to the administrators of platforms: the workflow that looks for their causes, and how a workflow sends one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.orders.activities import PlatformActivities
    from activities.orders.watch import OverdueScanActivities, PlatformPresenceActivities
    from domain.orders import names
    from domain.orders.activity_models import OrderWatchPatienceInput, PlatformAlarm, ServedPlatformsResult
    from domain.webhooks import WebhookDeliveryInput, WebhookEvent, WebhookEventSubject
    from workflows.activity_calls import PRESENCE_CHECK, PROMPT_ACTIVITY
    from workflows.webhooks import delivery


async def start_alarm_deliveries(alarms: Iterable[PlatformAlarm]) -> None:
    """Start the delivery of each alarm; it is delivered even if the workflow that sends it ends."""
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
                owner=WebhookEventSubject(system=names.SYSTEM, id=alarm.platform),
                url=alarm.notify,
                event=event,
            )
        )


@workflow.defn(name=names.WATCH_WORKFLOW)
class OrderWatchWorkflow:
    """One check of all platforms: alarms about those without a worker, stale slices and lost backfills."""

    def __init__(self) -> None:
        self._presence: ServedPlatformsResult | None = None

    @workflow.run
    async def run(self, params: OrderWatchPatienceInput) -> ServedPlatformsResult:
        """Check all platforms once."""
        watched = await workflow.execute_activity_method(PlatformPresenceActivities.list_platforms, **PROMPT_ACTIVITY)
        presence = self._presence = await _find_served_and_unserved(watched.platforms, params.patience_seconds)
        result = await workflow.execute_activity_method(
            PlatformPresenceActivities.record_unserved_and_alarm_newly_unserved, presence, **PROMPT_ACTIVITY
        )
        await start_alarm_deliveries(result.alarms)
        result = await workflow.execute_activity_method(
            OverdueScanActivities.report_stale_slices_and_close_lost_backfills, **PROMPT_ACTIVITY
        )
        await start_alarm_deliveries(result.alarms)
        return presence

    @workflow.query
    def status(self) -> ServedPlatformsResult | None:
        """Return which platforms are served; None until all were asked."""
        return self._presence


async def _find_served_and_unserved(platforms: list[str], patience_seconds: float) -> ServedPlatformsResult:
    """Return which platforms a worker answers for; one is unserved if two requests in a row get no answer.

    A single missing answer shows only that the machine is busy: 49 of such alarms were false on one of two cores.
    """
    served = await _find_served_platforms(platforms, patience_seconds)
    if missing := [platform for platform in platforms if platform not in served]:
        served |= await _find_served_platforms(missing, patience_seconds)
    return ServedPlatformsResult(
        served=[platform for platform in platforms if platform in served],
        unserved=[platform for platform in platforms if platform not in served],
    )


async def _find_served_platforms(platforms: list[str], patience_seconds: float) -> set[str]:
    """Send a request to all platforms at once; return those for which a worker answers within the time."""
    handles = {
        platform: workflow.start_activity_method(
            PlatformActivities.answer_presence,
            task_queue=names.build_control_queue_name(platform),
            schedule_to_start_timeout=timedelta(seconds=patience_seconds),
            **PRESENCE_CHECK,
            summary=f"is platform {platform} served?",
        )
        for platform in platforms
    }
    served = set()
    for platform, handle in handles.items():
        try:
            await handle
        except ActivityError:
            continue
        served.add(platform)
    return served

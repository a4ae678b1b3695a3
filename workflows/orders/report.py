"""The plan of a report: compare a day with the platform, as often as it takes."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.orders.reporting import OrderReporting
    from domain.orders import places
    from domain.orders.steps import Report, ReportOrder

_SECONDS = timedelta(hours=6)
_HEARTBEAT_SECONDS = timedelta(seconds=10)
_TRIES = RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=20)
_LAST = 5


@workflow.defn
class OrderReport:
    """One day of one platform."""

    @workflow.run
    async def run(self, order: ReportOrder) -> Report:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            OrderReporting.report,
            order,
            task_queue=places.slice_queue(order.platform),
            start_to_close_timeout=_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_TRIES,
            priority=Priority(priority_key=_LAST),
            summary=f"compare {order.day}",
        )

"""Housekeeping of one system, run by its schedule on the system's own queue."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from domain import housekeeping
    from domain.housekeeping import HousekeepingOrder, HousekeepingReport

_SECONDS = timedelta(minutes=10)
_HEARTBEAT_SECONDS = timedelta(seconds=30)
# The next run of the schedule tries again anyway.
_TRIES = RetryPolicy(maximum_attempts=5)


@workflow.defn(name=housekeeping.WORKFLOW)
class HousekeepingWorkflow:
    """Removes what is past its time."""

    def __init__(self) -> None:
        self._removed: dict[str, JsonValue] = {}

    @workflow.run
    async def run(self, order: HousekeepingOrder) -> HousekeepingReport:
        """Run one activity after the other."""
        for name in order.activities:
            # By name: a workflow of all systems knows the activities of none.
            self._removed[name] = await workflow.execute_activity(
                name,
                start_to_close_timeout=_SECONDS,
                heartbeat_timeout=_HEARTBEAT_SECONDS,
                retry_policy=_TRIES,
            )
        return HousekeepingReport(removed=self._removed)

    @workflow.query(name="status")
    def status(self) -> HousekeepingReport:
        """What was removed so far."""
        return HousekeepingReport(removed=self._removed)

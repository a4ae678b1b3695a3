"""The plan of housekeeping, run by a schedule: expire batch by batch, then sweep."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.downloads.housekeeping import DownloadHousekeeping
    from domain.downloads.housekeeping import Swept

_SECONDS = timedelta(minutes=10)
_HEARTBEAT_SECONDS = timedelta(seconds=30)
# The next run of the schedule tries again anyway.
_TRIES = RetryPolicy(maximum_attempts=5)


@workflow.defn
class HousekeepingWorkflow:
    """Keeps the store to what somebody still wants."""

    @workflow.run
    async def run(self) -> Swept:
        """Read this as the story."""
        while (
            await workflow.execute_activity_method(
                DownloadHousekeeping.expire,
                start_to_close_timeout=_SECONDS,
                heartbeat_timeout=_HEARTBEAT_SECONDS,
                retry_policy=_TRIES,
            )
        ).more:
            pass
        return await workflow.execute_activity_method(
            DownloadHousekeeping.sweep,
            start_to_close_timeout=_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_TRIES,
        )

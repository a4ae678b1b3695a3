"""The plan of housekeeping, run by a schedule: expire batch by batch, sweep, purge what was told long ago."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.addresses.housekeeping import AddressHousekeeping
    from activities.downloads.housekeeping import DownloadHousekeeping
    from activities.orders.housekeeping import OrderHousekeeping
    from activities.tasks.housekeeping import TaskHousekeeping
    from activities.transfers.housekeeping import TransferHousekeeping
    from activities.webhooks.housekeeping import WebhookHousekeeping
    from domain.downloads import names as downloads_names
    from domain.downloads.housekeeping import Swept

Report = TypeVar("Report")

_SECONDS = timedelta(minutes=10)
_HEARTBEAT_SECONDS = timedelta(seconds=30)
# The next run of the schedule tries again anyway.
_TRIES = RetryPolicy(maximum_attempts=5)


@workflow.defn(name=downloads_names.HOUSEKEEPING_WORKFLOW)
class HousekeepingWorkflow:
    """Keeps store and tables to what somebody still wants."""

    @workflow.run
    async def run(self) -> Swept:
        """Read this as the story."""
        while (await self._step(DownloadHousekeeping.expire)).more:
            pass
        swept = await self._step(DownloadHousekeeping.sweep)
        await self._step(WebhookHousekeeping.purge)
        if workflow.patched("transfers-purged"):
            await self._step(TransferHousekeeping.purge)
        if workflow.patched("orders-purged"):
            await self._step(OrderHousekeeping.purge)
        if workflow.patched("addresses-purged"):
            await self._step(AddressHousekeeping.purge)
        if workflow.patched("task-runs-purged"):
            await self._step(TaskHousekeeping.purge)
        return swept

    async def _step(self, method: Callable[[Any], Awaitable[Report]]) -> Report:
        return await workflow.execute_activity_method(
            method,  # type: ignore[arg-type] # the SDK's protocol asks for a parameter that is named `self`
            start_to_close_timeout=_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_TRIES,
        )

"""The plans beside the cycle: check logical deletes, purge them, compare the modules."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import workflow
from temporalio.common import RetryPolicy

with workflow.unsafe.imports_passed_through():
    from activities.addresses.purging import LogicalDeletes
    from activities.addresses.reporting import DriftReporting
    from domain.addresses import names
    from domain.addresses.drift import DriftOrder, DriftReport
    from domain.addresses.logical import CheckReport, PurgeOrder, PurgeReport

_HEARTBEAT_TIMEOUT: Final = timedelta(seconds=10)
_CHECK_TIMEOUT: Final = timedelta(hours=6)
_PURGE_TIMEOUT: Final = timedelta(minutes=10)
_DRIFT_TIMEOUT: Final = timedelta(hours=6)
_PATIENTLY: Final = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=30))
# A module that is away makes no report; whoever wants one asks again.
_DRIFT_TRIES: Final = RetryPolicy(initial_interval=timedelta(seconds=10), maximum_attempts=5)


@workflow.defn(name=names.CHECK_WORKFLOW)
class AddressCheck:
    """All listed addresses, once."""

    @workflow.run
    async def run(self) -> CheckReport:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            LogicalDeletes.check,
            start_to_close_timeout=_CHECK_TIMEOUT,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
            retry_policy=_PATIENTLY,
        )


@workflow.defn(name=names.PURGE_WORKFLOW)
class AddressPurge:
    """Some of them, because somebody ordered it."""

    @workflow.run
    async def run(self, order: PurgeOrder) -> PurgeReport:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            LogicalDeletes.purge,
            order,
            start_to_close_timeout=_PURGE_TIMEOUT,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
            retry_policy=_PATIENTLY,
            summary=f"purge {len(order.address_ids)} for {order.who}",
        )


@workflow.defn(name=names.DRIFT_WORKFLOW)
class AddressDrift:
    """All addresses of all modules, side by side."""

    @workflow.run
    async def run(self, order: DriftOrder) -> DriftReport:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            DriftReporting.report,
            order,
            start_to_close_timeout=_DRIFT_TIMEOUT,
            heartbeat_timeout=_HEARTBEAT_TIMEOUT,
            retry_policy=_DRIFT_TRIES,
            summary=f"compare modules for {order.report}",
        )

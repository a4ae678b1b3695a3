"""The plans beside the cycle: check logical deletes, purge them, compare the modules."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.purging import LogicalDeletes
    from activities.addresses.reporting import DriftReporting
    from domain.addresses import names
    from domain.addresses.drift import DriftOrder, DriftReport
    from domain.addresses.logical import CheckReport, PurgeOrder, PurgeReport
    from workflows.activity_calls import ADDRESS_BATCH, ADDRESS_CHECK, MODULE_COMPARISON


@workflow.defn(name=names.CHECK_WORKFLOW)
class AddressCheck:
    """All listed addresses, once."""

    @workflow.run
    async def run(self) -> CheckReport:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            LogicalDeletes.check,
            **ADDRESS_CHECK,
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
            **ADDRESS_BATCH,
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
            **MODULE_COMPARISON,
            summary=f"compare modules for {order.report}",
        )

"""Workflows beside the cycle: check logical deletes, purge addresses, compare the modules."""

from __future__ import annotations

from temporalio import workflow

from activities.addresses.drift import DriftActivities
from activities.addresses.logical_deletes import LogicalDeleteActivities
from domain.addresses import names
from domain.addresses.activity_models import (
    CompareModulesInput,
    CompareModulesResult,
    LogicalDeleteCheckResult,
    PurgeAddressesInput,
    PurgeAddressesResult,
)

with workflow.unsafe.imports_passed_through():
    from activities.addresses.drift import DriftActivities
    from activities.addresses.logical_deletes import LogicalDeleteActivities
    from domain.addresses import names
    from domain.addresses.activity_models import (
        CompareModulesInput,
        CompareModulesResult,
        LogicalDeleteCheckResult,
        PurgeAddressesInput,
        PurgeAddressesResult,
    )
    from workflows.activity_calls import ADDRESS_BATCH, ADDRESS_CHECK, MODULE_COMPARISON


@workflow.defn(name=names.CHECK_WORKFLOW)
class AddressCheck:
    """All listed addresses, once."""

    @workflow.run
    async def run(self) -> LogicalDeleteCheckResult:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            LogicalDeleteActivities.check,
            **ADDRESS_CHECK,
        )


@workflow.defn(name=names.PURGE_WORKFLOW)
class AddressPurge:
    """Some of them, because somebody ordered it."""

    @workflow.run
    async def run(self, order: PurgeAddressesInput) -> PurgeAddressesResult:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            LogicalDeleteActivities.purge,
            order,
            **ADDRESS_BATCH,
            summary=f"purge {len(order.address_ids)} for {order.who}",
        )


@workflow.defn(name=names.DRIFT_WORKFLOW)
class AddressDrift:
    """All addresses of all modules, side by side."""

    @workflow.run
    async def run(self, order: CompareModulesInput) -> CompareModulesResult:
        """Read this as the story."""
        return await workflow.execute_activity_method(
            DriftActivities.report,
            order,
            **MODULE_COMPARISON,
            summary=f"compare modules for {order.report}",
        )

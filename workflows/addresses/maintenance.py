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
    """Check all logically deleted addresses."""

    @workflow.run
    async def run(self) -> LogicalDeleteCheckResult:
        return await workflow.execute_activity_method(
            LogicalDeleteActivities.check,
            **ADDRESS_CHECK,
        )


@workflow.defn(name=names.PURGE_WORKFLOW)
class AddressPurge:
    """Purge the addresses that an operator selected."""

    @workflow.run
    async def run(self, params: PurgeAddressesInput) -> PurgeAddressesResult:
        return await workflow.execute_activity_method(
            LogicalDeleteActivities.purge,
            params,
            **ADDRESS_BATCH,
            summary=f"purge {len(params.address_ids)} for {params.who}",
        )


@workflow.defn(name=names.DRIFT_WORKFLOW)
class AddressDrift:
    """Compare the addresses of all modules."""

    @workflow.run
    async def run(self, params: CompareModulesInput) -> CompareModulesResult:
        return await workflow.execute_activity_method(
            DriftActivities.report,
            params,
            **MODULE_COMPARISON,
            summary=f"compare modules for {params.report}",
        )

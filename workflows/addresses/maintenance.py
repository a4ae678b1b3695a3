"""Workflows beside the cycle: intake, checks of logical deletes, purges, and comparisons of the modules."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.activities import LogicalDeleteActivities
    from activities.addresses.drift import ComparisonActivities
    from activities.addresses.intake import AddressIntakeActivities
    from domain.addresses import names
    from domain.addresses.activity_models import (
        AddressIdsByPurgeOutcome,
        ComparisonIdInput,
        IntakeMessageCounts,
        IntakeTopicAndCarriedCounts,
        LogicalDeleteCheckCounts,
        ModuleComparisonCounts,
        PulledMessageCountsOrOff,
        PullTopicInput,
        PurgeAddressesInput,
    )
    from infra import temporal
    from workflows.activity_calls import ADDRESS_BATCH, ADDRESS_CHECK, MODULE_COMPARISON
    from workflows.run_length import is_run_long


@workflow.defn(name=names.INTAKE_WORKFLOW)
class AddressIntake:
    """The intake of one topic."""

    @workflow.init
    def __init__(self, params: IntakeTopicAndCarriedCounts) -> None:
        self._params = params
        self._taken = params.taken

    @workflow.run
    async def run(self, params: IntakeTopicAndCarriedCounts) -> IntakeMessageCounts:
        while True:
            report = await self._pull_topic_and_count()
            self._taken = self._taken.add(report.taken)
            if report.is_off:
                return self._taken
            workflow.set_current_details(
                f"{self._taken.new:,} messages taken in, {self._taken.repeated:,} delivered again, "
                f"{self._taken.unreadable:,} in quarantine"
            )
            if is_run_long():
                workflow.continue_as_new(params.model_copy(update={"taken": self._taken}))

    @workflow.query
    def status(self) -> IntakeMessageCounts:
        """Return the counts up to the last pull."""
        return self._taken

    async def _pull_topic_and_count(self) -> PulledMessageCountsOrOff:
        return await workflow.execute_activity_method(
            AddressIntakeActivities.pull_messages,
            PullTopicInput(topic=self._params.topic, seconds=self._params.slice_seconds),
            **ADDRESS_BATCH,
            summary=f"pull {self._params.topic}",
        )


@workflow.defn(name=names.CHECK_WORKFLOW)
class LogicalDeleteCheck:
    """Check all logically deleted addresses."""

    def __init__(self) -> None:
        self._result: LogicalDeleteCheckCounts | None = None

    @workflow.run
    async def run(self) -> LogicalDeleteCheckCounts:
        self._result = await workflow.execute_activity_method(
            LogicalDeleteActivities.check_logical_deletes_and_purge_if_configured,
            **ADDRESS_CHECK,
        )
        return self._result

    @workflow.query
    def status(self) -> LogicalDeleteCheckCounts | None:
        """Return the result; None while the check runs."""
        return self._result


@workflow.defn(name=names.PURGE_WORKFLOW)
class SelectedAddressesPurge:
    """Purge the addresses that an operator selected."""

    def __init__(self) -> None:
        self._result: AddressIdsByPurgeOutcome | None = None

    @workflow.run
    async def run(self, params: PurgeAddressesInput) -> AddressIdsByPurgeOutcome:
        self._result = await workflow.execute_activity_method(
            LogicalDeleteActivities.purge_addresses,
            params,
            **ADDRESS_CHECK,
            summary=f"purge {len(params.address_ids)} for {params.who}",
        )
        workflow.upsert_search_attributes([temporal.STATE.value_set(names.SUCCEEDED)])
        return self._result

    @workflow.query
    def status(self) -> AddressIdsByPurgeOutcome | None:
        """Return the result; None while the purge runs."""
        return self._result


@workflow.defn(name=names.COMPARISON_WORKFLOW)
class ModuleComparison:
    """Compare the addresses of all modules."""

    def __init__(self) -> None:
        self._result: ModuleComparisonCounts | None = None

    @workflow.run
    async def run(self, params: ComparisonIdInput) -> ModuleComparisonCounts:
        self._result = await workflow.execute_activity_method(
            ComparisonActivities.compare_modules_and_write_workbook,
            params,
            **MODULE_COMPARISON,
            summary=f"compare modules for {params.comparison_id}",
        )
        workflow.upsert_search_attributes([temporal.STATE.value_set(names.SUCCEEDED)])
        return self._result

    @workflow.query
    def status(self) -> ModuleComparisonCounts | None:
        """Return the result; None while the comparison runs."""
        return self._result

"""The plan of intake: pull a topic, for ever; what comes is in the log before it is acknowledged."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.activities import AddressIntakeActivities
    from domain.addresses import names
    from domain.addresses.activity_models import IntakeInput, IntakeResult, PullInput, PullResult
    from workflows.activity_calls import ADDRESS_BATCH


@workflow.defn(name=names.INTAKE_WORKFLOW)
class AddressIntake:
    """One topic."""

    @workflow.init
    def __init__(self, order: IntakeInput) -> None:
        self._order = order
        self._taken = order.taken

    @workflow.run
    async def run(self, order: IntakeInput) -> IntakeResult:
        """Read this as the story."""
        while True:
            report = await self._pull()
            self._taken = self._taken.add(report.taken)
            if report.is_off:
                return self._taken
            workflow.set_current_details(
                f"{self._taken.new:,} messages taken in, {self._taken.repeated:,} delivered again, "
                f"{self._taken.unreadable:,} in quarantine"
            )
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(order.model_copy(update={"taken": self._taken}))

    @workflow.query
    def status(self) -> IntakeResult:
        """What was taken in until the end of the last slice."""
        return self._taken

    async def _pull(self) -> PullResult:
        return await workflow.execute_activity_method(
            AddressIntakeActivities.pull,
            PullInput(topic=self._order.topic, seconds=self._order.slice_seconds),
            **ADDRESS_BATCH,
            summary=f"pull {self._order.topic}",
        )

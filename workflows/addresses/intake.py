"""Intake: pull a topic without end. Messages are in the log before they are acknowledged."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.addresses.activities import AddressIntakeActivities
    from domain.addresses import names
    from domain.addresses.activity_models import IntakeInput, IntakeResult, PullInput, PullResult
    from workflows.activity_calls import ADDRESS_BATCH


@workflow.defn(name=names.INTAKE_WORKFLOW)
class AddressIntake:
    """The intake of one topic."""

    @workflow.init
    def __init__(self, params: IntakeInput) -> None:
        self._params = params
        self._taken = params.taken

    @workflow.run
    async def run(self, params: IntakeInput) -> IntakeResult:
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
                workflow.continue_as_new(params.model_copy(update={"taken": self._taken}))

    @workflow.query
    def status(self) -> IntakeResult:
        """Return the counts up to the last pull."""
        return self._taken

    async def _pull(self) -> PullResult:
        return await workflow.execute_activity_method(
            AddressIntakeActivities.pull,
            PullInput(topic=self._params.topic, seconds=self._params.slice_seconds),
            **ADDRESS_BATCH,
            summary=f"pull {self._params.topic}",
        )

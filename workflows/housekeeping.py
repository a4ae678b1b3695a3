"""Housekeeping of one system, run by its schedule on the system's own queue."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from domain import housekeeping
    from domain.housekeeping import HousekeepingOrder, HousekeepingReport
    from workflows.step_options import HOUSEKEEPING


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
                **HOUSEKEEPING,
            )
        return HousekeepingReport(removed=self._removed)

    @workflow.query(name="status")
    def status(self) -> HousekeepingReport:
        """What was removed so far."""
        return HousekeepingReport(removed=self._removed)

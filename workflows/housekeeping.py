"""Housekeeping of one system, run by its schedule on the system's own queue."""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from pydantic import JsonValue

    from infra import housekeeping
    from infra.housekeeping import HousekeepingActivityNamesInput, HousekeepingResultsByActivity
    from workflows.activity_calls import HOUSEKEEPING


@workflow.defn(name=housekeeping.WORKFLOW)
class HousekeepingWorkflow:
    """Remove what is past its retention."""

    def __init__(self) -> None:
        self._removed: dict[str, JsonValue] = {}

    @workflow.run
    async def run(self, input_: HousekeepingActivityNamesInput) -> HousekeepingResultsByActivity:
        """Call one activity after the other, also after one that failed; fail with the first failure."""
        failures: list[ActivityError] = []
        for name in input_.activities:
            try:
                # By name: this workflow serves all systems and imports the activities of none.
                self._removed[name] = await workflow.execute_activity(name, **HOUSEKEEPING)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                failures.append(error)
        if failures:
            raise failures[0]
        return HousekeepingResultsByActivity(removed=self._removed)

    @workflow.query(name="status")
    def status(self) -> HousekeepingResultsByActivity:
        """Return what has been removed so far."""
        return HousekeepingResultsByActivity(removed=self._removed)

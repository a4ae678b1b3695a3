"""Housekeeping at once, as the schedule of a system starts it."""

from __future__ import annotations

from itertools import count

from temporalio.client import Client

from infra.housekeeping import HousekeepingActivityNamesInput, HousekeepingResultsByActivity
from systems.protocol import SystemNames
from workflows.housekeeping import HousekeepingWorkflow

_RUNS = count()


async def keep_house(engine: Client, names: SystemNames) -> HousekeepingResultsByActivity:
    """Remove what is past its time in one system; a worker of its queue has to run."""
    return await engine.execute_workflow(
        HousekeepingWorkflow.run,
        HousekeepingActivityNamesInput(activities=names.HOUSEKEEPING),
        id=f"{names.SYSTEM}-housekeeping-now-{next(_RUNS)}",
        task_queue=names.QUEUE,
    )

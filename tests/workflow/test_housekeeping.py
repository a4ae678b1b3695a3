"""The plan of housekeeping: what fails does not keep the others from being removed."""

from __future__ import annotations

import pytest
from temporalio import activity
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from infra import temporal
from infra.housekeeping import HousekeepingActivityNamesInput
from workflows.housekeeping import HousekeepingWorkflow

pytestmark = pytest.mark.stack

QUEUE = "house"


@activity.defn(name="remove_from_full_disk")
async def fail() -> int:
    """Fail, as it will at the next run."""
    raise ApplicationError("The disk is full.", non_retryable=True)


@activity.defn(name="remove_rows")
async def remove() -> int:
    """Remove some."""
    return 7


@pytest.mark.usefixtures("namespace")
async def test_what_comes_after_a_failure_is_removed() -> None:
    """The run fails all the same, so that an operator sees it."""
    engine = await temporal.connect()
    order = HousekeepingActivityNamesInput(activities=("remove_from_full_disk", "remove_rows"))
    async with Worker(engine, task_queue=QUEUE, workflows=[HousekeepingWorkflow], activities=[fail, remove]):
        run = await engine.start_workflow(HousekeepingWorkflow.run, order, id="house", task_queue=QUEUE)
        with pytest.raises(WorkflowFailureError) as failed:
            await run.result()
        status = await run.query(HousekeepingWorkflow.status)

    assert isinstance(failed.value.cause, ActivityError)
    assert "disk is full" in str(failed.value.cause.cause)
    assert status.removed == {"remove_rows": 7}

"""Ids in log lines from the request to the activity, and the two kinds of failure, on a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from infra import log, starts, temporal
from infra.starts import SameIdPolicy, WorkflowStart
from tests.support.downloads import Downloads
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

QUEUE = "told"
FIELDS = ("request_id", "project_id", "workflow_id", "run_id")


@activity.defn(name="tell")
async def tell(cause: str) -> dict[str, str]:
    """Return the ids that the activity's log lines have, or fail."""
    if cause:
        raise ApplicationError("It is broken.", type=cause, non_retryable=True)
    return {name: log.get_bound_field(name) for name in FIELDS}


@activity.defn(name="dawdle")
async def dawdle() -> int:
    """Take longer than the first attempt may; return the number of the attempt."""
    if activity.info().attempt == 1:
        await asyncio.sleep(60)
    return activity.info().attempt


@workflow.defn(name="Dawdling")
class Dawdling:
    """Call an activity that runs into its time limit once."""

    @workflow.run
    async def run(self) -> int:
        """Return the number of the attempt that ended in time."""
        return await workflow.execute_activity(
            dawdle, start_to_close_timeout=timedelta(seconds=10), heartbeat_timeout=timedelta(seconds=5)
        )


@workflow.defn(name="Telling")
class Telling:
    """Return the ids that its activity has, and fail where that fails."""

    @workflow.run
    async def run(self, cause: str) -> dict[str, str]:
        """Call one activity."""
        told: dict[str, str] = await workflow.execute_activity(
            tell, cause, start_to_close_timeout=timedelta(seconds=60), retry_policy=RetryPolicy(maximum_attempts=1)
        )
        return {**told, "bound": log.get_bound_field("request_id")}


@pytest.fixture
async def engine(namespace: str) -> AsyncIterator[Client]:
    """The engine, with a worker of the workflow above."""
    client = await temporal.connect()
    async with Worker(client, task_queue=QUEUE, workflows=[Telling, Dawdling], activities=[tell, dawdle]):
        yield client


async def start(engine: Client, cause: str = "") -> Any:
    """Start the workflow as the API would, and return its handle."""
    workflow_id = f"told-{cause}"
    attributes = starts.build_search_attributes("tasks", project_id="prj_1", state="running")
    begun = WorkflowStart(
        workflow="Telling",
        argument=cause,
        id=workflow_id,
        queue=QUEUE,
        same_id=SameIdPolicy.REFUSE,
        attributes=attributes,
        summary="tell",
    )
    assert await starts.start_workflow(engine, begun)
    return engine.get_workflow_handle(workflow_id, result_type=dict)


def count_failed(workflow_type: str) -> float:
    """Workflows of this type that failed in the engine, as this process has counted them."""
    samples = [sample for metric in REGISTRY.collect() for sample in metric.samples]
    return sum(
        sample.value
        for sample in samples
        if sample.name == "haulage_workflows_failed_total" and sample.labels["workflow"] == workflow_type
    )


async def test_lines_of_an_activity_name_the_request_that_began_it(engine: Client) -> None:
    """And the project and the run; a later start without a request has no id of one."""
    with log.bind_temporarily(request_id="request-1"):
        handle = await start(engine)
    run_id = (await handle.describe()).run_id

    assert await handle.result() == {
        "request_id": "request-1",
        "project_id": "prj_1",
        "workflow_id": "told-",
        "run_id": run_id,
        "bound": "request-1",
    }


async def test_an_internal_error_fails_in_the_engine_and_is_counted_by_its_type(engine: Client) -> None:
    """Which is how an operator tells it from what a user can mend."""
    before = REGISTRY.get_sample_value("haulage_workflows_failed_total", {"workflow": "Telling", "cause": "Broken"})
    handle = await start(engine, "Broken")
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    after = REGISTRY.get_sample_value("haulage_workflows_failed_total", {"workflow": "Telling", "cause": "Broken"})

    assert (after or 0) - (before or 0) == 1
    assert (await handle.describe()).status is WorkflowExecutionStatus.FAILED


async def test_time_outs_and_further_attempts_are_counted(engine: Client) -> None:
    """And the wait of each attempt for a worker."""
    assert await engine.execute_workflow(Dawdling.run, id="dawdling", task_queue=QUEUE) == 2
    assert REGISTRY.get_sample_value("haulage_activity_retries_total", {"activity": "dawdle"}) == 1
    assert REGISTRY.get_sample_value("haulage_activity_wait_seconds_count", {"activity": "dawdle"}) == 2
    # The worker ends an attempt some seconds after the engine has given it up.
    timed_out = {"activity": "dawdle", "outcome": "timed_out"}
    await eventually(lambda: REGISTRY.get_sample_value("haulage_activity_seconds_count", timed_out) == 1, 40)


async def test_a_fault_of_a_user_completes_and_is_shown_by_the_state(downloads: Downloads) -> None:
    """It is counted by its system, and not as a failed workflow."""
    failed = {"state": "failed", "cause": "source_not_json"}
    before = count_failed("DownloadWorkflow"), REGISTRY.get_sample_value("haulage_downloads_ended_total", failed) or 0
    status = await downloads.run(downloads.source.url(rows=30, faults="not_json"))
    handle = (await temporal.connect()).get_workflow_handle(f"download:{downloads.project_id}:{status['task_id']}")
    # Its state is told by `status` before its last step is in the engine.
    await handle.result()
    described = await handle.describe()

    assert described.typed_search_attributes[temporal.STATE] == "failed"
    assert described.typed_search_attributes[temporal.PROJECT] == downloads.project_id
    after = count_failed("DownloadWorkflow"), REGISTRY.get_sample_value("haulage_downloads_ended_total", failed)
    assert after == (before[0], before[1] + 1)

"""Housekeeping of tasks: what lanes did in runs that are over goes, the runs that they go on in stay."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from activities.tasks.activities import TaskHousekeeping
from infra.settings import Settings
from services import services
from services.services import Services
from tests.support.waiting import eventually

pytestmark = pytest.mark.stack

QUEUE = "lanes-that-end"


@workflow.defn(name="TaskLane", sandboxed=False)
class ContinuingLane:
    """Goes on twice, then ends."""

    @workflow.run
    async def run(self, left: int) -> None:
        """Continue as new twice, then return."""
        if left:
            workflow.continue_as_new(left - 1)


@workflow.defn(sandboxed=False)
class OtherWorkflow:
    """Goes on once, and is no lane."""

    @workflow.run
    async def run(self, left: int) -> None:
        """Continue as new twice, then return."""
        if left:
            workflow.continue_as_new(left - 1)


@pytest.mark.long
async def test_runs_from_which_a_lane_went_on_are_deleted(settings: Settings) -> None:
    """After their time, and nothing else: not its last run, and not what others went on from."""
    async with services.open_services(settings) as held:
        lane, other = await _start_continued_runs(held.engine)

        await _purge(held, settings, hours=1)
        assert [await _exists(held.engine, "lane", each) for each in lane] == [True] * 3
        await eventually(lambda: _purge_until_found(held, settings, lane))
        assert [await _exists(held.engine, "lane", each) for each in lane] == [False, False, True]
        assert [await _exists(held.engine, "other", each) for each in other] == [True] * 2


async def _purge_until_found(held: Services, settings: Settings, lane: list[str]) -> bool:
    """What is found by its properties is found with a delay, and what is deleted goes with one: so, often again."""
    await _purge(held, settings, hours=0)
    await _purge(held, settings, hours=0)
    return not any([await _exists(held.engine, "lane", each) for each in lane[:-1]])


async def _purge(held: Services, settings: Settings, hours: float) -> None:
    tasks = settings.tasks.model_copy(update={"runs_kept_hours": hours})
    changed = replace(held, settings=settings.model_copy(update={"tasks": tasks}))
    await ActivityEnvironment().run(TaskHousekeeping(changed).purge_expired_tasks_texts_and_runs)


async def _start_continued_runs(engine: Client) -> tuple[list[str], list[str]]:
    """The runs of a lane and of something else, the first ones first."""
    async with Worker(engine, task_queue=QUEUE, workflows=[ContinuingLane, OtherWorkflow]):
        runs = []
        for of, name, times in ((ContinuingLane.run, "lane", 2), (OtherWorkflow.run, "other", 1)):
            handle = await engine.start_workflow(
                of, times, id=name, task_queue=QUEUE, execution_timeout=timedelta(minutes=1)
            )
            await handle.result()
            runs.append(await _runs(engine, name, handle.first_execution_run_id))
    return runs[0], runs[1]


async def _runs(engine: Client, name: str, first: str | None) -> list[str]:
    """The end of a run names the run that continues it."""
    runs, run_id = [], first
    while run_id:
        runs.append(run_id)
        history = await engine.get_workflow_handle(name, run_id=run_id).fetch_history()
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return runs


async def _exists(engine: Client, name: str, run_id: str) -> bool:
    try:
        await engine.get_workflow_handle(name, run_id=run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True

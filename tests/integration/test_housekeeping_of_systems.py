"""Housekeeping runs on each system's own queue: a site that serves one system purges what that system keeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow

import worker
from domain.tasks import names as tasks
from domain.tasks.messages import Task, TaskFlags, TaskStatus
from infra import housekeeping, temporal
from infra.database import Database
from infra.housekeeping import HousekeepingResultsByActivity
from infra.settings import Settings
from services import services
from stores.tasks import archive
from systems.protocol import SystemNames
from tests.support.lanes import TYPE, add_type, new_key
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker import running_worker
from workflows import systems
from workflows.systems import import_names_modules

pytestmark = pytest.mark.stack

KEPT_DAYS = 30
OFTEN = ("downloads", "orders", "webhooks")
"""The systems whose housekeeping every change must pass; that of tasks runs in a test of its own."""


async def trigger(engine: Client, names: SystemNames) -> HousekeepingResultsByActivity:
    """Have the schedule of a system start its housekeeping now, and wait for the end of that run."""
    handle = engine.get_schedule_handle(housekeeping.build_schedule_id(names.SYSTEM))
    await handle.trigger()

    async def find_started_workflow() -> str:
        recent = (await handle.describe()).info.recent_actions
        assert recent, "the trigger is accepted before it starts anything"
        assert isinstance(recent[-1].action, ScheduleActionExecutionStartWorkflow)
        return recent[-1].action.workflow_id

    run = engine.get_workflow_handle(await eventually(find_started_workflow), result_type=HousekeepingResultsByActivity)
    async with asyncio.timeout(PATIENCE_SECONDS):
        report: HousekeepingResultsByActivity = await run.result()
    return report


async def test_every_queue_is_in_the_table_once_and_every_workflow_is_served(settings: Settings) -> None:
    """What a system offers is what its workers serve."""
    async with services.open_services(settings) as held:
        table = worker.build_queues(held)

    names = [queue.name for queue in table]
    assert len(names) == len(set(names))
    assert {queue for each in import_names_modules() for queue in each.QUEUES} <= set(names)
    assert {workflow for queue in table for workflow in queue.workflows} == set(worker.list_workflows())


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(each, id=each.SYSTEM, marks=() if each.SYSTEM in OFTEN else pytest.mark.long)
        for each in import_names_modules()
    ],
)
async def test_a_worker_of_one_system_runs_its_housekeeping(
    settings: Settings, database: Database, names: SystemNames
) -> None:
    """It serves that system's queue and no other, and every activity of the system's housekeeping has run."""
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings)
    async with running_worker(settings, [names.QUEUE]):
        report = await trigger(engine, names)

    assert tuple(report.removed) == names.HOUSEKEEPING


async def test_a_site_of_tasks_alone_purges_tasks(settings: Settings, database: Database) -> None:
    """An archived task whose time is over is removed, a younger one stays; no worker serves another queue."""
    keeping = settings.tasks.model_copy(update={"archive_kept_days": KEPT_DAYS})
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings)
    await add_type(database)
    old, young = (make_archived_task(days) for days in (KEPT_DAYS + 1, KEPT_DAYS - 1))
    async with database.session() as session:
        await archive.archive_ended_tasks_and_delete_unused_texts(session, TYPE, 1, [old, young])

    async with running_worker(settings.model_copy(update={"tasks": keeping}), [tasks.QUEUE]):
        await trigger(engine, tasks)

    async with database.session() as session:
        left = (await session.execute(text("SELECT task_id FROM tasks_archive"))).scalars().all()
    assert [task_id for task_id in left if young.key in task_id] == list(left)
    assert len(left) == 1


def make_archived_task(days: float) -> Task:
    """A task that ended this many days ago."""
    end = round((datetime.now(UTC) - timedelta(days=days)).timestamp() * 1_000)
    return Task(new_key(), "user", 0, TaskStatus.SUCCESS, "", 0, "c", "l", int(TaskFlags.CONTENT), end, end, end)


async def test_the_schedule_of_all_systems_is_replaced(settings: Settings, database: Database) -> None:
    """An earlier version had one, on the queue of downloads: it goes, and each system has its own."""
    engine = await temporal.connect()
    await systems.create_or_update_schedules(engine, database, settings)
    known = engine.get_schedule_handle(housekeeping.build_schedule_id(tasks.SYSTEM))
    await engine.create_schedule("housekeeping", (await known.describe()).schedule)

    await systems.create_or_update_schedules(engine, database, settings)

    expected = {housekeeping.build_schedule_id(names.SYSTEM) for names in import_names_modules()}

    async def is_replaced() -> bool:
        # The list lags behind what was created and what was deleted.
        found = {each.id async for each in await engine.list_schedules()}
        assert "housekeeping" not in found
        return expected <= found

    assert await eventually(is_replaced)

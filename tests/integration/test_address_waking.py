"""Waking: what came in starts a cycle soon, but never one that an operator has paused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from temporalio.client import Client, ScheduleActionExecutionStartWorkflow, ScheduleHandle

from infra import temporal
from infra.settings import Settings
from services import addresses
from services.addresses import CycleTrigger
from tests.support.waiting import eventually
from workflows.addresses import handle as addresses_handle

pytestmark = pytest.mark.stack

HOUR = 3_600.0


@pytest.fixture
async def engine(settings: Settings) -> Client:
    """The engine, with a namespace of the test's own."""
    return await temporal.connect()


@pytest.fixture
async def schedule(engine: Client) -> AsyncIterator[ScheduleHandle]:
    """The schedule of cycles, which does nothing by itself for an hour; no worker serves its runs."""
    handle = await addresses_handle.create_or_update_cycle_schedule(engine, HOUR)
    yield handle
    await handle.delete()


async def count_runs(schedule: ScheduleHandle) -> int:
    """How many runs it has begun, or will when the one before has ended."""
    description = await schedule.describe()
    return description.info.num_actions


async def test_a_cycle_begins_soon(engine: Client, schedule: ScheduleHandle) -> None:
    """Once for many messages at the same time, and no caller waits for it."""
    waker = CycleTrigger(engine, HOUR)
    for _ in range(100):
        waker.request_cycle()

    await eventually(lambda: _is(schedule, 1))
    await waker.close()
    assert len((await schedule.describe()).info.running_actions) == 1


async def _is(schedule: ScheduleHandle, count: int) -> bool:
    return await count_runs(schedule) == count


async def test_what_comes_while_a_cycle_runs_gets_one_after_it(
    engine: Client, schedule: ScheduleHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have looked before; so one more run is due, and only one."""
    monkeypatch.setattr(addresses, "TRIGGER_INTERVAL_SECONDS", 0.01)
    waker = CycleTrigger(engine, HOUR)
    waker.request_cycle()
    await eventually(lambda: _is(schedule, 1))

    async def woken_often() -> bool:
        waker.request_cycle()
        return (await schedule.describe()).info.num_actions_skipped_overlap >= 2

    await eventually(woken_often)
    await waker.close()
    await _end(engine, schedule)

    await eventually(lambda: _is(schedule, 2))
    await _end(engine, schedule)
    await eventually(lambda: _is_idle(schedule))
    assert await count_runs(schedule) == 2


async def _end(engine: Client, schedule: ScheduleHandle) -> None:
    """End the cycle that runs."""
    (running,) = (await schedule.describe()).info.running_actions
    assert isinstance(running, ScheduleActionExecutionStartWorkflow)
    await engine.get_workflow_handle(running.workflow_id).terminate()


async def _is_idle(schedule: ScheduleHandle) -> bool:
    return not (await schedule.describe()).info.running_actions


async def test_a_paused_schedule_is_left_alone(
    engine: Client, schedule: ScheduleHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator has the last word; when it is resumed, what came meanwhile is woken for again."""
    monkeypatch.setattr(addresses, "TRIGGER_INTERVAL_SECONDS", 0.01)
    await schedule.pause()
    waker = CycleTrigger(engine, HOUR)
    waker.request_cycle()
    await eventually(lambda: waker._task is not None and waker._task.done())
    assert await count_runs(schedule) == 0

    await schedule.unpause()
    waker.request_cycle()
    await eventually(lambda: _is(schedule, 1))
    await waker.close()


async def test_a_schedule_that_is_not_there_holds_nothing_up(engine: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Intake goes on: the message is in the log, and the schedule will find it."""
    monkeypatch.setattr(addresses, "TRIGGER_INTERVAL_SECONDS", 0.01)
    waker = CycleTrigger(engine, HOUR)
    waker.request_cycle()
    await eventually(lambda: waker._task is not None and waker._task.done())

    schedule = await addresses_handle.create_or_update_cycle_schedule(engine, HOUR)
    waker.request_cycle()
    await eventually(lambda: _is(schedule, 1))
    await waker.close()
    await schedule.delete()

"""Deadlines: a block that takes too long is cancelled, and no other."""

from __future__ import annotations

import asyncio

import pytest

from api.http.deadlines import CancellingDeadline, DeadlineQueue
from infra.outages import Component, ComponentHangs

SHORT = 0.05
LONG = 60.0


async def test_a_block_that_takes_too_long_is_cancelled() -> None:
    """It raises TimeoutError, and the task is not left in a cancelled state."""
    with pytest.raises(TimeoutError), DeadlineQueue(SHORT).start_deadline():
        await asyncio.sleep(LONG)
    task = asyncio.current_task()
    assert task
    assert not task.cancelling()
    await asyncio.sleep(0)


async def test_a_block_that_ends_in_time_is_not_cancelled() -> None:
    """Nor later, when its deadline passes."""
    deadlines = DeadlineQueue(5 * SHORT)
    with deadlines.start_deadline() as met:
        await asyncio.sleep(0)
    await asyncio.sleep(10 * SHORT)
    assert not met.is_expired
    with pytest.raises(TimeoutError), deadlines.start_deadline():
        await asyncio.sleep(LONG)


async def test_each_of_several_deadlines_expires_by_itself() -> None:
    """One timer serves all; a deadline that starts later expires later, and one that is lifted never expires."""
    deadlines = DeadlineQueue(4 * SHORT)
    ended: list[int] = []
    held = asyncio.Event()

    async def one(number: int) -> None:
        await asyncio.sleep(number * SHORT / 4)
        try:
            with deadlines.start_deadline() as deadline:
                if number == 3:
                    deadline.remove_limit()
                await held.wait()
        except TimeoutError:
            ended.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(8)]
    await asyncio.wait([task for number, task in enumerate(tasks) if number != 3])
    assert ended == [0, 1, 2, 4, 5, 6, 7]
    assert not tasks[3].done()
    held.set()
    await tasks[3]


async def test_another_cancellation_of_the_task_goes_on() -> None:
    """A deadline that has expired as well does not turn it into a timeout."""
    begun = asyncio.Event()
    seen: list[CancellingDeadline] = []

    async def work() -> None:
        with DeadlineQueue(LONG).start_deadline() as deadline:
            seen.append(deadline)
            begun.set()
            await asyncio.sleep(LONG)

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    seen[0].cancel_task()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("silences", [1, 2])
async def test_a_block_is_cancelled_early_where_a_component_hangs(silences: int) -> None:
    """At two checks in a row, and the error names it; once may have been a busy moment."""
    answers = [Component.DATABASE] * silences
    asked = asyncio.Event()

    async def find_hanging() -> Component | None:
        if answers:
            return answers.pop()
        asked.set()
        return None

    deadlines = DeadlineQueue(LONG, find_hanging, SHORT)
    if silences == 1:
        with deadlines.start_deadline():
            await asked.wait()
    else:
        with pytest.raises(ComponentHangs, match="PostgreSQL"), deadlines.start_deadline():
            await asked.wait()


async def test_a_deadline_needs_a_task() -> None:
    """A callback of the loop cannot be cancelled."""
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            DeadlineQueue(LONG).start_deadline()
        except RuntimeError as error:
            refused.set_result(str(error))

    asyncio.get_running_loop().call_soon(call)
    assert "needs a running task" in await refused

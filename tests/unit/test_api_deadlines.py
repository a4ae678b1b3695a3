"""Deadlines: what takes too long is cancelled, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest

from api.deadlines import Deadline, Deadlines

SHORT = 0.05
LONG = 60.0


async def test_what_takes_too_long_is_cut() -> None:
    """It raises as under a timeout, and the task goes on as if nobody had cancelled it."""
    with pytest.raises(TimeoutError), Deadlines(SHORT).begin():
        await asyncio.sleep(LONG)
    task = asyncio.current_task()
    assert task
    assert not task.cancelling()
    await asyncio.sleep(0)


async def test_what_is_done_in_time_is_left_alone() -> None:
    """Also when its deadline passes later."""
    deadlines = Deadlines(SHORT)
    with deadlines.begin() as met:
        await asyncio.sleep(0)
    await asyncio.sleep(2 * SHORT)
    assert not met.is_over
    with pytest.raises(TimeoutError), deadlines.begin():
        await asyncio.sleep(LONG)


async def test_each_of_many_has_its_own() -> None:
    """One timer serves all; those that begin later end later, and one that is lifted never ends."""
    deadlines = Deadlines(4 * SHORT)
    ended: list[int] = []
    held = asyncio.Event()

    async def one(number: int) -> None:
        await asyncio.sleep(number * SHORT / 4)
        try:
            with deadlines.begin() as deadline:
                if number == 3:
                    deadline.lift()
                await held.wait()
        except TimeoutError:
            ended.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(8)]
    await asyncio.wait([task for number, task in enumerate(tasks) if number != 3])
    assert ended == [0, 1, 2, 4, 5, 6, 7]
    assert not tasks[3].done()
    held.set()
    await tasks[3]


async def test_who_cancels_the_task_is_obeyed() -> None:
    """A deadline that is over as well does not turn that into a mere timeout."""
    begun = asyncio.Event()
    seen: list[Deadline] = []

    async def work() -> None:
        with Deadlines(LONG).begin() as deadline:
            seen.append(deadline)
            begun.set()
            await asyncio.sleep(LONG)

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    seen[0].expire()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_there_is_none_without_a_task() -> None:
    """A callback of the loop cannot be cancelled."""
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            Deadlines(LONG).begin()
        except RuntimeError as error:
            refused.set_result(str(error))

    asyncio.get_running_loop().call_soon(call)
    assert "none is running" in await refused

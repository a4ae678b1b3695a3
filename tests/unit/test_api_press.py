"""The press: one book at a time, a short queue, and nobody in it who has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from api.downloads.context import PREVIEWS_BUSY, PREVIEWS_PER_PROJECT_MAX, PREVIEWS_WAITING_MAX, PreviewQueue
from domain.faults import QuotaExhausted


@pytest.fixture
async def press() -> AsyncIterator[PreviewQueue]:
    """A press that is closed in the end."""
    running = PreviewQueue()
    yield running
    await running.close(web.Application())


async def test_work_is_done_one_after_the_other(press: PreviewQueue) -> None:
    """However many ask, one thread works for them, in their order."""
    done: list[tuple[int, str]] = []

    def work(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number

    answers = await asyncio.gather(
        *(
            press.draw_when_turn_comes_or_raise_if_full(f"{number}", lambda number=number: work(number))  # type: ignore[misc]
            for number in range(5)
        )
    )

    assert answers == [number for number, _ in done] == [0, 1, 2, 3, 4]
    assert len({thread for _, thread in done}) == 1


async def test_a_full_queue_says_so(press: PreviewQueue) -> None:
    """Who comes when too many wait is told at once, and nobody else is."""
    gate = threading.Event()
    waiting = [
        asyncio.create_task(press.draw_when_turn_comes_or_raise_if_full(f"{number}", gate.wait))
        for number in range(PREVIEWS_WAITING_MAX + 1)
    ]
    await asyncio.sleep(0)

    with pytest.raises(QuotaExhausted) as refused:
        await press.draw_when_turn_comes_or_raise_if_full("late", gate.wait)
    gate.set()

    assert refused.value.record.code == PREVIEWS_BUSY
    assert await asyncio.gather(*waiting) == [True] * len(waiting)
    assert await press.draw_when_turn_comes_or_raise_if_full("mine", lambda: "next") == "next"


async def test_no_project_takes_the_whole_queue(press: PreviewQueue) -> None:
    """One that asks for much waits for itself; others are let in."""
    gate = threading.Event()
    waiting = [
        asyncio.create_task(press.draw_when_turn_comes_or_raise_if_full("greedy", gate.wait))
        for _ in range(PREVIEWS_PER_PROJECT_MAX)
    ]
    await asyncio.sleep(0)

    with pytest.raises(QuotaExhausted) as refused:
        await press.draw_when_turn_comes_or_raise_if_full("greedy", gate.wait)
    other = asyncio.create_task(press.draw_when_turn_comes_or_raise_if_full("other", lambda: "drawn"))
    gate.set()

    assert refused.value.violated == ["previews_per_project"]
    assert await other == "drawn"
    assert await asyncio.gather(*waiting) == [True] * len(waiting)


async def test_who_goes_leaves_the_queue(press: PreviewQueue) -> None:
    """Work that nobody waits for any more is not begun."""
    gate, begun = threading.Event(), list[str]()
    first = asyncio.create_task(press.draw_when_turn_comes_or_raise_if_full("late", gate.wait))
    gone = asyncio.create_task(press.draw_when_turn_comes_or_raise_if_full("mine", lambda: begun.append("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate.set()
    await press.draw_when_turn_comes_or_raise_if_full("mine", lambda: begun.append("next"))

    assert await first
    assert begun == ["next"]


async def test_a_fault_is_the_caller_s(press: PreviewQueue) -> None:
    """What goes wrong is raised to who asked, and the next one is served."""

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await press.draw_when_turn_comes_or_raise_if_full("mine", fail)

    assert await press.draw_when_turn_comes_or_raise_if_full("mine", lambda: 1) == 1

"""Calls to GSE: so many at a time, so many a second, in their order."""

from __future__ import annotations

import asyncio
import time

from clients.gse.limiter import CallLimiter


async def test_so_many_calls_at_a_time() -> None:
    """Who comes later waits for a place, and one that fails gives its place back."""
    limiter = CallLimiter(concurrency=3, calls_per_second=0)
    under_way = most = done = 0

    async def call(number: int) -> None:
        nonlocal under_way, most, done
        async with limiter.call():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1
            if number % 2:
                raise ConnectionError
        done += 1

    await asyncio.gather(*(call(number) for number in range(20)), return_exceptions=True)

    assert (most, done) == (3, 10)


async def test_so_many_calls_a_second() -> None:
    """Evenly: there is no burst at first."""
    limiter = CallLimiter(concurrency=100, calls_per_second=50)
    begun: list[float] = []

    async def call() -> None:
        async with limiter.call():
            begun.append(time.monotonic())

    await asyncio.gather(*(call() for _ in range(11)))

    assert begun[-1] - begun[0] >= 0.19

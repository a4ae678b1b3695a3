"""One process' permits, moment by moment: what it says it may use is never less than what it uses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from types import SimpleNamespace

import pytest

from domain.limits import UsableAndHeldPermits
from infra.limits.host_gate import HostRequestPermit, ProcessShareOfHostPermits
from infra.limits.limiter import PermitSharingRules
from tests.support.waiting import PATIENCE_SECONDS, eventually

LIMIT = 4
TTL = timedelta(seconds=2.0)


class Books:
    """The other side: answers as a script says, when a test lets it, and keeps what was declared."""

    def __init__(self) -> None:
        self.share = UsableAndHeldPermits(usable=LIMIT, permits=LIMIT)
        self.declared: list[tuple[int, int]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def ask(self, *, in_use: int, demand: int) -> UsableAndHeldPermits:
        """One question."""
        self.declared.append((in_use, demand))
        share = UsableAndHeldPermits(self.share.usable, max(self.share.usable, in_use))
        await self.open.wait()
        return share


@pytest.fixture
def books() -> Books:
    """The books."""
    return Books()


@pytest.fixture
async def pool(books: Books) -> AsyncIterator[ProcessShareOfHostPermits]:
    """A pool that holds four permits, all idle."""
    pool = ProcessShareOfHostPermits(books.ask, PermitSharingRules(LIMIT, turn=TTL / 10, ttl=TTL))
    await asyncio.gather(*(pool.wait_for_permit() for _ in range(LIMIT)))
    for _ in range(LIMIT):
        pool.return_permit()
    yield pool
    await pool.close()


async def wait_for_question(books: Books) -> None:
    """Wait for the next question."""
    before = len(books.declared)
    await eventually(lambda: len(books.declared) > before)


async def test_what_may_come_into_use_before_the_answer_is_declared(
    books: Books, pool: ProcessShareOfHostPermits
) -> None:
    """While it asks, it hands out what it has; as much is declared, though nothing is in use yet."""
    books.open.clear()
    await wait_for_question(books)
    for _ in range(LIMIT):
        await pool.wait_for_permit()
    assert books.declared[-1][0] == LIMIT
    books.open.set()


async def test_a_smaller_share_is_kept_to_at_once(books: Books, pool: ProcessShareOfHostPermits) -> None:
    """What is in use ends by itself; nothing more begins, and the rest is given back as soon as it is free."""
    for _ in range(LIMIT):
        await pool.wait_for_permit()
    books.share = UsableAndHeldPermits(usable=1, permits=1)
    await wait_for_question(books)
    await wait_for_question(books)
    waiting = asyncio.create_task(pool.wait_for_permit())
    for left in (3, 2, 1):
        pool.return_permit()
        await wait_for_question(books)
        assert books.declared[-1][0] == left
        assert not waiting.done()
    pool.return_permit()
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_a_permit_granted_to_a_cancelled_request_goes_on(pool: ProcessShareOfHostPermits) -> None:
    """Cancelled between its grant and its next step, a request passes the permit to the next one."""
    for _ in range(LIMIT):
        await pool.wait_for_permit()
    first, second = asyncio.create_task(pool.wait_for_permit()), asyncio.create_task(pool.wait_for_permit())
    await asyncio.sleep(0)
    pool.return_permit()
    first.cancel()
    await asyncio.wait_for(second, PATIENCE_SECONDS)
    assert first.cancelled()


async def test_a_process_that_was_frozen_asks_before_it_goes_on(books: Books, pool: ProcessShareOfHostPermits) -> None:
    """Its permits may be another's by now: nothing begins with what has expired, not even once."""
    books.open.clear()
    time.sleep(TTL.total_seconds() + 0.05)  # noqa: ASYNC251 (nothing runs meanwhile: that is the case)
    waiting = asyncio.create_task(pool.wait_for_permit())
    await wait_for_question(books)
    assert not waiting.done()
    books.open.set()
    await asyncio.wait_for(waiting, PATIENCE_SECONDS)


async def test_an_empty_pool_ends(books: Books, pool: ProcessShareOfHostPermits) -> None:
    """Unused for two renewals, everything was declared as given back."""
    books.share = UsableAndHeldPermits(usable=0, permits=0)
    await eventually(lambda: pool.has_ended)
    assert books.declared[-1] == (0, 0)


async def test_a_permit_is_free_while_its_request_waits_for_something_else(pool: ProcessShareOfHostPermits) -> None:
    """What it waits for may be held by a request that needs a permit itself."""
    free, waiting = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await free.wait()

    async def request() -> None:
        async with HostRequestPermit(SimpleNamespace(get_or_create_pool=lambda _: pool), "h") as permit:  # type: ignore[arg-type]
            await permit.give_back_during(wait)

    requests = [asyncio.create_task(request()) for _ in range(LIMIT)]
    await asyncio.wait_for(waiting.wait(), PATIENCE_SECONDS)
    for _ in range(LIMIT):
        await asyncio.wait_for(pool.wait_for_permit(), PATIENCE_SECONDS)
    requests[0].cancel()
    free.set()
    await asyncio.wait([requests[0]])
    assert not any(each.done() for each in requests[1:])
    for _ in range(LIMIT):
        pool.return_permit()
    await asyncio.wait_for(asyncio.gather(*requests[1:]), PATIENCE_SECONDS)
    # None was returned twice.
    for _ in range(LIMIT):
        await asyncio.wait_for(pool.wait_for_permit(), PATIENCE_SECONDS)
    another = asyncio.create_task(pool.wait_for_permit())
    await asyncio.sleep(0.05)
    assert not another.done()
    another.cancel()
    for _ in range(LIMIT):
        pool.return_permit()

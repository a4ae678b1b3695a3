"""The host gate: several processes before one host, played by gates with connections of their own, and one real."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import text

from infra.database import Database
from infra.limits import DatabaseLimiter, HostRequestLimiter
from tests.support.waiting import PATIENCE_SECONDS, eventually

LIMIT = 10
TTL_SECONDS = 2.0

Open = Callable[..., Awaitable[HostRequestLimiter]]


class CountingLimiter(DatabaseLimiter):
    """A limiter that counts how often it is asked for a share, and fails when told to."""

    asked = 0
    broken = False

    async def renew_share(self, *args: object, **options: object) -> object:  # type: ignore[override]
        """Count, then ask."""
        self.asked += 1
        if self.broken:
            raise ConnectionRefusedError("the database is away")
        return await super().renew_share(*args, **options)  # type: ignore[arg-type]


class LimitedHost:
    """A source host that notes who is on it, and how many were at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.served: Counter[HostRequestLimiter] = Counter()

    async def request(self, gate: HostRequestLimiter, seconds: float = 0.002) -> None:
        """One request through a gate."""
        async with gate.permit("source.example"):
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1
            self.served[gate] += 1

    async def keep_busy(self, gate: HostRequestLimiter, fetchers: int, until: float, seconds: float = 0.002) -> None:
        """Requests from several fetchers, one after the other each, until a time."""

        async def fetch() -> None:
            while time.monotonic() < until:
                await self.request(gate, seconds)

        await asyncio.gather(*(fetch() for _ in range(fetchers)))


@pytest.fixture
def host() -> LimitedHost:
    """The host."""
    return LimitedHost()


@pytest.fixture
async def open_gate(database: Database) -> AsyncIterator[Open]:
    """Opens gates as separate processes have them."""
    async with AsyncExitStack() as stack:

        async def open_one(limit: int = LIMIT, limiter: DatabaseLimiter | None = None) -> HostRequestLimiter:
            own = Database(database.settings)
            stack.push_async_callback(own.close)
            return await stack.enter_async_context(
                HostRequestLimiter(limiter or DatabaseLimiter(own), limit, ttl_seconds=TTL_SECONDS)
            )

        yield open_one


async def rows(database: Database) -> dict[str, int]:
    """Who holds how many permits."""
    async with database.session() as session:
        found = await session.execute(text("SELECT holder, permits FROM limit_shares WHERE expires_at > now()"))
        return {row.holder: row.permits for row in found}


async def has_no_permits(database: Database) -> bool:
    """Whether no process holds anything."""
    return not await rows(database)


async def test_one_process_uses_the_whole_limit_and_not_more(open_gate: Open, host: LimitedHost) -> None:
    """Thirty fetchers of a process are ten at a time."""
    gate = await open_gate()
    async with keep_all_busy(host, [gate], fetchers=30):
        await eventually(lambda: host.most >= LIMIT)
        reached = host.served[gate]
        await eventually(lambda: host.served[gate] > reached + 500)
    assert host.most == LIMIT


async def test_permits_are_handed_out_without_asking(database: Database, open_gate: Open, host: LimitedHost) -> None:
    """Thousands of requests cost the database a few questions."""
    limiter = CountingLimiter(database)
    gate = await open_gate(limiter=limiter)

    async def fetch() -> None:
        for _ in range(500):
            await host.request(gate, seconds=0)

    await asyncio.gather(*(fetch() for _ in range(5)))
    assert limiter.asked < 50


async def test_first_come_first_served(open_gate: Open) -> None:
    """Within a process nobody overtakes."""
    gate = await open_gate(limit=1)
    served: list[int] = []

    async def request(n: int) -> None:
        async with gate.permit("source.example"):
            served.append(n)
            await asyncio.sleep(0)

    await asyncio.gather(*map(request, range(50)))
    assert served == list(range(50))


async def test_hosts_are_counted_apart_whatever_their_case(open_gate: Open) -> None:
    """A permit for one host says nothing about another."""
    gate = await open_gate(limit=1)
    async with gate.permit("A.example"), gate.permit("b.example"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), gate.permit("a.EXAMPLE."):
                pass


@asynccontextmanager
async def keep_all_busy(host: LimitedHost, gates: Sequence[HostRequestLimiter], fetchers: int) -> AsyncIterator[None]:
    """Processes whose fetchers want everything, as long as the block takes."""
    at_work = [asyncio.create_task(host.keep_busy(gate, fetchers, until=math.inf)) for gate in gates]
    try:
        yield
    finally:
        for task in at_work:
            task.cancel()
        await asyncio.wait(at_work)


async def test_processes_share_fairly_and_never_exceed_the_limit(open_gate: Open, host: LimitedHost) -> None:
    """Also a process that comes late, with others that want everything, gets its part; together they use all of it."""
    gates = [await open_gate() for _ in range(4)]
    async with keep_all_busy(host, gates[:3], fetchers=20):
        await eventually(lambda: len(host.served) == 3)
        before_late = host.served.copy()
        async with keep_all_busy(host, gates[3:], fetchers=20):

            def fairly() -> bool:
                served = [host.served[gate] - before_late[gate] for gate in gates]
                assert sum(served) > 2_000, served
                assert min(served) > 0.5 * max(served), served
                return True

            await eventually(fairly)

    assert host.most <= LIMIT


async def test_processes_take_turns_when_they_are_more_than_permits(open_gate: Open, host: LimitedHost) -> None:
    """Nobody starves: with two permits for seven processes, each is served again and again."""
    gates = [await open_gate(limit=2) for _ in range(7)]
    async with keep_all_busy(host, gates, fetchers=3):

        def in_turn() -> bool:
            served = [host.served[gate] for gate in gates]
            assert sum(served) > 1_000, served
            assert min(served) > 0.2 * max(served), served
            return True

        await eventually(in_turn)

    assert host.most <= 2


async def test_what_is_not_used_is_given_back(database: Database, open_gate: Open) -> None:
    """Soon after the last request nothing is held any more, and the next request just asks again."""
    gate = await open_gate()
    for _ in range(2):
        async with AsyncExitStack() as held:
            for _ in range(5):
                await held.enter_async_context(gate.permit("source.example"))
            assert sum((await rows(database)).values()) == 5
        await eventually(lambda: has_no_permits(database))


async def test_a_cancelled_request_leaves_no_hole(open_gate: Open, host: LimitedHost) -> None:
    """Whether it waited, was just let in or was under way: its permit is free again."""
    gate = await open_gate(limit=2)
    for _ in range(30):
        tasks = [asyncio.create_task(host.request(gate, 0.01)) for _ in range(6)]
        for index, task in enumerate(tasks):
            await asyncio.sleep(0.001)
            if index % 2:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert host.now == 0
    assert host.most == 2
    async with asyncio.timeout(PATIENCE_SECONDS), gate.permit("source.example"), gate.permit("source.example"):
        pass


async def test_a_closed_gate_gives_everything_back_and_lets_nobody_wait(database: Database) -> None:
    """What a process held is free for the others at once; who waits gets an error that is worth a retry."""
    async with HostRequestLimiter(DatabaseLimiter(database), 1) as gate:
        await gate.permit("h").__aenter__()
        waiting = asyncio.create_task(pass_through(gate))
        await eventually(lambda: len(gate.get_or_create_pool("h")._waiting) == 1)
        assert sum((await rows(database)).values()) == 1
    assert await rows(database) == {}
    with pytest.raises(ConnectionError, match="gate closed"):
        await waiting


async def test_without_the_database_permits_end_with_their_time(database: Database, open_gate: Open) -> None:
    """A process that cannot renew lets nobody in once others may have its permits, and goes on when it can again."""
    limiter = CountingLimiter(database)
    gate = await open_gate(limiter=limiter)
    async with gate.permit("h"), gate.permit("h"):
        pass
    async with gate.permit("h"):
        limiter.broken = True
        asked = broken = time.monotonic()
        while await can_enter(gate):
            assert asked - broken < TTL_SECONDS + 0.5
            asked = time.monotonic()
        assert time.monotonic() - broken > TTL_SECONDS / 2
        limiter.broken = False
        await pass_through(gate)


async def pass_through(gate: HostRequestLimiter) -> None:
    """Take a permit and give it back."""
    async with gate.permit("h"):
        pass


async def can_enter(gate: HostRequestLimiter) -> bool:
    """Whether there is a permit soon."""
    try:
        await asyncio.wait_for(pass_through(gate), 0.5)
    except TimeoutError:
        return False
    await asyncio.sleep(0.01)
    return True


HOLDER = """
import asyncio, sys
from pydantic import SecretStr
from infra.database import Database
from infra.limits import HostRequestLimiter, DatabaseLimiter
from infra.component_settings import DatabaseSettings

async def main():
    database = Database(DatabaseSettings(url=SecretStr(sys.argv[1])))
    async with HostRequestLimiter(DatabaseLimiter(database), 2) as gate, gate.permit("h"), gate.permit("h"):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.long
async def test_the_permits_of_a_killed_process_come_back(database: Database, database_url: str) -> None:
    """Not before they expire, as its requests may still be under way at the source; and then at once."""
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, database_url, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    async with HostRequestLimiter(DatabaseLimiter(database), 2) as gate:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0), gate.permit("h"):
                pass
        holder.kill()
        await holder.wait()
        asked = time.monotonic()
        async with database.session() as session:
            shown = await session.execute(text("SELECT max(expires_at) - now() FROM limit_shares WHERE permits = 2"))
            left = shown.scalar_one().total_seconds()
        async with asyncio.timeout(PATIENCE_SECONDS), gate.permit("h"):
            assert left - 0.1 < time.monotonic() - asked < left + 30

"""Whatever is killed while orders are fetched, the store is the platform's own ledger, and no slice is read by two."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from sims.platforms.scenario import Changes, PlatformFaults, PlatformScenario
from tests.support.caller import running_caller
from tests.support.deployment import PATIENCE_SECONDS, Deployment
from tests.support.engine import busy_processes
from tests.support.kills import Killer
from tests.support.order_fleet import SPAN_SECONDS, Fleet
from tests.support.orders import count_findings
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually

TURNS_MAX = 4
VICTIMS = ("worker-1", "engine", "database", "store", "api-1")
NOTHING = dict.fromkeys(("lost", "stale", "duplicated", "invented", "regressed"), 0)


@pytest.fixture
async def fleet(deployment: Deployment) -> AsyncIterator[Fleet]:
    """Return a project without platforms."""
    async with running_caller(deployment) as caller:
        yield Fleet(deployment, caller.project_id)


@pytest.mark.parametrize("victim", mark_long_except(VICTIMS, ("api-1",)))
async def test_kill_loses_no_order(
    fleet: Fleet, killer: Killer, chance: random.Random, victim: str, request: pytest.FixtureRequest
) -> None:
    """O1, O9: SIGKILL at a random moment of the fetching, while orders change and answers fail."""
    seed = request.config.getoption("randomly_seed")
    for turn in range(TURNS_MAX):
        number, moment = f"kill-{victim}-{turn}", chance.uniform(0.1, 0.7)
        platform = await fleet.begin(
            number,
            PlatformScenario(
                seed=seed + turn,
                orders=1_000,
                span_seconds=SPAN_SECONDS,
                speed=5,
                changes=Changes(per_page=0.2, late_share=0.2, late_seconds=50),
                faults=PlatformFaults(errors=0.02, resets=0.02, slow_ms=20),
            ),
        )

        async def is_there(number: str = number, moment: float = moment) -> bool:
            return await fleet.share_done(number) >= moment

        async def is_being_read(number: str = number) -> bool:
            return await fleet.share_done(number) < 1

        if await killer.try_kill(victim, begun=is_there, under_way=is_being_read):
            break
    platform.market.freeze()
    platform.market.clock.advance(1_000)
    await fleet.deployment.as_admin("POST", f"/v1/platforms/{number}/trigger")
    await fleet.complete(number)

    wrong = count_findings(await fleet.findings(number))
    killer.close(lost=wrong["lost"] + wrong["stale"], doubled=wrong["duplicated"] + wrong["invented"])
    assert killer.record.kills == 1, "each kill came when all was read"
    assert wrong == NOTHING, f"seed {seed}"


@pytest.mark.long
async def test_a_worker_that_hangs_loses_its_slices_to_another(fleet: Fleet, killer: Killer) -> None:
    """O9: it is stopped while it holds a slice, orders change, others read on; when it wakes, all is still right.

    That its late writes are void, whatever it holds, is shown by `test_order_fence.py`, step by step.
    """
    changes = Changes(per_page=0.2)
    scenario = PlatformScenario(
        orders=800, span_seconds=SPAN_SECONDS, speed=2, changes=changes, faults=PlatformFaults(slow_ms=30)
    )
    platform = await fleet.begin("asleep", scenario)
    for _ in range(TURNS_MAX):
        held = await _next_held_slice(fleet, "asleep")
        async with killer.hang(held.worker, under_way=lambda held=held: _is_held(fleet, held)) as hit:  # type: ignore[misc]
            if hit:
                await fleet.wait_until_done("asleep", 0.8)
                platform.market.freeze()
                platform.market.clock.advance(1_000)
                await fleet.complete("asleep")
                break

    # A worker that woke up has finished its slice once it takes those of another platform.
    await fleet.begin("afterwards", PlatformScenario(orders=100, span_seconds=SPAN_SECONDS))
    await fleet.complete("afterwards")

    wrong = count_findings(await fleet.findings("asleep"))
    killer.close(lost=wrong["lost"] + wrong["stale"], doubled=wrong["duplicated"] + wrong["invented"])
    assert killer.record.hangs == 1, "each worker that was stopped had just committed its slice"
    assert wrong == NOTHING


class HeldSlice(NamedTuple):
    """An attempt to read a slice, and the worker process that makes it."""

    holder: str
    worker: str


async def _next_held_slice(fleet: Fleet, number: str) -> HeldSlice:
    """Wait until some slices are done, and return one that is being read just now."""

    async def find() -> list[HeldSlice]:
        return await _held_slices(fleet, number) if await _is_done_to(fleet, number, 0.1) else []

    [held, *_] = await eventually(find, PATIENCE_SECONDS)
    return held


async def _held_slices(fleet: Fleet, number: str) -> list[HeldSlice]:
    """List the slices that are being read just now."""
    engine, names = await fleet.deployment.engine(), {pid: name for name, pid in fleet.deployment.pids.items()}
    held = "SELECT holder FROM order_slices WHERE platform = $1 AND holder IS NOT NULL AND done_at IS NULL"
    return [
        HeldSlice(holder, names[pid])
        for (holder,) in await fleet.deployment.fetch(held, number)
        for pid in await busy_processes(engine.get_workflow_handle(holder.rpartition("/")[0])) & names.keys()
    ]


async def _is_held(fleet: Fleet, held: HeldSlice) -> bool:
    """Whether the attempt has not ended, and no other has the slice."""
    open_ = "SELECT count(*) AS n FROM order_slices WHERE holder = $1 AND done_at IS NULL"
    return bool((await fleet.deployment.fetch(open_, held.holder))[0]["n"])


async def _is_done_to(fleet: Fleet, number: str, share: float) -> bool:
    return await fleet.share_done(number) >= share


@pytest.mark.long
async def test_two_platforms_share_workers_and_no_slice_is_read_by_two(fleet: Fleet) -> None:
    """Each slice of a quiet platform has one attempt, whichever workers start and stop meanwhile."""
    scenario = PlatformScenario(orders=600, span_seconds=SPAN_SECONDS, faults=PlatformFaults(slow_ms=10))
    await asyncio.gather(fleet.begin("left", scenario), fleet.begin("right", scenario))
    await asyncio.gather(fleet.complete("left"), fleet.complete("right"))

    attempts = await fleet.deployment.fetch(
        "SELECT platform, max(attempts) AS most FROM order_slices WHERE platform IN ('left', 'right') GROUP BY platform"
    )
    assert {row["platform"]: row["most"] for row in attempts} == {"left": 1, "right": 1}
    for number in ("left", "right"):
        assert count_findings(await fleet.findings(number)) == NOTHING

"""`make bench-tasks`: ours, then each peer by itself, on the same machine with the same load."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import aiohttp

from bench import usage
from bench.peers import environments
from bench.report import RESULTS, publish
from bench.tasks import contenders, figures, rounds, single
from bench.tasks.contenders import PEERS, SYSTEM, TaskPeer
from bench.tasks.rounds import TaskRound
from dev.embedded.stack import run_stack
from dev.local import run_installation
from infra.settings import Settings

CHART = "chart"
GROWN = 1_000_000
SMALL_SECONDS, FULL_SECONDS = 1.0, 3.0
SMALL_TURNS, FULL_TURNS = 60, 300


async def measure() -> None:
    """Measure ours, then each peer with the components and the machine to itself; publish."""
    small = os.environ.get("SIZE") == "small"
    seconds, grown = (SMALL_SECONDS, 0) if small else (FULL_SECONDS, GROWN)
    turns = SMALL_TURNS if small else FULL_TURNS
    await contenders.install()
    await asyncio.to_thread(environments.install_peer, SYSTEM, CHART)
    # Half load of ours is half of what the seed's schema takes: it comes first.
    results = await _run_peers(PEERS[:1], seconds, grown)
    results = {figures.OURS: await _ours(seconds, grown, turns, half_of=results[figures.SEED]), **results}
    results |= await _run_peers(PEERS[1:], seconds, grown)
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    publish(name, figures.figures(results, grown))
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


async def _run_peers(peers: Sequence[TaskPeer], seconds: float, grown: int) -> dict[str, TaskRound]:
    results = {}
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        session = await opened.enter_async_context(aiohttp.ClientSession())
        stack = await opened.enter_async_context(run_stack(folder / "installation", ui=False))
        for peer in peers:
            async with contenders.running_peer(peer, stack, folder, session) as contender:
                results[peer.name] = await rounds.run(contender, folder, seconds, grown if peer.grows else 0)
            _print_round(peer.name, results[peer.name])
    return results


async def _ours(seconds: float, grown: int, turns: int, half_of: TaskRound) -> TaskRound:
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        session = await opened.enter_async_context(aiohttp.ClientSession())
        settings = Settings().model_copy(update={"data_dir": folder / "installation"})
        running = await opened.enter_async_context(run_installation(settings))
        contender = await contenders.ours(running, session)
        took = await rounds.run(contender, folder, seconds, grown, half_of)
        took = replace(
            took,
            library=await rounds.run_library(contender, seconds),
            single=await single.measure(contender, running.stack.build_environment(), turns),
            largest_process_mb=usage.read_largest_process_mb(running),
        )
    _print_round(contender.name, took)
    return took


def _print_round(name: str, took: TaskRound) -> None:
    rates = "  ".join(f"{route} {phase.rate:>6,.0f}/s" for route, phase in took.full.items())
    cpu = f"{took.cycle.cpu_us():,.0f} µs CPU a task"
    print(f"{name:<22} {rates}  cycle {took.cycle.task_rate:>6,.0f} tasks/s  {cpu}  {took.lost} miscounted", flush=True)

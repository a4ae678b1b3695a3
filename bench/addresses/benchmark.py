"""`make bench-addresses`: a backlog through ours and its peers, into modules that take batches or one by one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import usage
from bench.addresses import figures, ours, rounds, surroundings
from bench.addresses.figures import Pulled, Results
from bench.addresses.ours import Ours
from bench.addresses.rounds import SYSTEM, Backlog, Run, Turns
from bench.addresses.stream import REPEATED, Stream, build_stream, merge_streams
from bench.addresses.surroundings import ModuleProcesses, PubSub, running_modules, running_pubsub
from bench.peers import environments
from bench.report import RESULTS, publish
from dev.local import run_installation
from infra.settings import Settings
from sims.oss.scenario import MODULES

CHART: Final = "chart"
SEQUENTIAL: Final = "sequential"
SINK: Final = "buffered_sink"
BATCH: Final = 500
CREDENTIALS: Final = "oss"
TRICKLE_PER_SECOND: Final = 300
RETRIES: Final = 10
"""A backlog of several cycles has swaps that come before what they need; the peers try such again too, without end."""


@dataclass(frozen=True)
class Size:
    """How many messages go where."""

    backlog: int
    """Deliveries in all rounds, repetitions included; also through the sink."""
    cycle: int
    burst: int
    trickle: int
    alone: int
    """Deliveries in all rounds where modules take one operation a call."""
    sequential: int
    """Through the plain consumer, one message after the other; this and what follows in each round."""
    sequential_batched: int
    sink_alone: int


FULL: Final = Size(100_000, 10_000, 10_000, 3_000, 20_000, 2_000, 33_333, 2_000)
SMALL: Final = Size(6_000, 1_000, 1_000, 600, 3_000, 300, 1_000, 300)
WARM_UP: Final = 1_000
ROUNDS: Final = 3


@dataclass(frozen=True)
class Peer:
    """Who takes a share of each round's messages."""

    name: str
    module: str
    messages: int
    batch: int


async def measure() -> None:
    """Measure one installation with pulls and batches, and one with pushes and single operations; publish."""
    small = os.environ.get("SIZE") == "small"
    size = SMALL if small else FULL
    for module in (SEQUENTIAL, SINK, CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    sizes: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        pulled = await _measure_pulls(Path(folder), size, sizes)
    with tempfile.TemporaryDirectory() as folder:
        results = Results(pulled, await _measure_pushes(Path(folder), size, sizes))
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    publish(name, [*figures.build_figures(results), usage.build_largest_process_figure(sizes)])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.render_panels(results))


async def _measure_pulls(folder: Path, size: Size, sizes: list[float]) -> Pulled:
    each_round = _count_different(size.backlog) // ROUNDS
    counts = (WARM_UP, size.cycle, size.burst, size.trickle, *[each_round] * ROUNDS)
    warm, cycle, burst, trickle, *mains = streams = [
        build_stream(number, count) for number, count in enumerate(counts, 1)
    ]
    whole = merge_streams(streams)
    tables = surroundings.build_tables(folder / "tables", whole)
    peers = (
        Peer(figures.SEQUENTIAL, SEQUENTIAL, size.sequential, 1),
        Peer(figures.SEQUENTIAL_BATCHED, SEQUENTIAL, size.sequential_batched, BATCH),
        Peer(figures.SINK, SINK, each_round, BATCH),
    )
    async with AsyncExitStack() as stack:
        pubsub = await stack.enter_async_context(running_pubsub(REPEATED / (1 - REPEATED)))
        modules = await stack.enter_async_context(running_modules(tables))
        contender = await stack.enter_async_context(_run_ours(folder, modules, BATCH, pubsub))
        await rounds.burst(contender, warm.messages)
        turns = await _measure_in_turn(figures.OURS, contender, modules, whole, mains, peers)
        pulled = Pulled(
            turns=turns,
            cycle=await rounds.backlog(contender, modules, cycle.messages),
            burst=await rounds.burst(contender, burst.messages),
            trickle=await rounds.trickle(contender, trickle.messages, TRICKLE_PER_SECOND),
            cycle_events=await contender.events("AddressCycle"),
            intake_events=await contender.events("AddressIntake"),
        )
        rounds.check(figures.OURS, modules.live(), whole.before, await contender.messages())
        sizes.append(usage.read_largest_process_mb(contender.running))
        return pulled


async def _measure_pushes(folder: Path, size: Size, sizes: list[float]) -> Turns:
    counts = (WARM_UP, *[_count_different(size.alone) // ROUNDS] * ROUNDS)
    warm, *mains = streams = [build_stream(number, count) for number, count in enumerate(counts, 1)]
    whole = merge_streams(streams)
    tables = surroundings.build_tables(folder / "tables", whole)
    peers = (
        Peer(figures.SEQUENTIAL, SEQUENTIAL, size.sequential, 1),
        Peer(figures.SINK_ALONE, SINK, size.sink_alone, 1),
    )
    async with running_modules(tables) as modules, _run_ours(folder, modules, 1, None) as contender:
        await rounds.burst(contender, warm.messages)
        turns = await _measure_in_turn(figures.OURS_ALONE, contender, modules, whole, mains, peers)
        rounds.check(figures.OURS_ALONE, modules.live(), whole.before, await contender.messages())
        sizes.append(usage.read_largest_process_mb(contender.running))
        return turns


async def _measure_in_turn(
    name: str,
    contender: Ours,
    modules: ModuleProcesses,
    whole: Stream,
    streams: Sequence[Stream],
    peers: Sequence[Peer],
) -> Turns:
    """Peers have the tables as ours found them, and shares of the same messages in the order of their publication."""
    backlogs: list[Backlog] = []
    found: dict[str, list[Run]] = {peer.name: [] for peer in peers}
    for each in streams:
        backlogs.append(await rounds.backlog(contender, modules, each.messages))
        _print_run(name, backlogs[-1].run)
        for peer in peers:
            share = each.messages[: peer.messages]
            tables = contender.folder / "tables"
            run = await rounds.peer(contender.running, tables, whole.before, share, peer.module, peer.batch)
            found[peer.name].append(run)
            _print_run(peer.name, run)
    return Turns(backlogs, found)


@asynccontextmanager
async def _run_ours(folder: Path, modules: ModuleProcesses, batch: int, pubsub: PubSub | None) -> AsyncIterator[Ours]:
    surroundings.write_credentials(folder / "credentials", CREDENTIALS)
    with _configure_installation(folder, modules, batch, pubsub) as settings:
        async with run_installation(settings) as running, ours.connect(running, folder, pubsub) as contender:
            yield contender


@contextmanager
def _configure_installation(
    folder: Path, modules: ModuleProcesses, batch: int, pubsub: PubSub | None
) -> Iterator[Settings]:
    """Yield the settings of an installation that knows them, also set in the environment for its processes."""
    variables = {
        "HAULAGE_ADDRESSES__CREDENTIALS_FOLDER": str(folder / "credentials"),
        "HAULAGE_ADDRESSES__PUSH__SECRET": ours.SECRET,
        "HAULAGE_ADDRESSES__FAILED_CYCLES_MAX": str(RETRIES),
        **_build_module_variables(modules, batch),
    }
    if pubsub:
        variables |= {
            "HAULAGE_ADDRESSES__PUBSUB__PROJECT": surroundings.PROJECT,
            "HAULAGE_ADDRESSES__PUBSUB__BASE_URL": pubsub.base,
        }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield Settings().model_copy(update={"data_dir": folder / "installation"})
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _build_module_variables(modules: ModuleProcesses, batch: int) -> Mapping[str, str]:
    variables: dict[str, str] = {}
    for name in MODULES:
        prefix = f"HAULAGE_ADDRESSES__MODULES__{name.upper()}"
        variables[f"{prefix}__BASE_URL"] = modules.bases[name]
        variables[f"{prefix}__CREDENTIALS"] = CREDENTIALS
        variables[f"{prefix}__BATCH"] = str(batch)
    return variables


def _count_different(deliveries: int) -> int:
    """Return the messages of a number of deliveries, some of which are repetitions."""
    return int(deliveries * (1 - REPEATED))


def _print_run(name: str, took: Run) -> None:
    print(
        f"{took.messages:>8,} messages  {name:<30} {took.rate:>8,.0f} messages/s  {took.calls_each:>6.2f} calls each  "
        f"{took.cpu_us:>6,.0f} + {took.modules_cpu_us:,.0f} µs CPU each",
        flush=True,
    )

"""`make bench-transfers`: tens of thousands of joins in one window, ours and the seed's design in turn."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import aiohttp

from bench import usage
from bench.peers import environments
from bench.report import RESULTS, publish
from bench.transfers import figures, rounds
from bench.transfers.contenders import SEED_DESIGN, SYSTEM, HaulageTransfers, TransferContender, running_seed_design
from bench.transfers.figures import Results
from bench.transfers.surroundings import BenchRepository, GseProcess, running_gse, running_repository
from dev.local import run_installation
from infra.settings import Settings

CHART = "chart"
SMALL = (5_000, 1)
FULL = (50_000, 2)
WARM_UP_TARGETS = 1_000


async def measure() -> None:
    """Start GSE, repository, installation and peer, run both in turn, publish."""
    small = os.environ.get("SIZE") == "small"
    targets, count = SMALL if small else FULL
    for module in (SEED_DESIGN, CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gse = await stack.enter_async_context(running_gse())
        repository = await stack.enter_async_context(running_repository())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        settings = stack.enter_context(_configure_installation(gse, repository, folder))
        running = await stack.enter_async_context(run_installation(settings))
        ours = await HaulageTransfers.register(running, session)
        seed = await stack.enter_async_context(running_seed_design(running, gse, repository, session))
        # The first run of an installation opens connections and compiles; in production that is done long before.
        await rounds.run(ours, gse, repository, WARM_UP_TARGETS, folder)
        results = await _rounds([ours, seed], gse, repository, targets, count, folder)
        largest = usage.build_largest_process_figure([usage.read_largest_process_mb(running)])
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    publish(name, [*figures.figures(results), largest])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


async def _rounds(
    contenders: Sequence[TransferContender],
    gse: GseProcess,
    repository: BenchRepository,
    targets: int,
    count: int,
    folder: Path,
) -> Results:
    results: Results = {contender.name: [] for contender in contenders}
    for _ in range(count):
        for contender in contenders:
            took = await rounds.run(contender, gse, repository, targets, folder)
            results[contender.name].append(took)
            print(f"{targets:>8,} targets  {contender.name:<12} {took.joins_per_second:>8,.0f} joins/s")
    return results


@contextmanager
def _configure_installation(gse: GseProcess, repository: BenchRepository, folder: Path) -> Iterator[Settings]:
    """Yield the settings of an installation that knows both, also set in the environment for its processes."""
    variables = {
        "HAULAGE_GSE__BASE_URL": gse.base,
        "HAULAGE_GSE__APP_CODE": "bench",
        "HAULAGE_GSE__APP_SECRET": "bench",
        "HAULAGE_GSE__SOURCE_AGENT_ID": "ours-source",
        "HAULAGE_GSE__CACHE_FOLDER": str(folder / "cache"),
        "HAULAGE_GUARD__ALLOW": json.dumps([repository.base.removeprefix("http://")]),
        "HAULAGE_TRANSFERS__REPOSITORY": f"{repository.base}/{{path}}",
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

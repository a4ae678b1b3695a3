"""`make bench-transfers`: tens of thousands of joins in one window, ours and the seed's design in turn."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
from pydantic import SecretStr

from bench.peers import environments
from bench.report import RESULTS, publish
from bench.transfers import figures, rounds
from bench.transfers.contenders import ROOM, SEED_DESIGN, Contender, Ours, running_seed_design
from bench.transfers.figures import Results
from bench.transfers.surroundings import Gse, Repository, running_gse, running_repository
from cli.house import house
from infra.settings import GseSettings, Settings

CHART = "chart"
SMALL = (5_000, 1)
FULL = (50_000, 3)
WARM_UP_TARGETS = 1_000


async def measure() -> None:
    """Start GSE, repository, house and peer; let both run in turn; publish."""
    small = os.environ.get("SIZE") == "small"
    targets, count = SMALL if small else FULL
    for module in (SEED_DESIGN, CHART):
        await asyncio.to_thread(environments.installed, ROOM, module)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gse = await stack.enter_async_context(running_gse())
        repository = await stack.enter_async_context(running_repository())
        session = await stack.enter_async_context(aiohttp.ClientSession())
        running = await stack.enter_async_context(house(_settings(gse, repository, folder)))
        ours = await Ours.registered(running, session)
        seed = await stack.enter_async_context(running_seed_design(running, gse, repository, session))
        # The first run of a house opens connections and compiles what it needs; in everyday life that is long done.
        await rounds.run(ours, gse, repository, WARM_UP_TARGETS, folder)
        results = await _rounds([ours, seed], gse, repository, targets, count, folder)
    # A quick run is a look, not a record.
    name = f"{ROOM}-small" if small else ROOM
    publish(name, figures.figures(results))
    await environments.run(ROOM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


async def _rounds(
    contenders: Sequence[Contender], gse: Gse, repository: Repository, targets: int, count: int, folder: Path
) -> Results:
    results: Results = {contender.name: [] for contender in contenders}
    for _ in range(count):
        for contender in contenders:
            took = await rounds.run(contender, gse, repository, targets, folder)
            results[contender.name].append(took)
            print(f"{targets:>8,} targets  {contender.name:<12} {took.joins_per_second:>8,.0f} joins/s")
    return results


def _settings(gse: Gse, repository: Repository, folder: Path) -> Settings:
    """A house of its own that knows both."""
    settings = Settings()
    known = {
        "base_url": gse.base,
        "app_code": "bench",
        "app_secret": SecretStr("bench"),
        "source_agent_id": "ours-source",
        "cache_folder": folder / "cache",
    }
    allowed = repository.base.removeprefix("http://")
    return settings.model_copy(
        update={
            "data_dir": folder / "house",
            "gse": GseSettings(**known),
            "guard": settings.guard.model_copy(update={"allow": [*settings.guard.allow, allowed]}),
            "transfers": settings.transfers.model_copy(update={"repository": f"{repository.base}/{{path}}"}),
        }
    )

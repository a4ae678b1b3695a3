"""`make bench-orders`: every contender in turn, at several seeds and sizes, while orders change."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench import usage
from bench.orders import figures, rounds
from bench.orders.contenders import CREDENTIALS, SYSTEM, Airbyte, Contender, Dlt, Ours
from bench.orders.rounds import Round
from bench.orders.surroundings import Platforms, running_platforms
from bench.peers import environments
from bench.report import RESULTS, publish
from dev.local import run_installation
from infra.settings import Settings

CHART = "chart"
WARM_UP_ORDERS = 5_000


@dataclass(frozen=True)
class Size:
    """A number of orders, once with each seed."""

    orders: int
    seeds: tuple[int, ...]


SMALL = (Size(10_000, (1, 2)), Size(50_000, (3,)))
FULL = (Size(10_000, (1, 2, 3)), Size(100_000, (1, 2)), Size(1_000_000, (1,)))


async def measure() -> None:
    """Start platforms and an installation, run all contenders in turn, publish."""
    small = os.environ.get("SIZE") == "small"
    for module in ("dlt_incremental", "airbyte_cdk", CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    results: dict[int, dict[str, list[Round]]] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        platforms = await stack.enter_async_context(running_platforms())
        settings = stack.enter_context(_known(platforms, folder))
        running = await stack.enter_async_context(run_installation(settings))
        session = await stack.enter_async_context(aiohttp.ClientSession(base_url=running.api))
        ours = await Ours.registered(running, session)
        contenders: list[Contender] = [ours, Dlt(running), Airbyte(running)]
        # The services are warm in everyday life; the scripts' start is not counted either.
        await rounds.run(ours, platforms, WARM_UP_ORDERS, 0)
        for size in SMALL if small else FULL:
            results[size.orders] = await _rounds(contenders, platforms, size)
        largest = usage.build_largest_process_figure([usage.read_largest_process_mb(running)])
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    figures.show(results)
    publish(name, [*figures.figures(results), largest])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


async def _rounds(contenders: Sequence[Contender], platforms: Platforms, size: Size) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {contender.name: [] for contender in contenders}
    for seed in size.seeds:
        for contender in contenders:
            took = await rounds.run(contender, platforms, size.orders, seed)
            found[contender.name].append(took)
            print(
                f"{size.orders:>10,} orders  seed {seed}  {contender.name:<12} {took.rate:>10,.0f} rows/s  "
                f"{took.requests_per_thousand:>6.1f} requests/1,000  {took.lost} lost  {took.duplicated} duplicated  "
                f"{took.cpu_us:,.0f} µs CPU a row",
                flush=True,
            )
    return found


@contextmanager
def _known(platforms: Platforms, folder: Path) -> Iterator[Settings]:
    """Yield settings that allow the platforms, also set in the environment for the processes."""
    credentials = folder / "credentials"
    credentials.mkdir()
    (credentials / f"{CREDENTIALS}.json").write_text(json.dumps({"token": "token-of-this-shop-1"}))
    variables = {
        "HAULAGE_GUARD__ALLOW": json.dumps([platforms.base.removeprefix("http://")]),
        "HAULAGE_ORDERS__CREDENTIALS_FOLDER": str(credentials),
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

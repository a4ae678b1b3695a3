"""`make bench-downloads`: every contender in turn, several times, at every size; medians, ratios, a chart."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench import usage
from bench.downloads import commands, fairness, figures, proof
from bench.downloads.contenders import SYSTEM, Exporter, ExportRun, HaulageExport, ScriptExport
from bench.downloads.figures import Results
from bench.peers import environments
from bench.report import RESULTS, publish
from dev.local import LocalInstallation, run_installation
from infra.settings import Settings

SEED = 20_260_101
PEERS = {"floor": "floor", "pandas script": "pandas_script", "dlt": "dlt_pipeline"}
CHART = "chart"
WARM_UP_ROWS = 100_000


@dataclass(frozen=True)
class ExportSize:
    """A number of rows and of runs."""

    rows: int
    runs: int


SMALL = (ExportSize(10_000, 3), ExportSize(100_000, 3))
FULL = (ExportSize(10_000, 5), ExportSize(100_000, 5), ExportSize(1_000_000, 5), ExportSize(10_000_000, 1))


async def measure() -> None:
    """Start an installation, run all contenders in turn, publish."""
    small = os.environ.get("SIZE") == "small"
    for module in (*PEERS.values(), CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    results: Results = {}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings().model_copy(update={"data_dir": Path(folder) / "installation"})
        async with (
            run_installation(settings, simulated_services=("source",)) as running,
            aiohttp.ClientSession(base_url=running.api) as session,
        ):
            ours = await HaulageExport.register(running, session)
            contenders: list[Exporter] = [ours]
            contenders += [ScriptExport(name, module, running) for name, module in PEERS.items()]
            # The services are warm in everyday life; the scripts' start is not counted either.
            await _run_contender(running, ours, WARM_UP_ROWS)
            for size in SMALL if small else FULL:
                results[size.rows] = await _run_rounds(running, contenders, size)
            whole = await commands.measure_commands(running, SEED)
            fair = await fairness.measure_fairness(running, SEED)
            largest = usage.build_largest_process_figure([usage.read_largest_process_mb(running)])
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    figures.show(results)
    publish(name, [*figures.figures(results), largest, whole, *fair])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


async def _run_rounds(
    running: LocalInstallation, contenders: Sequence[Exporter], size: ExportSize
) -> dict[str, list[ExportRun]]:
    runs: dict[str, list[ExportRun]] = {contender.name: [] for contender in contenders}
    for _ in range(size.runs):
        for contender in contenders:
            runs[contender.name].append(await _run_contender(running, contender, size.rows))
    return runs


async def _run_contender(running: LocalInstallation, contender: Exporter, rows: int) -> ExportRun:
    """One run, which counts only when its files are right."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"{running.source}/rows?rows={rows}&seed={SEED}"
        run = await contender.run(url, rows, Path(folder))
        await asyncio.to_thread(proof.require_equal, run.files, proof.ExportContent(rows, SEED))
    print(f"{rows:>10,} rows  {contender.name:<14} {rows / run.seconds:>10,.0f} rows/s  every cell is right")
    return run

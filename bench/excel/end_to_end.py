"""An Excel export through an installation, with its default limits and the zip, against the CSV of the same rows."""

from __future__ import annotations

import asyncio
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import aiohttp

from bench import usage
from bench.downloads.contenders import ExportRun, HaulageExport
from bench.downloads.proof import ExportContent
from bench.downloads.proof import require_equal as require_equal_csv
from bench.excel import content, proof
from bench.report import Figure
from dev.local import LocalInstallation, run_installation
from infra.settings import Settings

SMALL_ROWS, FULL_ROWS = 100_000, 1_000_000
RUNS = 3
WARM_UP_ROWS = 100_000
TIMES_MAX = 1.5
HEAD_ROWS = 1
"""Without a template and a title the keys are the only heads."""


async def figures(*, small: bool) -> list[Figure]:
    """Export both kinds of file in turn, from one source, by one installation."""
    rows = SMALL_ROWS if small else FULL_ROWS
    with tempfile.TemporaryDirectory() as folder:
        typed = Path(folder) / "typed"
        await asyncio.to_thread(content.write_typed, rows, typed)
        settings = Settings().model_copy(update={"data_dir": Path(folder) / "installation"})
        async with (
            run_installation(settings, simulated_services=("source",)) as running,
            aiohttp.ClientSession(base_url=running.api) as session,
        ):
            csv = await HaulageExport.register(running, session)
            both = {"csv": csv, "excel": csv.asking("excel", time_zone=content.ZONE)}
            for type_, ours in both.items():
                await _export(running, ours, type_, WARM_UP_ROWS, None)
            runs: dict[str, list[ExportRun]] = {type_: [] for type_ in both}
            for _ in range(RUNS):
                for type_, ours in both.items():
                    runs[type_].append(await _export(running, ours, type_, rows, typed))
            largest = usage.build_largest_process_figure([usage.read_largest_process_mb(running)])
    return [largest, *_build_figures(runs, rows)]


async def _export(
    running: LocalInstallation, ours: HaulageExport, type_: str, rows: int, typed: Path | None
) -> ExportRun:
    """One export; unless it only warms up, its cells must be right to count."""
    with tempfile.TemporaryDirectory() as folder:
        run = await ours.run(f"{running.source}/rows?rows={rows}&seed={content.SEED}", rows, Path(folder))
        if typed is not None:
            if type_ == "csv":
                await asyncio.to_thread(require_equal_csv, run.files, ExportContent(rows, content.SEED))
            else:
                await asyncio.to_thread(proof.require_equal, _read_books(run.files[0]), typed, HEAD_ROWS)
            print(
                f"{rows:>10,} rows  {type_:<6} through the API  {run.seconds:6.2f} s  every cell is right", flush=True
            )
    return run


def _read_books(delivered: Path) -> Sequence[Path]:
    """One book, or those of a zip in the order of their names."""
    with zipfile.ZipFile(delivered) as parts:
        names = sorted(name for name in parts.namelist() if name.endswith(".xlsx"))
        if not names:
            return [delivered]
        parts.extractall(delivered.parent)
    return [delivered.parent / name for name in names]


def _build_figures(runs: Mapping[str, Sequence[ExportRun]], rows: int) -> list[Figure]:
    seconds = {type_: median(run.seconds for run in found) for type_, found in runs.items()}
    ratio = seconds["excel"] / seconds["csv"]
    counts = rows == FULL_ROWS
    cpu = {type_: median(run.cpu_seconds for run in found) for type_, found in runs.items()}
    how = f"seconds from the request until it is ready, medians of {RUNS} runs in turn; 10 MB a file, zipped"
    by_cpu = f"; by processor seconds of API and workers {cpu['excel'] / cpu['csv']:.2f}"
    peak = max(run.peak_mb for run in runs["excel"])
    return [
        Figure(
            f"Excel export ÷ CSV export through the API, {rows:,} rows",
            ratio,
            "×",
            how + by_cpu,
            f"≤ {TIMES_MAX}" if counts else "",
            ratio <= TIMES_MAX if counts else None,
        ),
        *(Figure(f"{type_} export, {rows:,} rows", seconds[type_], "s", how) for type_ in seconds),
        *(Figure(f"{type_} export, {rows:,} rows: CPU", cpu[type_], "s", "of API and workers") for type_ in cpu),
        Figure(f"excel export, {rows:,} rows: memory", peak, "MB", "largest process of ours, sampled every 50 ms"),
    ]

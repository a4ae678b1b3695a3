"""From runs to figures: medians, ratios, and what the issue asks to reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.downloads.contenders import ExportRun
from bench.report import Figure

Results = dict[int, dict[str, list[ExportRun]]]

OURS = "ours"
REFERENCE_ROWS = 1_000_000
PEERS = ("floor", "pandas script", "dlt")
RATIOS_TO_REACH = {
    ("pandas script", 10_000): 0.7,
    ("floor", 1_000_000): 0.85,
    ("pandas script", 1_000_000): 2.5,
    ("dlt", 1_000_000): 7.0,
    ("floor", 10_000_000): 0.9,
}
PEAK_MAX_MB = 400.0
READY_ROWS = 10_000
READY_MAX_SECONDS = 1.0
GROWTH_MAX = 1.05


def figures(results: Results) -> list[Figure]:
    """What the issue names first, then everything."""
    found = [*_ratios(results), *_peaks(results), *_ready(results), *_growth(results)]
    for rows, by_name in results.items():
        for name, runs in by_name.items():
            found += _of_contender(rows, name, runs)
        found += _of_serving_parts(rows, by_name[OURS])
    return found


def show(results: Results) -> None:
    """The comparison in one table."""
    names = list(next(iter(results.values())))
    table = Table("rows", *names, title="rows/s · CPU seconds · peak MB")
    for rows, by_name in results.items():
        cells = (
            f"{_rate(rows, runs):,.0f} · {_median(runs, _cpu):.2f} · {_median(runs, _peak):,.0f}"
            for runs in by_name.values()
        )
        table.add_row(f"{rows:,}", *cells)
    Console().print(table)


def as_json(results: Results) -> bytes:
    """What the chart shows: by contender and size."""
    series = {
        name: {
            "rows": list(results),
            "rate": [_rate(rows, by_name[name]) for rows, by_name in results.items()],
            "cpu_us": [_median(by_name[name], _cpu) / rows * 1e6 for rows, by_name in results.items()],
            "peak_mb": [_median(by_name[name], _peak) for by_name in results.values()],
        }
        for name in next(iter(results.values()))
    }
    return json.dumps(series).encode()


def _ratios(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        for name in PEERS:
            ratio = _rate(rows, by_name[OURS]) / _rate(rows, by_name[name])
            reach = RATIOS_TO_REACH.get((name, rows))
            yield Figure(
                f"ours ÷ {name}, {rows:,} rows",
                ratio,
                "×",
                "rows/s by rows/s, medians of runs in turn",
                f"≥ {reach:g}" if reach else "",
                ratio >= reach if reach else None,
            )


def _peaks(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        peak = max(run.peak_mb for run in by_name[OURS])
        yield Figure(
            f"largest process of ours, {rows:,} rows",
            peak,
            "MB",
            "resident memory of API and workers, sampled every 50 ms; the highest of all runs",
            f"≤ {PEAK_MAX_MB:.0f}",
            peak <= PEAK_MAX_MB,
        )


def _ready(results: Results) -> Iterator[Figure]:
    if runs := results.get(READY_ROWS):
        seconds = _median(runs[OURS], _seconds)
        yield Figure(
            f"ready after the request, {READY_ROWS:,} rows",
            seconds,
            "s",
            "from the request until the WebSocket sends the state succeeded",
            f"≤ {READY_MAX_SECONDS:.0f}",
            seconds <= READY_MAX_SECONDS,
        )


def _growth(results: Results) -> Iterator[Figure]:
    largest = max(results)
    if largest > REFERENCE_ROWS:
        per_row = {rows: _median(results[rows][OURS], _cpu) / rows for rows in (REFERENCE_ROWS, largest)}
        growth = per_row[largest] / per_row[REFERENCE_ROWS]
        yield Figure(
            f"our CPU seconds for a row, {largest:,} rows ÷ {REFERENCE_ROWS:,} rows",
            growth,
            "×",
            "1 is linear growth",
            f"≤ {GROWTH_MAX}",
            growth <= GROWTH_MAX,
        )


def _of_contender(rows: int, name: str, runs: list[ExportRun]) -> Iterator[Figure]:
    rates = sorted(rows / run.seconds for run in runs)
    spread = f"median of {len(runs)} runs in turn, {rates[0]:,.0f} to {rates[-1]:,.0f}; page_size 1000"
    yield Figure(f"{name}, {rows:,} rows", _rate(rows, runs), "rows/s", spread)
    yield Figure(f"{name}, {rows:,} rows: CPU", _median(runs, _cpu), "s", "user and system, of its own processes")
    yield Figure(f"{name}, {rows:,} rows: memory", _median(runs, _peak), "MB", "peak of its largest process")


def _of_serving_parts(rows: int, runs: list[ExportRun]) -> Iterator[Figure]:
    for part in runs[0].serving:
        seconds = median(run.serving[part] for run in runs)
        yield Figure(f"ours, {rows:,} rows: CPU of the {part}", seconds, "s", "user and system, while ours ran")


def _rate(rows: int, runs: list[ExportRun]) -> float:
    return rows / _median(runs, _seconds)


def _median(runs: list[ExportRun], of: Callable[[ExportRun], float]) -> float:
    return median(map(of, runs))


def _seconds(run: ExportRun) -> float:
    return run.seconds


def _cpu(run: ExportRun) -> float:
    return run.cpu_seconds


def _peak(run: ExportRun) -> float:
    return run.peak_mb

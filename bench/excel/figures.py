"""From runs to figures: medians, ratios, and what the issue asks to reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from statistics import median

from rich.console import Console
from rich.table import Table

from bench.excel.contenders import WriterRun
from bench.report import Figure

Results = dict[int, dict[str, list[WriterRun]]]
"""The runs by rows and by name."""

OURS, OURS_TWICE = "ours", "ours, two cores"
XLSXWRITER, RUSTPY, JETXL = "xlsxwriter", "rustpy-xlsxwriter", "jetxl"
REFERENCE_ROWS = 1_000_000
COLUMNS = 10
RATIOS_TO_REACH = {(XLSXWRITER, 1_000_000): 30.0, (RUSTPY, 1_000_000): 4.0, (JETXL, 100_000): 1.0}
PEAK_MAX_MB = 300.0
CORES_LEAST = 1.7


def figures(results: Results) -> list[Figure]:
    """What the issue names first, then everything."""
    found = [*_ratios(results), *_sizes(results), *_peaks(results), *_cores(results)]
    for rows, by_name in results.items():
        for name, runs in by_name.items():
            found += _of_contender(rows, name, runs)
    return found


def show(results: Results) -> None:
    """The comparison in one table."""
    table = Table("rows", "writer", "cells/s", "CPU seconds", "peak MB", "file MB", "runs", title="one book each")
    for rows, by_name in results.items():
        for name, runs in by_name.items():
            numbers = f"{_rate(rows, name, runs):,.0f}", *(f"{_median(runs, of):,.1f}" for of in (_cpu, _peak, _size))
            table.add_row(f"{rows:,}", name, *numbers, str(len(runs)))
    Console().print(table)


def as_json(results: Results) -> bytes:
    """What the chart shows: by contender, at the largest size."""
    rows = max(results)
    panels = {
        name: {"rate": _rate(rows, name, runs) / 1e6, "peak_mb": _median(runs, _peak), "file_mb": _median(runs, _size)}
        for name, runs in results[rows].items()
    }
    return json.dumps({"rows": rows, "writers": panels}).encode()


def _ratios(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        for name, runs in by_name.items():
            if name not in (OURS, OURS_TWICE):
                ratio = _median(runs, _cpu) / _median(by_name[OURS], _cpu)
                by_wall = _median(runs, _seconds) / _median(by_name[OURS], _seconds)
                how = (
                    f"cells by processor second, medians of runs in turn on one core each; by wall clock {by_wall:.2f}"
                )
                yield _at_least(f"ours ÷ {name}, {rows:,} rows", ratio, RATIOS_TO_REACH.get((name, rows)), how)


def _sizes(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        ratio = _median(by_name[OURS], _size) / _median(by_name[JETXL], _size)
        how = "the same cells; ours has styles, heads and formats besides"
        yield _at_most(f"file size, ours ÷ {JETXL}, {rows:,} rows", ratio, "×", rows, 1.0, how)


def _peaks(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        for name in (OURS, OURS_TWICE):
            peak = max(map(_peak, by_name[name]))
            how = "the whole process, interpreter and libraries included; the highest of all runs"
            yield _at_most(f"peak memory of {name}, {rows:,} rows", peak, "MB", rows, PEAK_MAX_MB, how)


def _cores(results: Results) -> Iterator[Figure]:
    for rows, by_name in results.items():
        ratio = _median(by_name[OURS], _seconds) / _median(by_name[OURS_TWICE], _seconds)
        how = "wall clock on one core by wall clock on two"
        reach = CORES_LEAST if rows == REFERENCE_ROWS else None
        yield _at_least(f"ours on two cores ÷ on one, {rows:,} rows", ratio, reach, how)


def _at_least(name: str, value: float, reach: float | None, how: str) -> Figure:
    if reach is None:
        return Figure(name, value, "×", how)
    return Figure(name, value, "×", how, f"≥ {reach:g}", value >= reach)


def _at_most(name: str, value: float, unit: str, rows: int, reach: float, how: str) -> Figure:
    if rows != REFERENCE_ROWS:
        return Figure(name, value, unit, how)
    return Figure(name, value, unit, how, f"≤ {reach:g}", value <= reach)


def _of_contender(rows: int, name: str, runs: list[WriterRun]) -> Iterator[Figure]:
    clock = "wall clock" if name == OURS_TWICE else "processor time"
    rates = sorted(rows * COLUMNS / run.seconds for run in runs)
    how = f"by {clock}, median of {len(runs)} runs in turn; by wall clock {rates[0]:,.0f} to {rates[-1]:,.0f}"
    yield Figure(f"{name}, {rows:,} rows", _rate(rows, name, runs), "cells/s", how)
    yield Figure(f"{name}, {rows:,} rows: CPU", _median(runs, _cpu), "s", "user and system")
    yield Figure(f"{name}, {rows:,} rows: memory", _median(runs, _peak), "MB", "peak, with the rows it must be given")
    yield Figure(f"{name}, {rows:,} rows: file", _median(runs, _size), "MB", "of the book")


def _rate(rows: int, name: str, runs: list[WriterRun]) -> float:
    """On one core by processor time, which is the wall clock of an idle machine; on two cores by the wall clock."""
    return rows * COLUMNS / _median(runs, _seconds if name == OURS_TWICE else _cpu)


def _median(runs: list[WriterRun], of: Callable[[WriterRun], float]) -> float:
    return median(map(of, runs))


def _seconds(run: WriterRun) -> float:
    return run.seconds


def _cpu(run: WriterRun) -> float:
    return run.cpu_seconds


def _peak(run: WriterRun) -> float:
    return run.peak_mb


def _size(run: WriterRun) -> float:
    return run.file_mb

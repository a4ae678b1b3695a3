"""From rounds to figures: what the issue asks to reach, each contender's own, and where our time goes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from bench import usage
from bench.report import Figure
from bench.tasks import library
from bench.tasks.rounds import CONNECTIONS, HOLD_CONNECTIONS, HOLD_LIMIT, Phase, TaskRound

Results = Mapping[str, TaskRound]

OURS, SEED = "ours", "seed schema"
HALF_P50_MS, HALF_P99_MS = 20.0, 60.0
LIBRARY_RATIO = 0.5
PICKUP_MS = 20.0
RATIOS_TO_REACH = {"procrastinate": 7.5, "pgqueuer": 5.0, SEED: 2.0, "seed schema, grouped": 0.7}
SEED_FIGURES = {"create": 3_000, "get": 3_300, "hold": 2_000}
"""What flowSvr's author reports for two cores; whether database, cache and load shared them is not said."""


def figures(results: Results, grown: int) -> list[Figure]:
    """What the issue names first."""
    found = [*_build_target_figures(results[OURS]), *_ratios(results)]
    for name, round_ in results.items():
        found += _describe_round(name, round_, grown)
    found += [
        Figure(f"flowSvr, by its author: {route}", rate, "1/s", "2 cores, 4 GB; an unknown set-up, answers not checked")
        for route, rate in SEED_FIGURES.items()
    ]
    return found


def as_json(results: Results) -> bytes:
    """What the chart shows: by panel, one number for each contender."""
    panels: dict[str, dict[str, float]] = {
        f"{route}, requests/s": {name: each.full[route].rate for name, each in results.items()}
        for route in ("create", "get", "hold", "set")
    }
    panels["hold, tasks/s"] = {name: each.full["hold"].task_rate for name, each in results.items()}
    panels["create → hold → set, tasks/s"] = {name: each.cycle.task_rate for name, each in results.items()}
    panels["CPU for a full cycle, µs"] = {name: each.cycle.cpu_us() for name, each in results.items()}
    return json.dumps(panels).encode()


def _build_target_figures(ours: TaskRound) -> Iterator[Figure]:
    for route, phase in ours.half.items():
        how = (
            f"half of the seed schema's rate: {ours.half_rates[route]:,.0f} requests/s due, {phase.rate:,.0f} answered"
        )
        for per_cent, most in ((50, HALF_P50_MS), (99, HALF_P99_MS)):
            took = phase.percentile(per_cent)
            yield Figure(
                f"ours: p{per_cent} of {route} at half load", took, "ms", how, f"≤ {most:.0f}", took <= most
            )  # fmt: skip
    if ours.library:
        yield from _library(ours.library, ours.cycle)
    if ours.single:
        yield from ours.single.build_figures()
    yield usage.build_largest_process_figure([ours.largest_process_mb])
    yield from _none("ours: wrong answers", ours.wrong_answers, "every answer's code looked at")
    yield from _none("ours: tasks miscounted", ours.lost, "counts at the end beside all answers")


def _library(done: library.LibraryOutcome, cycle: Phase) -> Iterator[Figure]:
    ratio = done.rate / cycle.task_rate
    yield Figure(
        "library worker ÷ full cycle", ratio, "×",
        f"one process as it is by default: {done.rate:,.0f} stages/s of trivial two-stage tasks, created before",
        f"≥ {LIBRARY_RATIO:g}", ratio >= LIBRARY_RATIO,
    )  # fmt: skip
    yield Figure(
        "library worker: a task that comes to an idle queue", done.pickup_ms, "ms",
        "median from the answer to its create, through either API process, to the first line of its handler",
        f"≤ {PICKUP_MS:.0f}", done.pickup_ms <= PICKUP_MS,
    )  # fmt: skip


def _none(name: str, count: int, how: str) -> Iterator[Figure]:
    yield Figure(name, count, "", how, "0", not count)


def _ratios(results: Results) -> Iterator[Figure]:
    for name, round_ in results.items():
        if name == OURS:
            continue
        ratio, reach = results[OURS].cycle.task_rate / round_.cycle.task_rate, RATIOS_TO_REACH.get(name)
        yield Figure(
            f"ours ÷ {name}: full cycle", ratio, "×", "tasks/s by tasks/s, create → hold → set",
            f"≥ {reach:g}" if reach else "", ratio >= reach if reach else None,
        )  # fmt: skip


def _describe_round(name: str, round_: TaskRound, grown: int) -> Iterator[Figure]:
    for route, phase in round_.full.items():
        yield Figure(f"{name}: {route}", phase.rate, "1/s", _how(route))
        if route == "hold":
            yield Figure(f"{name}: tasks held", phase.task_rate, "tasks/s", _how(route))
        yield Figure(f"{name}: p50 of {route}", phase.percentile(50), "ms", _how(route))
        yield Figure(f"{name}: p99 of {route}", phase.percentile(99), "ms", _how(route))
        yield from _cpu(f"{name}: CPU of {route}", phase, by_part=name == OURS)
    for route, phase in round_.half.items() if name != OURS else ():
        due = f"{round_.half_rates[route]:,.0f} requests/s due, {phase.rate:,.0f} answered"
        for per_cent in (50, 99):
            yield Figure(f"{name}: p{per_cent} of {route} at half load", phase.percentile(per_cent), "ms", due)
    yield from _cycle(f"{name}: full cycle", round_.cycle, name == OURS)
    if round_.grown:
        yield from _cycle(f"{name}: full cycle among {grown:,} ended tasks", round_.grown, by_part=False)
        kept = round_.grown.task_rate / round_.cycle.task_rate
        yield Figure(f"{name}: full cycle, grown ÷ fresh", kept, "×", "ended tasks laid into its tables by SQL")
    if name != OURS:
        yield Figure(f"{name}: wrong answers", round_.wrong_answers, "", "every answer's code looked at")
        yield Figure(f"{name}: tasks miscounted", round_.lost, "", "counts at the end beside all answers")


def _cycle(name: str, phase: Phase, by_part: bool) -> Iterator[Figure]:
    how = f"{phase.tasks:,} tasks, {CONNECTIONS} clients, a create and a set for each task, a hold for 10"
    yield Figure(f"{name}, tasks/s", phase.task_rate, "tasks/s", how)
    yield Figure(f"{name}, requests/s", phase.rate, "1/s", how)
    yield Figure(f"{name}, p99 of all answers", phase.percentile(99), "ms", how)
    yield from _cpu(f"{name}, CPU", phase, by_part)


def _cpu(name: str, phase: Phase, by_part: bool) -> Iterator[Figure]:
    load = phase.load_cpu_seconds / max(1, phase.requests) * 1e6
    how = f"user and system; the load generator used {load:,.0f} µs a request"
    yield Figure(f"{name} for a task", phase.cpu_us(), "µs", f"all its processes and those that serve it, {how}")
    for part in phase.cpu_seconds if by_part else ():
        yield Figure(f"{name} for a task, {part}", phase.cpu_us(part), "µs", "of that process and its children")


def _how(route: str) -> str:
    if route == "hold":
        return f"{HOLD_CONNECTIONS} at a time, {HOLD_LIMIT} tasks each"
    return f"{CONNECTIONS} at a time"

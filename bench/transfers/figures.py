"""From rounds to figures: medians, the worst where one is too many, and what the issue asks to reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from statistics import median, quantiles

from bench.report import Figure
from bench.transfers.rounds import JOIN_CONNECTIONS, TransferRound

Results = dict[str, list[TransferRound]]

OURS, SEED = "ours", "seed design"
JOINS_PER_SECOND = 5_000.0
WINDOW_SECONDS = 15.0
FIRST_TASK_SECONDS = 1.0
VISIBLE_SECONDS = 1.0
MOST = {"GSE calls for a target": 0.010, "success seen": 3.0}
"""The most that ours may take."""
READ_SPAN = "from the first success until the job is over"
RATIOS_TO_REACH = {"joins/s": 2.5, "status reads/s": 1.0}


def figures(results: Results) -> list[Figure]:
    """What the issue names first, then the other design, then where the time goes."""
    ours, seed = results[OURS], results[SEED]
    found = [*_build_target_figures(ours)]
    for name, rounds in results.items():
        found += _describe_measures(name, rounds)
    return [*found, *_build_ratios(ours, seed)]


def as_json(results: Results) -> bytes:
    """What the chart shows: by contender, one number for each panel."""
    panels: dict[str, Callable[[TransferRound], float]] = {
        "joins a second": _joins,
        "CPU for a join, µs": _join_cpu,
        "p99 of a join's answer, ms": lambda each: _percentile(each, 99),
        "last GSE task after the window, s": lambda each: each.last_task,
        "status reads a second, under way": lambda each: each.reads_per_second,
        "end of job after its last target, s": lambda each: each.converged,
    }
    return json.dumps(
        {label: {name: _median(rounds, of) for name, rounds in results.items()} for label, of in panels.items()}
    ).encode()


def _build_target_figures(rounds: Sequence[TransferRound]) -> Iterator[Figure]:
    targets = f"{rounds[0].targets:,} joins for one file"
    joins = _median(rounds, _joins)
    yield Figure(
        "ours: joins/s", joins, "1/s", f"{targets}, {JOIN_CONNECTIONS} at a time; {_spread(rounds, _joins)}",
        f"≥ {JOINS_PER_SECOND:,.0f}", joins >= JOINS_PER_SECOND,
    )  # fmt: skip
    seconds = max(each.join_seconds for each in rounds)
    yield Figure(
        "ours: all joins durable", seconds, "s", "from the first request to the last answer; the slowest round",
        f"inside the window of {WINDOW_SECONDS:.0f} s", all(each.inside_window for each in rounds),
    )  # fmt: skip
    first = max(each.first_task for each in rounds)
    yield Figure(
        "ours: first GSE task after the window's end", first, "s", "by GSE's clock; the slowest round",
        f"≤ {FIRST_TASK_SECONDS:.0f}", first <= FIRST_TASK_SECONDS,
    )  # fmt: skip
    visible = max(max(each.visible) for each in rounds)
    yield Figure(
        "ours: success visible after the poll that tells it", visible, "s",
        "50 watched tasks of each round, asked every 0.2 s; the slowest",
        f"≤ {VISIBLE_SECONDS:.0f}", visible <= VISIBLE_SECONDS,
    )  # fmt: skip
    yield from _exact("ours: repository fetches", [each.fetches for each in rounds], 1)
    yield from _exact("ours: targets sent more than once", [each.sent_again for each in rounds], 0)
    yield from _exact("ours: tasks without success at the end", [each.lost for each in rounds], 0)


def _build_ratios(ours: Sequence[TransferRound], seed: Sequence[TransferRound]) -> Iterator[Figure]:
    measures: dict[str, tuple[Callable[[TransferRound], float], str]] = {
        "joins/s": (_joins, "medians of rounds in turn"),
        "status reads/s": (
            lambda each: each.reads_per_second,
            f"medians of rounds in turn; {READ_SPAN}",
        ),
    }
    for what, (of, how) in measures.items():
        ratio, reach = _median(ours, of) / _median(seed, of), RATIOS_TO_REACH[what]
        yield Figure(f"ours ÷ seed design: {what}", ratio, "×", how, f"≥ {reach:g}", ratio >= reach)


def _exact(name: str, counts: Sequence[int], expected: int) -> Iterator[Figure]:
    worst = max(counts, key=lambda count: abs(count - expected))
    yield Figure(name, worst, "", "the worst round", f"{expected}", worst == expected)


def _describe_measures(name: str, rounds: Sequence[TransferRound]) -> Iterator[Figure]:
    of_rounds = f"median of {len(rounds)} rounds"
    figures: dict[str, tuple[Callable[[TransferRound], float], str, str]] = {
        "joins/s": (_joins, "1/s", _spread(rounds, _joins)),
        "p50 of a join's answer": (lambda each: _percentile(each, 50), "ms", f"{JOIN_CONNECTIONS} joins at a time"),
        "p99 of a join's answer": (lambda each: _percentile(each, 99), "ms", f"{JOIN_CONNECTIONS} joins at a time"),
        "CPU for a join": (_join_cpu, "µs", "of all its processes, and of those that serve it"),
        "first GSE task": (lambda each: each.first_task, "s", "after the window's end"),
        "last GSE task": (lambda each: each.last_task, "s", "after the window's end"),
        "GSE calls for a target": (_calls, "", "transfers, results, terminations and states of agents"),
        "status reads/s under way": (
            lambda each: each.reads_per_second,
            "1/s",
            f"16 at a time, {READ_SPAN}",
        ),
        "status reads/s at the end": (lambda each: each.last_reads_per_second, "1/s", "16 at a time"),
        "success seen": (lambda each: max(each.seen), "s", "after a watched target had its file; the slowest"),
        "job over": (lambda each: each.converged, "s", "after its last target had the file"),
        "targets that did not succeed": (lambda each: float(each.lost), "", ""),
        "repository fetches": (lambda each: float(each.fetches), "", ""),
    }
    for what, (of, unit, how) in figures.items():
        if name == OURS and what in ("joins/s", "targets that did not succeed", "repository fetches"):
            continue
        value, most = _median(rounds, of), MOST.get(what) if name == OURS else None
        reach, holds = (f"≤ {most:g}", value <= most) if most else ("", None)
        yield Figure(f"{name}: {what}", value, unit, f"{of_rounds}; {how}" if how else of_rounds, reach, holds)
    for part in rounds[0].cpu_seconds:
        seconds = median(each.cpu_seconds[part] for each in rounds)
        yield Figure(f"{name}: CPU of {part}", seconds, "s", f"{of_rounds}; user and system, the whole round")


def _spread(rounds: Sequence[TransferRound], of: Callable[[TransferRound], float]) -> str:
    values = sorted(map(of, rounds))
    return f"median of {len(values)} rounds, {values[0]:,.0f} to {values[-1]:,.0f}"


def _median(rounds: Sequence[TransferRound], of: Callable[[TransferRound], float]) -> float:
    return median(map(of, rounds))


def _joins(each: TransferRound) -> float:
    return each.joins_per_second


def _join_cpu(each: TransferRound) -> float:
    return each.join_cpu_seconds / each.targets * 1e6


def _calls(each: TransferRound) -> float:
    return sum(each.calls.values()) / each.targets


def _percentile(each: TransferRound, per_cent: int) -> float:
    return quantiles(each.latencies_ms, n=100)[per_cent - 1]

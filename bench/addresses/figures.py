"""From rounds to figures: ratios first, then what the issue asks to reach, then everything."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.addresses.rounds import Arrivals, Backlog, Run, Turns, median
from bench.report import Figure

OURS, OURS_ALONE = "ours", "ours, one a call"
SEQUENTIAL, SEQUENTIAL_BATCHED = "sequential", "sequential, batched"
SINK, SINK_ALONE = "buffered sink", "buffered sink, one a call"
PEERS: Final = (SEQUENTIAL, SEQUENTIAL_BATCHED, SINK, SINK_ALONE)

RATIOS_TO_REACH: Final = {SEQUENTIAL: 20.0, SEQUENTIAL_BATCHED: 1.2, SINK: 0.75}
ALONE_RATIO: Final = 2.5
CPU_RATIO_MAX: Final = 2.5
INTAKE_RATE: Final = 3_000
CYCLE_MESSAGES, CYCLE_SECONDS = 10_000, 60.0


@dataclass(frozen=True)
class Pulled:
    """What was measured with pulled messages, and with modules that take ordered batches."""

    turns: Turns
    cycle: Backlog
    burst: Arrivals
    trickle: Arrivals
    cycle_events: Sequence[int]
    """Of each run of the schedule's workflow."""
    intake_events: Sequence[int]
    """Of each run of the intakes' workflow."""


@dataclass(frozen=True)
class Results:
    """Everything."""

    pulled: Pulled
    pushed: Turns
    """With modules that take one operation a call."""

    @property
    def runs(self) -> Mapping[str, Run]:
        """A log's messages into the modules, by contender: the median of its rounds."""
        peers = {**self.pushed.peers, **self.pulled.turns.peers}
        found = {name: median(peers[name]) for name in PEERS}
        return {OURS: self.pulled.turns.run, OURS_ALONE: self.pushed.run, **found}


def build_figures(results: Results) -> list[Figure]:
    """What the issue names first, then everything."""
    found = [*_list_ratios(results), *_list_intake_figures(results), *_list_cycle_figures(results.pulled.cycle)]
    found += _list_arrival_figures("a burst", results.pulled.burst)
    found += _list_arrival_figures("a trickle", results.pulled.trickle)
    found += _list_bounds(results)
    for name, run in results.runs.items():
        found += _list_run_figures(name, run)
    return found


def render_panels(results: Results) -> bytes:
    """What the chart shows."""
    runs = results.runs
    panels = {
        "messages a second": {name: run.rate for name, run in runs.items()},
        "module calls for a message": {name: run.calls_each for name, run in runs.items()},
        "CPU µs for a message, modules apart": {name: run.cpu_us for name, run in runs.items()},
    }
    return json.dumps(panels).encode()


def _list_ratios(results: Results) -> Iterator[Figure]:
    batched, alone = results.pulled.turns, results.pushed
    for peer, reach in RATIOS_TO_REACH.items():
        yield _build_ratio(batched, OURS, peer, reach)
    yield _build_ratio(alone, OURS_ALONE, SEQUENTIAL, ALONE_RATIO)
    yield _build_ratio(alone, OURS_ALONE, SINK_ALONE)
    cpu = batched.run.cpu_us / median(batched.peers[SINK]).cpu_us
    yield Figure(
        f"{OURS} ÷ {SINK}: CPU for a message", cpu, "×",
        "processor by processor, medians of rounds in turn; of all processes but the modules",
        f"≤ {CPU_RATIO_MAX:g}", cpu <= CPU_RATIO_MAX,
    )  # fmt: skip


def _build_ratio(turns: Turns, name: str, peer: str, reach: float = 0.0) -> Figure:
    ratios = turns.ratios(peer)
    ratio = statistics.median(ratios)
    how = (
        f"messages/s of {turns.run.messages:,} messages by messages/s of {median(turns.peers[peer]).messages:,}; "
        f"median of {len(ratios)} rounds in turn, {ratios[0]:.2f} to {ratios[-1]:.2f}"
    )
    return Figure(
        f"{name} ÷ {peer}", ratio, "×", how, f"≥ {reach:g}" if reach else "", ratio >= reach if reach else None
    )


def _list_intake_figures(results: Results) -> Iterator[Figure]:
    how = {
        "pull": "from a Pub/Sub in a process of its own, while it is published; first to last commit",
        "push": "one message a request, 256 connections; first to last commit",
    }
    for way, turns in (("pull", results.pulled.turns), ("push", results.pushed)):
        rate = statistics.median(each.intake for each in turns.backlogs)
        yield Figure(
            f"intake by {way}", rate, "messages/s",
            f"{turns.run.messages:,} different messages, one delivery of twenty a repetition; {how[way]}; "
            f"median of {len(turns.backlogs)} rounds",
            f"≥ {INTAKE_RATE:,}", rate >= INTAKE_RATE,
        )  # fmt: skip
        cpu_us = statistics.median(each.intake_cpu_us for each in turns.backlogs)
        yield Figure(f"intake by {way}: CPU for a message", cpu_us, "µs", "our processes, and those that serve them")


def _list_cycle_figures(cycle: Backlog) -> Iterator[Figure]:
    whole = cycle.run.messages >= CYCLE_MESSAGES
    yield Figure(
        f"one cycle of {cycle.run.messages:,}", cycle.run.seconds, "s",
        f"from the schedule's trigger until all are in the history; it took {cycle.cycles} cycle",
        f"< {CYCLE_SECONDS:.0f}" if whole else "",
        cycle.run.seconds < CYCLE_SECONDS and cycle.cycles == 1 if whole else None,
    )  # fmt: skip


def _list_arrival_figures(name: str, took: Arrivals) -> Iterator[Figure]:
    how = f"{took.messages:,} messages"
    if name == "a burst":
        how += " published at once; until all are in the history"
        yield Figure(f"{name}: time to converge", took.seconds, "s", how)
    else:
        how += f" in {took.seconds:.1f} s"
    for which, seconds in (("p50", took.lag.median), ("p99", took.lag.p99), ("oldest", took.lag.oldest)):
        yield Figure(f"{name}: lag, {which}", seconds, "s", f"publication to the fourth acknowledgement, {how}")


def _list_bounds(results: Results) -> Iterator[Figure]:
    pulled = results.pulled
    last = pulled.turns.backlogs[-1]
    yield Figure("backlog: cycles", last.cycles, "", f"for the {last.run.messages:,} messages of a round")
    yield Figure("backlog: superseded", last.superseded, "", "of them: createUpdates that a later one made needless")
    for name, turns in ((OURS, pulled.turns), (OURS_ALONE, results.pushed)):
        peak = max(each.worker_peak_bytes for each in turns.backlogs) / 1024**2
        yield Figure(f"{name}: memory of a worker", peak, "MiB", "the larger of two, at its peak, in the backlogs")
    kinds = (("the schedule", pulled.cycle_events), ("intake", pulled.intake_events))
    for name, events in kinds:
        how = f"{sum(events):,} in {len(events)} runs, for all messages of this installation"
        yield Figure(f"{name}: events of the longest history", max(events), "", how)


def _list_run_figures(name: str, run: Run) -> Iterator[Figure]:
    how = f"{run.messages:,} messages of a filled log; all four modules' tables as plain Python has it"
    yield Figure(f"{name}: messages/s", run.rate, "messages/s", how)
    counted = "lookups of swaps included" if name in (OURS, OURS_ALONE) else "counted where they are made"
    yield Figure(f"{name}: module calls for a message", run.calls_each, "", counted)
    yield Figure(f"{name}: CPU for a message", run.cpu_us, "µs", "its processes, and those that serve it")
    yield Figure(f"{name}: CPU of the modules for a message", run.modules_cpu_us, "µs", "all four")

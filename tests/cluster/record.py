"""The record of a run: what each fault did, and the figures of `bench/results/cluster.json`."""

from __future__ import annotations

import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from bench.report import Figure, publish

FAULTS_MIN = 100
UNAVAILABLE = frozenset({502, 503, 504})
NOTHING = "nothing, to compare with"


@dataclass(frozen=True)
class Verdict:
    """What became of a system's work."""

    accepted: int
    lost: int = 0
    doubled: int = 0
    notes: tuple[str, ...] = ()


@dataclass
class Answers:
    """What callers were answered, and when a request of theirs succeeded, in seconds of a monotonic clock."""

    total: int = 0
    unavailable: int = 0
    """Answers of 502, 503 and 504, and requests without an answer."""
    succeeded_at: list[float] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    """A line for each request that was not served."""

    def build_trace(self) -> aiohttp.TraceConfig:
        """Return the hooks by which a session counts what it is answered."""
        trace = aiohttp.TraceConfig()

        async def ended(_session: object, _context: object, end: aiohttp.TraceRequestEndParams) -> None:
            self.total += 1
            if end.response.status in UNAVAILABLE:
                self.unavailable += 1
                self.refusals.append(f"{end.method} {end.url.path}: {end.response.status}")
            else:
                self.succeeded_at.append(time.monotonic())

        async def broke(_session: object, _context: object, error: aiohttp.TraceRequestExceptionParams) -> None:
            self.total += 1
            self.unavailable += 1
            self.refusals.append(f"{error.method} {error.url.path}: {error.exception!r}")

        trace.on_request_end.append(ended)
        trace.on_request_exception.append(broke)
        return trace

    def find_longest_silence(self, since: float, until: float) -> float:
        """Return the longest time between two moments in which no request succeeded."""
        moments = [since, *(at for at in self.succeeded_at if since <= at <= until), until]
        return max(after - before for before, after in itertools.pairwise(moments))


@dataclass(frozen=True)
class FaultRecord:
    """One fault and what was seen of it."""

    kind: str
    target: str
    under_way: int
    """Pieces of work that were under way when it came."""
    lasted_seconds: float
    recovery_seconds: Mapping[str, float]
    """By system, from the fault until it had done a piece of work that was begun after it."""
    requests: int
    unavailable: int
    longest_silence_seconds: float

    @property
    def recovery(self) -> float:
        """Return how long the slowest system took."""
        return max(self.recovery_seconds.values())

    @property
    def counts(self) -> bool:
        """Return whether it is a fault, and hit work."""
        return self.under_way > 0 and self.kind != NOTHING

    def render(self) -> str:
        """Return a line for people."""
        slowest = max(self.recovery_seconds, key=lambda name: self.recovery_seconds[name])
        return (
            f"{self.kind}, {self.target}: {self.under_way} under way, all systems back after {self.recovery:.1f} s"
            f" ({slowest}), {self.unavailable} of {self.requests} requests without an answer of use,"
            f" longest silence {self.longest_silence_seconds:.1f} s"
        )


def summarize(records: Sequence[FaultRecord], verdicts: Mapping[str, Verdict]) -> list[Figure]:
    """Return the figures of a run."""
    counted = [record for record in records if record.counts]
    accepted = sum(verdict.accepted for verdict in verdicts.values())
    lost = sum(verdict.lost for verdict in verdicts.values())
    doubled = sum(verdict.doubled for verdict in verdicts.values())
    requests = sum(record.requests for record in counted)
    unavailable = sum(record.unavailable for record in counted)
    is_enough = len(counted) >= FAULTS_MIN
    each = ", ".join(f"{name} {verdict.accepted:,}" for name, verdict in verdicts.items())
    figures = [
        Figure("faults that hit work", len(counted), "", f"of {len(records)}", f"≥ {FAULTS_MIN}", is_enough),
        Figure("accepted pieces of work", accepted, "", each),
        Figure("lost", lost, "", "compared with what each system's checker knows", "0", lost == 0),
        Figure("doubled", doubled, "", "beyond what docs/RELIABILITY.md says", "0", doubled == 0),
        Figure(
            "requests without an answer of use", 100 * unavailable / max(1, requests), "%",
            f"{unavailable:,} of {requests:,} while faults were there: 502, 503, 504, or none",
        ),
        Figure(
            "longest time without one that succeeded", max(record.longest_silence_seconds for record in counted), "s",
            "over all callers",
        ),
    ]  # fmt: skip
    return [*figures, *_summarize_kinds(records)]


def _summarize_kinds(records: Sequence[FaultRecord]) -> list[Figure]:
    by_kind: dict[str, list[float]] = defaultdict(list)
    for record in records:
        by_kind[record.kind].append(record.recovery)
    figures: list[Figure] = []
    for kind, seconds in sorted(by_kind.items()):
        how = f"{len(seconds)} faults; from the fault until every system had done work that began after it"
        figures.append(Figure(f"{kind}: recovery, median", statistics.median(seconds), "s", how))
        figures.append(Figure(f"{kind}: recovery, worst", max(seconds), "s", how))
    return figures


def publish_record(figures: list[Figure]) -> None:
    """Write the record of a whole run."""
    publish("cluster", figures)

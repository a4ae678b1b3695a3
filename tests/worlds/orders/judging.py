"""Judging: what is stored of a world's orders, held against what is true, and its holes against their causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.worlds import verdict
from tests.worlds.orders.expecting import CLOCK, expect
from tests.worlds.orders.rows import OrderTruth
from tests.worlds.orders.world import World
from tests.worlds.verdict import WORST_FIRST, Ending, Expectation, Outcome, Verdict


@dataclass(frozen=True)
class StoredOrder:
    """An order as it is stored."""

    order_id: str
    modified_at: datetime
    version: int
    raw: str

    @property
    def rank(self) -> tuple[datetime, int]:
        """Return how new it is."""
        return self.modified_at, self.version


@dataclass(frozen=True)
class SeenSlice:
    """A slice as the API returns it."""

    name: str
    start: datetime
    end: datetime
    state: str
    code: str = ""
    message: str = ""
    is_swept: bool = True


@dataclass(frozen=True)
class SeenReading:
    """A reading that an operator asked for, as its workflow ended."""

    slice: str
    is_done: bool
    code: str = ""


@dataclass
class Seen:
    """All that was seen of a world."""

    stored: Sequence[StoredOrder] = ()
    replaced: Sequence[StoredOrder] = ()
    """Copies that newer ones replaced, in the order in which they were written."""
    slices: Sequence[SeenSlice] = ()
    readings: Sequence[SeenReading] = ()
    marks: Sequence[Mapping[str, datetime | None]] = ()
    """How far the platform was at each look."""
    settled_to: datetime | None = None
    """Up to here all must be claimed, but for one interval."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """What the platform is said to have: a cause and its sentence."""
    missed: int = 0
    complaints: Sequence[str] = ()
    """What the API did otherwise than it says."""
    late: str = ""
    fired: frozenset[str] = frozenset()
    is_mended: bool = False


def judge_world(world: World, seen: Seen, truth: Sequence[OrderTruth]) -> Verdict:
    """Say how a world ended: as its worst part did.

    Args:
        world: The world as it was played.
        seen: What was seen of it.
        truth: All orders of the platform.
    """
    if seen.late:
        return Verdict(Ending.LATE, seen.late, seen.fired)
    expected, flaws = expect(world, is_mended=seen.is_mended), world.flaw_names
    parts = [Verdict(Ending.SILENT, complaint, seen.fired) for complaint in _list_complaints(seen)]
    difference = _compare(world, seen, truth)
    outcome = Outcome(is_over=True, difference=difference)
    parts.append(verdict.judge(Expectation(is_visible=expected.is_visible), outcome, flaws, seen.fired))
    for cause, message in _list_causes(world, seen):
        outcome = Outcome(is_over=True, cause=cause, message=message)
        parts.append(verdict.judge(expected, outcome, flaws, seen.fired))
    return min(parts, key=lambda part: WORST_FIRST.index(part.ending))


def _compare(world: World, seen: Seen, truth: Sequence[OrderTruth]) -> str:
    """Say what differs in the time that is said to be complete; nothing where all is as it is true."""
    stored = {order.order_id: order for order in seen.stored}
    covered = _list_covered(seen, shows_later=world.has("too_late", "late_while_read"))
    found = dict[str, list[str]]()
    for order in truth:
        if not any(start <= order.found_at < end for start, end in covered):
            continue
        ours = stored.get(order.order_id)
        if ours is None:
            found.setdefault("lost", []).append(f"{order.order_id} of {order.found_at.isoformat()}")
        elif ours.raw != order.text and world.is_so("field", "modified"):
            found.setdefault("stale", []).append(f"{ours.raw[:200]} for {order.text[:200]}")
    known = {order.order_id for order in truth}
    invented = [order_id for order_id in stored if order_id not in known]
    if invented:
        found["invented"] = invented
    if len(stored) != len(seen.stored):
        found["doubled"] = [order.order_id for order in seen.stored]
    if fallen := _list_fallen(seen):
        found["replaced by an older copy"] = fallen
    return "; ".join(f"{len(orders)} {word}, e.g. {orders[0]}" for word, orders in found.items())


def _list_covered(seen: Seen, *, shows_later: bool) -> list[tuple[datetime, datetime]]:
    """List the times whose orders must all be there: below the mark and not given up, and each slice that is done.

    Args:
        seen: What was seen of a world.
        shows_later: Whether orders show up after their slice was read: where the sweep has failed, its fault says so,
            and where it waits with all the rest, the platform's.
    """
    done = [each for each in seen.slices if shows_later and each.state == "done"]
    unswept = {each.name for each in done if each.code or (seen.troubles and not each.is_swept)}
    covered = [(each.start, each.end) for each in seen.slices if each.state == "done" and each.name not in unswept]
    last = seen.marks[-1] if seen.marks else {}
    starts_at, complete_to = last.get("starts_at"), last.get("complete_to")
    if starts_at is None or complete_to is None:
        return covered
    skipped = sorted((each.start, each.end) for each in seen.slices if each.state == "skipped" or each.name in unswept)
    begin = starts_at
    for start, end in [*skipped, (complete_to, complete_to)]:
        if begin < min(start, complete_to):
            covered.append((begin, min(start, complete_to)))
        begin = max(begin, end)
    return covered


def _list_fallen(seen: Seen) -> list[str]:
    last = dict[str, StoredOrder]()
    fallen = []
    for copy in [*seen.replaced, *seen.stored]:
        before = last.get(copy.order_id)
        if before is not None and copy.rank < before.rank:
            fallen.append(copy.order_id)
        last[copy.order_id] = copy
    return fallen


def _list_causes(world: World, seen: Seen) -> Iterator[tuple[str, str]]:
    """List why something is not complete, each with a sentence."""
    yield from seen.troubles.items()
    for each in seen.slices:
        if each.state == "failed" or (each.state == "done" and each.code):
            yield each.code, f"{each.name}: {each.message}"
        elif each.state == "open" and not seen.troubles:
            yield "open", f"{each.name} is open, and nobody reads it"
    last = seen.marks[-1] if seen.marks else {}
    claimed_to, interval = last.get("claimed_to"), timedelta(seconds=world.number("interval"))
    if seen.troubles or seen.settled_to is None:
        return
    if claimed_to is None or claimed_to + 2 * interval < seen.settled_to:
        yield "stands still", f"claimed to {claimed_to}, settled to {seen.settled_to}"


def _list_complaints(seen: Seen) -> Iterator[str]:
    """List what contradicts itself, whatever the platform does."""
    yield from seen.complaints
    for before, after in pairwise(seen.marks):
        for name in ("claimed_to", "complete_to"):
            one, other = before[name], after[name]
            if one is not None and (other is None or other < one):
                yield f"{name} fell from {one} to {other}"
    yield from _list_gaps(seen)
    states = {each.name: each.state for each in seen.slices}
    for reading in seen.readings:
        if not reading.is_done and not reading.code and states.get(reading.slice) not in {"done", "split", "skipped"}:
            yield f"a reading of {reading.slice} gave way, and nobody finished the slice"
    for each in seen.slices:
        if each.state == "failed" and not (each.code and each.message):
            yield f"{each.name} failed without a cause"


def _list_gaps(seen: Seen) -> Iterator[str]:
    """List slices that overlap, and what is said to be complete and is no slice that was finished."""
    leaves = sorted((each for each in seen.slices if each.state != "split"), key=lambda each: each.start)
    for before, after in pairwise(leaves):
        if after.start < before.end:
            yield f"slices overlap at {after.start}"
    last = seen.marks[-1] if seen.marks else {}
    reached, complete_to = last.get("starts_at"), last.get("complete_to")
    for each in leaves:
        if reached is None or complete_to is None or reached >= complete_to:
            return
        if each.start > reached or each.state not in {"done", "skipped"}:
            state = each.state if each.start <= reached else "nothing"
            yield f"complete to {complete_to}, and from {reached} on is {state}"
            return
        reached = each.end
    if reached is not None and complete_to is not None and reached < complete_to:
        yield f"complete to {complete_to}, and from {reached} on is nothing"


def cause_of_status(status: Mapping[str, Any], *, waits: bool, is_backfilled: bool = False) -> dict[str, str]:
    """Return what a platform is said to have: its clock, its credentials, or that it waits.

    Args:
        is_backfilled: Whether a backfill is under way, which waits as open slices do, and is none of them.
    """
    troubles = {}
    if status["clock_failed_since"]:
        troubles[CLOCK] = str(status["clock_fault"])
    if status["credentials_failed_since"]:
        troubles[str(status["credentials_fault"]["code"])] = str(status["credentials_fault"]["message"])
    if waits and (status["slices_open"] or is_backfilled):
        troubles["waits"] = f"{status['slices_open']} slices wait" if status["slices_open"] else "a backfill waits"
    return troubles

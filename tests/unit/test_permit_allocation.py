"""Sharing: processes that ask in any order never have too much together, and each gets its part."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.limits import FairPermitAllocation, PermitClaim

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
TURN = timedelta(seconds=1)

DEMANDS = st.lists(st.integers(min_value=0, max_value=15), min_size=1, max_size=8)
LIMITS = st.integers(min_value=1, max_value=12)


def claims(*demands: int, permits: int = 0) -> list[PermitClaim]:
    """Processes that want so much, and have waited or held since noon."""
    return [PermitClaim(f"p{index}", permits, demand, NOON) for index, demand in enumerate(demands)]


@pytest.mark.parametrize(
    ("demands", "parts"),
    [
        ((20,), (10,)),
        ((3,), (3,)),
        ((20, 20), (5, 5)),
        ((2, 20), (2, 8)),
        ((1, 4, 20), (1, 4, 5)),
        ((0, 20), (0, 10)),
        ((20, 20, 20), (4, 3, 3)),
    ],
)
def test_parts_are_equal_and_what_one_leaves_goes_to_the_others(
    demands: tuple[int, ...], parts: tuple[int, ...]
) -> None:
    """Ten permits for these demands."""
    assert tuple(FairPermitAllocation(10, TURN, NOON).divide_fairly(claims(*demands)).values()) == parts


@given(DEMANDS, LIMITS)
def test_no_process_could_get_more_without_another_getting_less(demands: list[int], limit: int) -> None:
    """All demands are met as far as the limit goes, and shares of unmet demands differ by at most one."""
    parts = FairPermitAllocation(limit, TURN, NOON).divide_fairly(claims(*demands))
    assert sum(parts.values()) == min(limit, sum(demands))
    for part, demand in zip(parts.values(), demands, strict=True):
        assert part <= demand
        assert part == demand or part >= max(parts.values()) - 1


def test_who_waits_comes_after_who_is_in_turn_and_before_who_had_it() -> None:
    """One permit: its holder keeps it for a turn, then it goes to who waits longest."""
    holder = PermitClaim("holder", 1, 1, NOON)
    waiting = [PermitClaim("late", 0, 1, NOON + TURN / 2), PermitClaim("early", 0, 1, NOON)]

    def owner(after: timedelta) -> str:
        parts = FairPermitAllocation(1, TURN, NOON + after).divide_fairly([holder, *waiting])
        return max(parts, key=lambda name: parts[name])

    assert [owner(TURN / 2), owner(TURN), owner(TURN * 10)] == ["holder", "early", "early"]


def test_what_another_waits_for_is_not_taken_by_who_asks_first() -> None:
    """Two processes wait for the one permit that is free: it is kept for the one that waits longer."""
    holder, late = PermitClaim("holder", 2, 2, NOON), PermitClaim("late", 0, 1, NOON + TURN / 2)
    early = PermitClaim("early", 0, 1, NOON)
    table = FairPermitAllocation(3, TURN, NOON + TURN)
    assert table.compute_share(late, [holder, early]).usable == 0
    assert table.compute_share(early, [holder, late]).usable == 1


def test_where_more_is_in_use_than_there_is_nothing_new_begins() -> None:
    """A process whose permits had expired while it used them: it lets them run out, and the others see them."""
    table = FairPermitAllocation(10, TURN, NOON)
    share = table.compute_share(PermitClaim("back", 4, 4, NOON), [PermitClaim("other", 10, 10, NOON)])
    assert (share.usable, share.permits) == (0, 4)


class Processes:
    """Processes that ask as gates do, and use all that they may; checked at every step."""

    def __init__(self, count: int, limit: int) -> None:
        self.limit = limit
        self.now = NOON
        self.rows: dict[str, PermitClaim] = {}
        self.usable = dict.fromkeys((f"p{index}" for index in range(count)), 0)
        self.in_use = dict.fromkeys(self.usable, 0)
        self.had: Counter[str] = Counter()

    def ask(self, name: str, demand: int) -> None:
        """One renewal: first what may come into use is declared, then it may come into use, then the answer is here."""
        declared = max(self.in_use[name], self.usable[name])
        row = self.rows.get(name, PermitClaim(name, 0, 0, self.now)).with_permits(declared, self.now)
        mine = PermitClaim(name, declared, demand, row.since)
        others = [claim for other, claim in self.rows.items() if other != name]
        share = FairPermitAllocation(self.limit, TURN, self.now).compute_share(mine, others)
        self.rows[name] = mine.with_permits(share.permits, self.now)
        self.usable[name] = share.usable
        self.in_use[name] = max(self.in_use[name], min(demand, share.usable))
        self.had[name] += share.usable > 0
        assert sum(self.in_use.values()) <= self.limit
        assert sum(claim.permits for claim in self.rows.values()) <= self.limit

    def finish(self, name: str) -> None:
        """All requests of a process end; it sends no more than it may."""
        self.in_use[name] = 0


@given(
    st.integers(min_value=1, max_value=6),
    LIMITS,
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans(), st.integers(0, 1_500)), max_size=80),
)
def test_together_they_never_have_too_much(count: int, limit: int, steps: list[tuple[int, int, bool, int]]) -> None:
    """Whatever they want, in whatever order and at whatever time they ask."""
    processes = Processes(count, limit)
    for index, demand, finishes, milliseconds in steps:
        name = f"p{index % count}"
        processes.now += timedelta(milliseconds=milliseconds)
        if finishes:
            processes.finish(name)
        processes.ask(name, max(demand, processes.in_use[name]))


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 6, 7, 10])
def test_no_process_starves(count: int, limit: int) -> None:
    """All want everything all the time; each has something again and again, also with fewer permits than processes."""
    processes = Processes(count, limit)
    for _ in range(30 * count):
        processes.now += TURN / 2
        for name in list(processes.usable):
            processes.finish(name)
            processes.ask(name, limit)
    assert min(processes.had[name] for name in processes.usable) >= 10 * min(count, limit)

"""Whether a store holds what a platform's ledger says: what was lost, doubled, invented, is stale or regressed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sims.platforms.clock import MICRO

UNVERSIONED: Final = 0
"""The version of a copy whose platform counts none: only its time says how new it is."""


@dataclass(frozen=True, slots=True, order=True)
class State:
    """How new a copy of an order is."""

    modified_us: int
    version: int = UNVERSIONED


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of an order, as it was stored."""

    order_id: str
    state: State


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong, by the ids of orders. All empty is right."""

    lost: Sequence[str]
    """True, in the time that was to be covered, and not there."""
    stale: Sequence[str]
    """There, but not as it was last."""
    duplicated: Sequence[str]
    """There more than once."""
    invented: Sequence[str]
    """There, and never true."""
    regressed: Sequence[str]
    """At some moment replaced by an older copy."""

    @property
    def missing(self) -> int:
        """Orders whose last state is not there: who never had it lost it, too."""
        return len(self.lost) + len(self.stale)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.lost or self.stale or self.duplicated or self.invented or self.regressed)


def truth(ledger: Mapping[str, Any], *, from_us: int = 0, until_us: int = 1 << 62) -> dict[str, State]:
    """The last states of the orders of a ledger that were modified in a time, its end excluded."""
    columns = zip(ledger["ids"], ledger["modified_us"], ledger["versions"], strict=True)
    return {
        order_id: State(modified_us, version)
        for order_id, modified_us, version in columns
        if from_us <= modified_us < until_us
    }


def check(
    expected: Mapping[str, State],
    stored: Iterable[Copy],
    *,
    known: Mapping[str, State] | None = None,
    written: Iterable[Copy] = (),
) -> Findings:
    """Hold a store against the truth.

    Args:
        expected: What must be there.
        stored: What is there in the end.
        known: All that is true, where more may be there than must be; by default what is expected.
        written: Every copy in the order in which the store took it up, where that is known.
    """
    known = expected if known is None else known
    copies = list(stored)
    counts = Counter(copy.order_id for copy in copies)
    best: dict[str, State] = {}
    for copy in copies:
        best[copy.order_id] = max(copy.state, best.get(copy.order_id, copy.state))
    return Findings(
        lost=[order_id for order_id in expected if order_id not in best],
        stale=[order_id for order_id, state in expected.items() if order_id in best and _older(best[order_id], state)],
        duplicated=[order_id for order_id, count in counts.items() if count > 1],
        invented=[order_id for order_id in counts if order_id not in known],
        regressed=_find_regressions(written),
    )


def copy_of(order_id: str, modified_seconds: float, version: int = UNVERSIONED) -> Copy:
    """Return a copy with its time in seconds."""
    return Copy(order_id, State(round(modified_seconds * MICRO), version))


def _older(state: State, than: State) -> bool:
    if UNVERSIONED in (state.version, than.version):
        return state.modified_us < than.modified_us
    return state < than


def _find_regressions(written: Iterable[Copy]) -> list[str]:
    last: dict[str, State] = {}
    found: dict[str, None] = {}
    for copy in written:
        before = last.get(copy.order_id, copy.state)
        if _older(copy.state, before):
            found[copy.order_id] = None
        last[copy.order_id] = copy.state
    return list(found)

"""Coalescing: of all createUpdates and deletes of a UPRN in a cycle the last one is applied, the others are done with.

Jointly, for a delete makes earlier createUpdates needless, and the other way round: a createUpdate says all there is to
say of an address. Swaps are never coalesced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Write(NamedTuple):
    """A createUpdate or a delete."""

    id: int
    uprn: int
    touched: bool = False
    """Whether a module has applied it, or may have."""


@dataclass(frozen=True, slots=True)
class Coalesced:
    """What is left to do."""

    winners: frozenset[int]
    superseded: dict[int, int]
    """Each of the others, and who made it needless."""
    heirs: frozenset[int]
    """Winners over one that some module may have applied: until they are done, modules may differ there."""


def coalesce(writes: Sequence[Write]) -> Coalesced:
    """The last one of each UPRN wins."""
    winner_of = {each.uprn: each.id for each in sorted(writes)}
    losers = [each for each in writes if each.id != winner_of[each.uprn]]
    return Coalesced(
        winners=frozenset(winner_of.values()),
        superseded={each.id: winner_of[each.uprn] for each in losers},
        heirs=frozenset(winner_of[each.uprn] for each in losers if each.touched),
    )

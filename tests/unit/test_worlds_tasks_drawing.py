"""Worlds of tasks as they are drawn: by seed, with all options in pairs, and smaller ones."""

from __future__ import annotations

from itertools import combinations

from tests.worlds.pairwise import pairs_of
from tests.worlds.tasks.flaws import KINDS
from tests.worlds.tasks.options import OPTIONS, pairwise_rows
from tests.worlds.tasks.world import (
    ODD_TEXTS,
    TaskFate,
    draw_world,
    list_smaller,
)


def test_rows_of_options_hold_every_pair() -> None:
    """In far fewer rows than there are combinations."""
    rows = pairwise_rows()
    found = set().union(*map(pairs_of, rows))
    for (one, values), (other, others) in combinations(OPTIONS.items(), 2):
        assert {frozenset({(one, value), (other, beside)}) for value in values for beside in others} <= found
    assert len(rows) <= 30


def test_worlds_are_the_same_for_a_seed_and_draw_everything() -> None:
    """Every flaw comes, and every fate that a flaw brings strikes the first task."""
    worlds = [draw_world(seed) for seed in range(1_000)]
    assert worlds[:50] == [draw_world(seed) for seed in range(50)]
    assert {flaw.name for world in worlds for flaw in world.flaws} == set(KINDS)
    assert {world.fate(0, 0) for world in worlds} == set(TaskFate)
    assert all(draw_world(seed, ("daisy_chain",)).has("daisy_chain") for seed in range(20))
    assert {world.text(0) for world in worlds if world.has("odd_texts")} <= set(ODD_TEXTS)


def test_smaller_worlds_are_smaller() -> None:
    """So that shrinking comes to an end."""
    for seed in range(50):
        world = draw_world(seed)
        for smaller in list_smaller(world):
            assert smaller != world
            assert smaller.wishes
            assert smaller.workers >= 1

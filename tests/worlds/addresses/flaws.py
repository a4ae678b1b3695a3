"""What goes wrong in worlds of addresses: with operations, with modules, with swaps, and on the way to the log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import PASSES, Kind


class Group(StrEnum):
    """Where it goes wrong; a world has at most one flaw of each."""

    OPERATIONS = "operations"
    WEATHER = "weather"
    SWAPS = "swaps"
    DELIVERY = "delivery"


KINDS: Mapping[str, Kind] = {
    # operations of some UPRNs in one module
    "fails_once": Kind(1, Group.OPERATIONS, passes=PASSES),
    "fails_for_a_while": Kind(1, Group.OPERATIONS, passes=PASSES),
    "fails_until_mended": Kind(1, Group.OPERATIONS),
    "chokes_until_mended": Kind(2, Group.OPERATIONS),
    # a module, for all worlds that are played at that time
    "module_fails": Kind(3, Group.WEATHER, passes=PASSES),
    "module_says_503": Kind(3, Group.WEATHER, passes=PASSES),
    "module_resets": Kind(3, Group.WEATHER, passes=PASSES),
    "answers_are_lost": Kind(4, Group.WEATHER, passes=PASSES),
    "answers_are_late": Kind(4, Group.WEATHER, passes=PASSES),
    "calls_arrive_late": Kind(4, Group.WEATHER, passes=PASSES),
    # swaps that stand in each other's way
    "swap_chain": Kind(5, Group.SWAPS),
    "hopeless_swap": Kind(6, Group.SWAPS),
    "side_comes_later": Kind(7, Group.SWAPS),
    # what publishers and Pub/Sub do
    "delivered_twice": Kind(8, Group.DELIVERY),
    "event_repeated": Kind(8, Group.DELIVERY),
    "numbers_reversed": Kind(9, Group.DELIVERY),
    "delete_first": Kind(10, Group.DELIVERY),
    "unreadable": Kind(11, Group.DELIVERY),
}
LASTING = frozenset({"fails_for_a_while", "fails_until_mended", "chokes_until_mended"})
"""Flaws of operations for which a message may be given up."""

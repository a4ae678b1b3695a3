"""What goes wrong in worlds of addresses; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import PASSES, Kind, See


class Group(StrEnum):
    """Where it goes wrong; a world has at most one flaw of each."""

    OPERATIONS = "operations"
    MODULE_FAULTS = "module faults"
    SWAPS = "swaps"
    PUBLISHER = "publisher"
    DELIVERY = "delivery"
    POISON = "poison"


KINDS: Mapping[str, Kind] = {
    # operations of some UPRNs in one module
    "fails_once": Kind(7, Group.OPERATIONS, passes=PASSES),
    "fails_for_a_while": Kind(7, Group.OPERATIONS, passes=PASSES),
    "fails_until_mended": Kind(7, Group.OPERATIONS),
    "swap_breaks_midway": Kind(13, Group.OPERATIONS, passes=PASSES),
    "chokes_until_mended": Kind(10, Group.OPERATIONS),
    "module_forgets": Kind(19, Group.OPERATIONS, See.ASKED),
    # a module, for all worlds that are played at that time
    "module_fails": Kind(6, Group.MODULE_FAULTS, passes=PASSES),
    "module_says_503": Kind(6, Group.MODULE_FAULTS, passes=PASSES),
    "module_resets": Kind(6, Group.MODULE_FAULTS, passes=PASSES),
    "answers_are_lost": Kind(7, Group.MODULE_FAULTS, passes=PASSES),
    "answers_are_late": Kind(7, Group.MODULE_FAULTS, passes=PASSES),
    "calls_arrive_late": Kind(7, Group.MODULE_FAULTS, passes=PASSES),
    # swaps that block each other
    "swap_chain": Kind(5, Group.SWAPS),
    "hopeless_swap": Kind(5, Group.SWAPS),
    "swap_between_writes": Kind(13, Group.SWAPS),
    "side_comes_later": Kind(12, Group.SWAPS),
    "side_missing_in_one": Kind(12, Group.SWAPS),
    # what publishers do
    "event_repeated": Kind(2, Group.PUBLISHER),
    "event_repeated_unmarked": Kind(2, Group.PUBLISHER, See.NOBODY),
    "numbers_reversed": Kind(3, Group.PUBLISHER),
    "delete_first": Kind(3, Group.PUBLISHER),
    "snapshot_after_changes": Kind(14, Group.PUBLISHER),
    "never_delivered": Kind(15, Group.PUBLISHER, See.NOBODY),
    # how Pub/Sub delivers
    "delivered_twice": Kind(1, Group.DELIVERY),
    "answer_unread": Kind(4, Group.DELIVERY),
    "acks_lost": Kind(4, Group.DELIVERY),
    "again_from_history": Kind(11, Group.DELIVERY),
    "replayed": Kind(17, Group.DELIVERY),
    "foreign_authorization": Kind(18, Group.DELIVERY),
    # messages that no module could apply
    "bad_json": Kind(9, Group.POISON),
    "no_uprn": Kind(9, Group.POISON),
    "swap_with_itself": Kind(9, Group.POISON),
    "huge": Kind(9, Group.POISON),
    "wrong_base64": Kind(9, Group.POISON),
    "unknown_topic": Kind(9, Group.POISON),
    "dead_lettered": Kind(16, Group.POISON),
}
LASTING = frozenset({"fails_for_a_while", "fails_until_mended", "chokes_until_mended"})
"""Flaws of operations for which a message may be given up."""
OPERATION_FAULTS = frozenset({"swap_breaks_midway", "fails_once"} | LASTING)
"""Flaws of operations that modules play by their UPRNs."""

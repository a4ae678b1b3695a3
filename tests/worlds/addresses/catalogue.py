"""The catalogue of addresses: how Pub/Sub, publishers and modules misbehave, and which flaws of worlds play it."""

from __future__ import annotations

from tests.worlds.catalogue import Catalogue, Row
from tests.worlds.flaws import See

CATALOGUE: Catalogue = {
    1: Row("delivered again at random, after the ack, while in work", flaws=("delivered_twice",)),
    2: Row(
        "a publisher repeats with a new message id",
        See.ASKED,
        flaws=("event_repeated", "event_repeated_unmarked"),
    ),
    3: Row("no order across messages, bursts reversed", flaws=("numbers_reversed", "delete_first")),
    4: Row("an ack is lost or too late, all un-acked come again at once", flaws=("answer_unread", "acks_lost")),
    5: Row("one hopeless head, a chain behind it", flaws=("swap_chain", "hopeless_swap")),
    6: Row("a module is away, its breaker open", flaws=("module_fails", "module_says_503", "module_resets")),
    7: Row(
        "applied, the answer lost or late; an operation fails",
        flaws=(
            *("answers_are_lost", "answers_are_late", "calls_arrive_late"),
            *("fails_once", "fails_for_a_while", "fails_until_mended"),
        ),
    ),
    8: Row(
        "a pull hangs in silence for hours",
        reason="Worlds are pushed, so that the order of receipt is known; that a pull which hangs ends in time is "
        "shown with the client that pulls.",
        shown_by=("tests/unit/test_pubsub_client.py::test_a_pull_without_messages_is_no_failure",),
    ),
    9: Row(
        "poison: bad JSON, no UPRN, a swap with itself, unknown topic, huge, wrong base64",
        flaws=("bad_json", "no_uprn", "swap_with_itself", "huge", "wrong_base64", "unknown_topic"),
    ),
    10: Row("one bad in a batch, all of it comes again", flaws=("chokes_until_mended",)),
    11: Row("a duplicate after the memory of ids ended, or the row moved to history", flaws=("again_from_history",)),
    12: Row(
        "an address is missing, in one module only, and appears", flaws=("side_comes_later", "side_missing_in_one")
    ),
    13: Row(
        "a constraint breaks in the middle of a swap; coalescing drops the state in between",
        flaws=("swap_breaks_midway", "swap_between_writes"),
    ),
    14: Row("an old image after a new one", flaws=("snapshot_after_changes",)),
    15: Row("a message never comes", See.NOBODY, flaws=("never_delivered",)),
    16: Row("dead-lettered several times", flaws=("dead_lettered",)),
    17: Row("seek or replay of an hour or a day", flaws=("replayed",)),
    18: Row("a push with an `Authorization` beside its token", flaws=("foreign_authorization",)),
    19: Row("a module goes back in time", See.ASKED, flaws=("module_forgets",)),
}

"""The catalogue of platforms: how they are known to behave towards those who read their orders."""

from __future__ import annotations

from tests.worlds.catalogue import Catalogue, Row
from tests.worlds.flaws import See

CATALOGUE: Catalogue = {
    1: Row("an order is modified while its window is paged", See.ASKED, ("leaves", "cursor_is_offset")),
    2: Row("rows show up late", See.ASKED, ("late", "too_late", "late_while_read")),
    3: Row("many orders share a second, in no stable order", See.ASKED, ("crowd", "unstable_ties")),
    4: Row("throttled", flaws=("too_often", "quota", "limit_as_403", "limit_as_503")),
    5: Row("the token dies, or is used up by its renewal", flaws=("token_expires", "token_rotates")),
    6: Row(
        "a default filter hides orders",
        See.NOBODY,
        reason="What a filter hides is in no list: built-in records ask for every state; no world has other orders.",
        shown_by=("tests/unit/test_orders_capability.py::test_no_state_of_an_order_is_left_to_a_default",),
    ),
    7: Row("the filter goes by another zone", See.ASKED, ("filter_zone",)),
    8: Row(
        "times are finer than can be asked, and ends are inclusive or not",
        reason="Worlds draw it as the options `kept`, `moments` and `ends` of every record, not as a flaw.",
        shown_by=("tests/unit/test_worlds_orders.py::test_rows_of_options_hold_every_pair",),
    ),
    9: Row(
        "an end too near now is refused or poor",
        reason="A record declares it as `newest_seconds`, and no configuration may have a shorter `settle_lag`.",
        shown_by=("tests/unit/test_order_config.py::test_what_this_platform_does_not_allow_is_refused",),
    ),
    10: Row(
        "a page token repeats, expires, must be escaped, or tells the same orders",
        flaws=("token_repeats", "token_ends", "plus_in_token", "told_twice", "cached"),
    ),
    11: Row(
        "empty pages with a next, a next without an end, an empty next",
        flaws=("next_for_ever", "empty_page", "next_is_empty", "says_it_ends"),
    ),
    12: Row(
        "the total is wrong",
        See.ASKED,
        ("short_pages", "total_too_large", "total_too_small", "total_of_page", "total_capped", "total_lags"),
    ),
    13: Row("past the end comes the last page", flaws=("clamped",)),
    14: Row("rows stop at a cap", flaws=("page_cap", "rows_stop")),
    15: Row(
        "the call for one order fails, or its list comes in parts",
        flaws=("detail_gone", "detail_other", "lines_repeat"),
    ),
    16: Row("an older copy comes after a newer one", flaws=("detail_older", "list_older")),
    17: Row(
        "a change without a new time of modification",
        See.NOBODY,
        reason="No query by modification tells it again: reading days anew does, which RELIABILITY says.",
    ),
    18: Row(
        "an order that no list tells",
        See.NOBODY,
        reason="A client that knows only lists cannot see it: RELIABILITY says so, and a report compares ids.",
        shown_by=("tests/integration/test_order_reports.py::test_a_day_is_compared_with_the_platform",),
    ),
    19: Row(
        "deleted or archived at the platform",
        See.NOBODY,
        reason="Nothing tells of what is gone; what is here stays, and a report counts it as only here.",
        shown_by=("tests/integration/test_order_reports.py::test_what_is_not_listed_is_told_where_it_can_be_known",),
    ),
    20: Row(
        "the clock is off, gone, cached or steps back",
        flaws=("clock_ahead", "clock_back", "clock_down", "clock_strange", "date_missing", "date_cached"),
    ),
    21: Row("moments from the future or none", flaws=("undated", "future")),
    22: Row(
        "errors in a success, errors of a gateway, cut bodies",
        flaws=(
            *("server_error", "error_in_200", "login_page", "login_redirect", "cut_body", "cut_chunks", "cut_json"),
            *("nothing", "slow", "no_id"),
        ),
    ),
    23: Row("the filter or the page is ignored", flaws=("filter_ignored", "page_ignored")),
    24: Row(
        "a window longer than allowed is refused or shortened; the history ends",
        reason="A record declares both and each request keeps to them (option `window_max`); a bound that no record "
        "names comes as an empty time, which no answer tells from one without orders.",
        shown_by=("tests/unit/test_order_config.py::test_what_this_platform_does_not_allow_is_refused",),
    ),
    25: Row(
        "a success with a part dropped, and the mark moved",
        reason="That is no fault of a platform but one of ours: every world is judged for it.",
        shown_by=("tests/unit/test_worlds_orders.py::test_what_differs_in_silence_is_seen",),
    ),
    26: Row("partial answers on purpose, and versions that end", flaws=("version_ended",)),
}
"""A moment that goes back (21) is no flaw here: of two copies the one with the later time is kept, as documented."""

"""Flaws: what platforms do to those who read their orders; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import MAY_PASS, PASSES, Kind, See


class Group(StrEnum):
    """Of flaws of one group a world has at most one: they would change the same part of an answer."""

    MOVES = "moves"
    PAGING = "paging"
    TOTAL = "total"
    ROWS = "rows"
    ANSWER = "answer"
    ACCOUNT = "account"
    CLOCK = "clock"
    DETAIL = "detail"


KINDS: Mapping[str, Kind] = {
    # what happens to orders while they are read
    "leaves": Kind(1, Group.MOVES, See.ASKED, passes=PASSES),
    "late": Kind(2, Group.MOVES, See.ASKED, passes=PASSES),
    "too_late": Kind(2, Group.MOVES, See.ASKED, passes=PASSES),
    "late_while_read": Kind(2, Group.MOVES, See.ASKED, passes=PASSES),
    "crowd": Kind(3, Group.MOVES, See.ASKED),
    # how a window is cut into pages
    "page_cap": Kind(14, Group.PAGING),
    "short_pages": Kind(12, Group.PAGING, See.ASKED),
    "clamped": Kind(13, Group.PAGING),
    "page_ignored": Kind(23, Group.PAGING),
    "token_repeats": Kind(10, Group.PAGING, passes=MAY_PASS),
    "token_ends": Kind(10, Group.PAGING, passes=MAY_PASS),
    "plus_in_token": Kind(10, Group.PAGING, passes=PASSES),
    "next_for_ever": Kind(11, Group.PAGING),
    "empty_page": Kind(11, Group.PAGING),
    "next_is_empty": Kind(11, Group.PAGING, passes=PASSES),
    "cursor_is_offset": Kind(1, Group.PAGING, See.ASKED),
    "unstable_ties": Kind(3, Group.PAGING, See.ASKED),
    "rows_stop": Kind(14, Group.PAGING),
    "says_it_ends": Kind(11, Group.PAGING),
    # what is said of the whole
    "total_too_large": Kind(12, Group.TOTAL, See.ASKED),
    "total_too_small": Kind(12, Group.TOTAL, See.ASKED),
    "total_of_page": Kind(12, Group.TOTAL, See.ASKED),
    "total_capped": Kind(12, Group.TOTAL, See.ASKED),
    "total_lags": Kind(12, Group.TOTAL, See.ASKED, passes=PASSES),
    # what the rows hold
    "told_twice": Kind(10, Group.ROWS),
    "undated": Kind(21, Group.ROWS),
    "future": Kind(21, Group.ROWS),
    "filter_ignored": Kind(23, Group.ROWS),
    "filter_zone": Kind(7, Group.ROWS, See.ASKED),
    "list_older": Kind(16, Group.ROWS, passes=PASSES),
    "no_id": Kind(22, Group.ROWS, passes=MAY_PASS),
    # how a question is answered
    "server_error": Kind(22, Group.ANSWER, passes=MAY_PASS),
    "error_in_200": Kind(22, Group.ANSWER, passes=MAY_PASS),
    "too_often": Kind(4, Group.ANSWER, passes=PASSES),
    "quota": Kind(4, Group.ANSWER),
    "limit_as_403": Kind(4, Group.ANSWER),
    "limit_as_503": Kind(4, Group.ANSWER, passes=PASSES),
    "login_page": Kind(22, Group.ANSWER),
    "login_redirect": Kind(22, Group.ANSWER),
    "cut_body": Kind(22, Group.ANSWER, passes=MAY_PASS),
    "cut_chunks": Kind(22, Group.ANSWER, passes=PASSES),
    "cut_json": Kind(22, Group.ANSWER, passes=MAY_PASS),
    "nothing": Kind(22, Group.ANSWER, passes=MAY_PASS),
    "cached": Kind(10, Group.ANSWER, passes=PASSES),
    "version_ended": Kind(26, Group.ANSWER),
    "slow": Kind(22, Group.ANSWER, passes=PASSES),
    # the account
    "token_expires": Kind(5, Group.ACCOUNT, passes=MAY_PASS),
    "token_rotates": Kind(5, Group.ACCOUNT),
    # the platform's time
    "clock_ahead": Kind(20, Group.CLOCK, passes=PASSES),
    "clock_back": Kind(20, Group.CLOCK, passes=PASSES),
    "clock_down": Kind(20, Group.CLOCK, passes=MAY_PASS),
    "clock_strange": Kind(20, Group.CLOCK),
    "date_missing": Kind(20, Group.CLOCK),
    "date_cached": Kind(20, Group.CLOCK, passes=PASSES),
    # orders that are asked for one by one
    "detail_gone": Kind(15, Group.DETAIL, passes=MAY_PASS),
    "detail_other": Kind(15, Group.DETAIL, passes=MAY_PASS),
    "detail_older": Kind(16, Group.DETAIL, passes=MAY_PASS),
    "lines_repeat": Kind(15, Group.DETAIL, passes=MAY_PASS),
}

NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "crowd": {"rows_max": ("declared",), "rows_of_a_slice": ("10000",)},
    "short_pages": {"rows_max": ("none",)},
    "clamped": {"paging": ("number",)},
    "page_ignored": {"paging": ("number",)},
    "token_repeats": {"paging": ("cursor", "token", "link")},
    "token_ends": {"paging": ("cursor", "token", "link")},
    "plus_in_token": {"paging": ("cursor", "token")},
    "next_is_empty": {"paging": ("cursor", "token")},
    "unstable_ties": {
        "paging": ("number",),
        "sort": ("newest_first", "oldest_first"),
        "rows_max": ("none",),
        "rows_of_a_slice": ("10000",),
    },
    "next_for_ever": {"paging": ("cursor", "token", "link"), "more": ("no",)},
    "empty_page": {"paging": ("cursor", "token", "link")},
    "cursor_is_offset": {"paging": ("cursor", "token", "link")},
    "rows_stop": {"rows_max": ("none",)},
    "says_it_ends": {"more": ("yes",)},
    "total_too_large": {"total": ("in_pages", "own_call", "in_header")},
    "total_too_small": {"total": ("in_pages", "own_call", "in_header")},
    "total_of_page": {"total": ("in_pages", "in_header")},
    "total_capped": {"total": ("in_pages", "own_call", "in_header"), "rows_max": ("none",)},
    "total_lags": {"total": ("in_pages", "own_call", "in_header")},
    "filter_zone": {"field": ("modified",), "rows_max": ("none",), "rows_of_a_slice": ("10000",)},
    "list_older": {"field": ("modified",)},
    # Every second of the window would hold all rows: it would split down to seconds.
    "filter_ignored": {"rows_max": ("none",), "rows_of_a_slice": ("10000",)},
    "token_expires": {"signing": ("token", "renewed")},
    "token_rotates": {"signing": ("renewed",)},
    "clock_strange": {"clock": ("call",)},
    "detail_gone": {"detail": ("call",)},
    "detail_other": {"detail": ("call",)},
    "detail_older": {"detail": ("call",)},
    "lines_repeat": {"detail": ("pages",)},
}
"""Values of options without which a flaw would not show."""

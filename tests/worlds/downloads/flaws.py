"""Flaws: what sources of rows do to those who ask them; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import MAY_PASS, PASSES, Kind, See


class Group(StrEnum):
    """Of the flaws of one group a world has at most one: they would contradict each other in the same part of an
    answer."""

    PAGING = "paging"
    TOTAL = "total"
    CONTENT = "content"
    ANSWER = "answer"


KINDS: Mapping[str, Kind] = {
    # how the rows are cut into pages
    "filtered": Kind(1, Group.PAGING),
    "cap": Kind(2, Group.PAGING),
    "cap_with_stride": Kind(10, Group.PAGING, See.ASKED),
    "counts_from_1": Kind(4, Group.PAGING),
    "clamped": Kind(5, Group.PAGING),
    "page_ignored": Kind(11, Group.PAGING),
    "all_at_once": Kind(11, Group.PAGING),
    "error_past_the_end": Kind(21, Group.PAGING),
    "one_row_more": Kind(31, Group.PAGING),
    "deep_error": Kind(20, Group.PAGING, See.ASKED),
    "deep_nothing": Kind(20, Group.PAGING, See.ASKED),
    "ties": Kind(22, Group.PAGING, See.ASKED),
    "rows_enter": Kind(23, Group.PAGING, See.NOBODY),
    "rows_leave": Kind(23, Group.PAGING, See.NOBODY),
    # what is said of the whole
    "total_of_page": Kind(8, Group.TOTAL, See.ASKED),
    "total_is_page_size": Kind(8, Group.TOTAL, See.ASKED),
    "total_in_pages": Kind(8, Group.TOTAL, See.ASKED),
    "total_capped": Kind(8, Group.TOTAL, See.ASKED),
    "total_moves": Kind(19, Group.TOTAL, passes=MAY_PASS),
    "goes_on_for_ever": Kind(32, Group.TOTAL),
    "says_it_ends": Kind(32, Group.TOTAL),
    # what the rows hold
    "long_numbers": Kind(9, Group.CONTENT),
    "strange_letters": Kind(27, Group.CONTENT),
    "lone_surrogates": Kind(27, Group.CONTENT),
    "long_texts": Kind(27, Group.CONTENT),
    "late_column": Kind(28, Group.CONTENT),
    "missing_keys": Kind(28, Group.CONTENT),
    "retyped": Kind(28, Group.CONTENT),
    "not_a_number": Kind(34, Group.CONTENT),
    "infinity": Kind(34, Group.CONTENT),
    "keys_twice": Kind(34, Group.CONTENT),
    "byte_order_mark": Kind(26, Group.CONTENT),
    "header_lies": Kind(26, Group.CONTENT),
    "other_encoding": Kind(26, Group.CONTENT, passes=MAY_PASS),
    # how a page is answered
    "server_error": Kind(3, Group.ANSWER, passes=MAY_PASS),
    "too_often": Kind(6, Group.ANSWER, passes=PASSES),
    "too_often_for_long": Kind(6, Group.ANSWER, passes=PASSES),
    "error_in_body": Kind(7, Group.ANSWER),
    "cached": Kind(12, Group.ANSWER, passes=MAY_PASS),
    "limit_as_403": Kind(13, Group.ANSWER),
    "limit_as_503": Kind(13, Group.ANSWER, passes=PASSES),
    "login_page": Kind(14, Group.ANSWER),
    "login_redirect": Kind(14, Group.ANSWER),
    "credential_dies": Kind(15, Group.ANSWER),
    "cut_body": Kind(16, Group.ANSWER, passes=MAY_PASS),
    "cut_chunks": Kind(17, Group.ANSWER, passes=MAY_PASS),
    "nothing": Kind(18, Group.ANSWER, passes=MAY_PASS),
    "trickle": Kind(24, Group.ANSWER),
    "stall": Kind(24, Group.ANSWER),
    "slow": Kind(25, Group.ANSWER, passes=PASSES),
    "hangs_once": Kind(25, Group.ANSWER, passes=PASSES),
    "large_pages_time_out": Kind(25, Group.ANSWER),
    "cut_json": Kind(30, Group.ANSWER, passes=MAY_PASS),
    "gzip_not": Kind(33, Group.ANSWER),
    "gzip_unsaid": Kind(33, Group.ANSWER),
    "gzip_in_members": Kind(33, Group.ANSWER, passes=PASSES),
    "gzip_cut": Kind(33, Group.ANSWER, passes=MAY_PASS),
    "gzip_twice": Kind(33, Group.ANSWER),
    "redirected": Kind(35, Group.ANSWER),
    "redirected_relatively": Kind(35, Group.ANSWER),
    "redirected_in_circles": Kind(35, Group.ANSWER),
    "retry_differs": Kind(36, Group.ANSWER, passes=PASSES),
}

"""Flaws: what sources of rows do to those who ask them; the numbers are those of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from tests.worlds.flaws import MAY_PASS, PASSES, Kind, See


class DownloadFlaws(StrEnum):
    """Of the flaws of one group a world has at most one: they would contradict each other in the same part of an
    answer."""

    PAGING = "paging"
    TOTAL = "total"
    CONTENT = "content"
    ANSWER = "answer"


KINDS: Mapping[str, Kind] = {
    # how the rows are cut into pages
    "filtered": Kind(1, DownloadFlaws.PAGING),
    "cap": Kind(2, DownloadFlaws.PAGING),
    "cap_with_stride": Kind(10, DownloadFlaws.PAGING, See.ASKED),
    "counts_from_1": Kind(4, DownloadFlaws.PAGING),
    "clamped": Kind(5, DownloadFlaws.PAGING),
    "page_ignored": Kind(11, DownloadFlaws.PAGING),
    "all_at_once": Kind(11, DownloadFlaws.PAGING),
    "error_past_the_end": Kind(21, DownloadFlaws.PAGING),
    "one_row_more": Kind(31, DownloadFlaws.PAGING),
    "deep_error": Kind(20, DownloadFlaws.PAGING, See.ASKED),
    "deep_nothing": Kind(20, DownloadFlaws.PAGING, See.ASKED),
    "ties": Kind(22, DownloadFlaws.PAGING, See.ASKED),
    "rows_enter": Kind(23, DownloadFlaws.PAGING, See.NOBODY),
    "rows_leave": Kind(23, DownloadFlaws.PAGING, See.NOBODY),
    # what is said of the whole
    "total_of_page": Kind(8, DownloadFlaws.TOTAL, See.ASKED),
    "total_is_page_size": Kind(8, DownloadFlaws.TOTAL, See.ASKED),
    "total_in_pages": Kind(8, DownloadFlaws.TOTAL, See.ASKED),
    "total_capped": Kind(8, DownloadFlaws.TOTAL, See.ASKED),
    "total_moves": Kind(19, DownloadFlaws.TOTAL, passes=MAY_PASS),
    "goes_on_for_ever": Kind(32, DownloadFlaws.TOTAL),
    "says_it_ends": Kind(32, DownloadFlaws.TOTAL),
    # what the rows hold
    "long_numbers": Kind(9, DownloadFlaws.CONTENT),
    "strange_letters": Kind(27, DownloadFlaws.CONTENT),
    "lone_surrogates": Kind(27, DownloadFlaws.CONTENT),
    "long_texts": Kind(27, DownloadFlaws.CONTENT),
    "late_column": Kind(28, DownloadFlaws.CONTENT),
    "missing_keys": Kind(28, DownloadFlaws.CONTENT),
    "retyped": Kind(28, DownloadFlaws.CONTENT),
    "not_a_number": Kind(34, DownloadFlaws.CONTENT),
    "infinity": Kind(34, DownloadFlaws.CONTENT),
    "keys_twice": Kind(34, DownloadFlaws.CONTENT),
    "byte_order_mark": Kind(26, DownloadFlaws.CONTENT),
    "header_lies": Kind(26, DownloadFlaws.CONTENT),
    "other_encoding": Kind(26, DownloadFlaws.CONTENT, passes=MAY_PASS),
    # how a page is answered
    "server_error": Kind(3, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "too_often": Kind(6, DownloadFlaws.ANSWER, passes=PASSES),
    "too_often_for_long": Kind(6, DownloadFlaws.ANSWER, passes=PASSES),
    "error_in_body": Kind(7, DownloadFlaws.ANSWER),
    "cached": Kind(12, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "limit_as_403": Kind(13, DownloadFlaws.ANSWER),
    "limit_as_503": Kind(13, DownloadFlaws.ANSWER, passes=PASSES),
    "login_page": Kind(14, DownloadFlaws.ANSWER),
    "login_redirect": Kind(14, DownloadFlaws.ANSWER),
    "credential_dies": Kind(15, DownloadFlaws.ANSWER),
    "cut_body": Kind(16, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "cut_chunks": Kind(17, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "nothing": Kind(18, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "trickle": Kind(24, DownloadFlaws.ANSWER),
    "stall": Kind(24, DownloadFlaws.ANSWER),
    "slow": Kind(25, DownloadFlaws.ANSWER, passes=PASSES),
    "hangs_once": Kind(25, DownloadFlaws.ANSWER, passes=PASSES),
    "large_pages_time_out": Kind(25, DownloadFlaws.ANSWER),
    "cut_json": Kind(30, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "gzip_not": Kind(33, DownloadFlaws.ANSWER),
    "gzip_unsaid": Kind(33, DownloadFlaws.ANSWER),
    "gzip_in_members": Kind(33, DownloadFlaws.ANSWER, passes=PASSES),
    "gzip_cut": Kind(33, DownloadFlaws.ANSWER, passes=MAY_PASS),
    "gzip_twice": Kind(33, DownloadFlaws.ANSWER),
    "redirected": Kind(35, DownloadFlaws.ANSWER),
    "redirected_relatively": Kind(35, DownloadFlaws.ANSWER),
    "redirected_in_circles": Kind(35, DownloadFlaws.ANSWER),
    "retry_differs": Kind(36, DownloadFlaws.ANSWER, passes=PASSES),
}

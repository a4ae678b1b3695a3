"""How sources of rows, and those who read what we deliver, are known to behave."""

from __future__ import annotations

from collections.abc import Mapping

from tests.worlds.catalogue import Row
from tests.worlds.flaws import See

CATALOGUE: Mapping[int, Row] = {
    1: Row("short pages in mid-stream", flaws=("filtered",)),
    2: Row("a silent cap of rows a page", flaws=("cap",)),
    3: Row("5xx, for a time or always", flaws=("server_error",)),
    4: Row("pages counted from 1", flaws=("counts_from_1",)),
    5: Row("the last page again past the end", flaws=("clamped",)),
    6: Row("429, with Retry-After of every kind", flaws=("too_often", "too_often_for_long")),
    7: Row("200 with an error in the body", flaws=("error_in_body",)),
    8: Row(
        "a total that is something else",
        See.ASKED,
        ("total_of_page", "total_is_page_size", "total_in_pages", "total_capped"),
    ),
    9: Row("long integers and decimals", flaws=("long_numbers",)),
    10: Row("a cap with the stride that was asked for", See.ASKED, ("cap_with_stride",)),
    11: Row("page is ignored, or page and page_size", flaws=("page_ignored", "all_at_once")),
    12: Row("a cache answers with another page", flaws=("cached",)),
    13: Row("a rate limit as 403 or 503", flaws=("limit_as_403", "limit_as_503")),
    14: Row("a login page, or a redirect to it", flaws=("login_page", "login_redirect")),
    15: Row("a credential that dies", flaws=("credential_dies",)),
    16: Row("a body shorter than announced", flaws=("cut_body",)),
    17: Row("chunks that end too early", flaws=("cut_chunks",)),
    18: Row("nothing where a page should be", flaws=("nothing",)),
    19: Row("a total that moves", flaws=("total_moves",)),
    20: Row("deep pages fail, or are empty", See.ASKED, ("deep_error", "deep_nothing")),
    21: Row("an error past the end", flaws=("error_past_the_end",)),
    22: Row("an order that is not total", See.ASKED, ("ties",)),
    23: Row("rows enter or leave while they are paged", See.NOBODY, ("rows_enter", "rows_leave")),
    24: Row("one byte at a time, or none behind the headers", flaws=("trickle", "stall")),
    25: Row("slow, slower with depth, too slow", flaws=("slow", "hangs_once", "large_pages_time_out")),
    26: Row("marks, headers and bytes of encodings", flaws=("byte_order_mark", "header_lies", "other_encoding")),
    27: Row("texts that no workbook may hold", flaws=("strange_letters", "lone_surrogates", "long_texts")),
    28: Row("columns that drift", flaws=("late_column", "missing_keys", "retyped")),
    29: Row(
        "HEAD, Range and prefetch on a link",
        reason="Those who fetch the file do this, the source does not: links are tested where files are delivered.",
        shown_by=(
            "tests/integration/test_download_delivery.py::test_a_head_tells_what_a_get_sends",
            "tests/integration/test_download_delivery.py::test_an_expired_link_is_gone",
        ),
    ),
    30: Row("JSON that ends early in a whole body", flaws=("cut_json",)),
    31: Row("one row more than asked for", flaws=("one_row_more",)),
    32: Row("an end flag that lies", flaws=("goes_on_for_ever", "says_it_ends")),
    33: Row(
        "gzip: unsaid, not done, twice, in members, cut",
        flaws=("gzip_not", "gzip_unsaid", "gzip_twice", "gzip_in_members", "gzip_cut"),
    ),
    34: Row("NaN, Infinity, keys that come twice", flaws=("not_a_number", "infinity", "keys_twice")),
    35: Row(
        "redirects: to another host, relative, in circles",
        flaws=("redirected", "redirected_relatively", "redirected_in_circles"),
    ),
    36: Row("a retried page differs from the first try", flaws=("retry_differs",)),
    37: Row(
        "limits of Excel: rows, parts, names",
        reason="The source knows nothing of them: each world of a book opens it with another reader, and books that "
        "reach the limits have tests of their own.",
        shown_by=(
            "tests/integration/test_excel_downloads.py::test_many_rows_become_an_archive_of_books",
            "tests/integration/test_excel_downloads.py::test_a_book_that_stays_one_may_not_have_too_many_rows",
            "tests/integration/test_excel_downloads.py::test_a_book_that_stays_one_may_not_be_too_large",
        ),
    ),
    38: Row(
        "a file that changes between two ranges",
        reason="Those who fetch the file see this: a file is one object that is written once, under its ETag.",
        shown_by=(
            "tests/integration/test_download_delivery.py::test_a_head_tells_what_a_get_sends",
            "tests/integration/test_download_delivery.py::test_a_piece_is_one_of_the_file_that_the_caller_has",
        ),
    ),
}

"""Options of a platform's record, of its configuration, and of what an operator does meanwhile."""

from __future__ import annotations

from functools import cache

from tests.worlds import pairwise
from tests.worlds.pairwise import Options, Row

OPTIONS: Options = {
    # the record
    "paging": ("number", "cursor", "token", "link"),
    "total": ("in_pages", "own_call", "in_header", "none"),
    "more": ("no", "yes"),
    "sort": ("newest_first", "oldest_first", "by_id"),
    "field": ("modified", "created"),
    "ends": ("both", "start", "none"),
    "moments": ("utc", "beijing", "epoch"),
    "kept": ("seconds", "milliseconds"),
    "version": ("sent", "none"),
    "detail": ("none", "call", "pages"),
    "clock": ("call", "date"),
    "signing": ("token", "basic", "md5", "renewed"),
    "api": ("one", "in_path", "in_parameter", "in_header"),
    "rows_max": ("none", "declared"),
    "first_page": ("1", "0"),
    "window_max": ("none", "narrow"),
    # the configuration
    "starttime": ("moment", "relative"),
    "interval": ("1000", "600"),
    "overlap": ("5", "0", "60"),
    "threads": ("4", "1"),
    "rows_of_a_slice": ("10000", "12"),
    "sweep": ("yes", "no"),
    "retries": ("4", "0"),
    "timeout": ("60", "90"),
    "settle_lag": ("60", "200"),
    "rate": ("of_kind", "configured"),
    # an operator
    "operator": (
        *("nothing", "redo", "redo_open", "split", "skip", "change", "other_starttime"),
        *("pause", "backfill", "backfill_broken"),
    ),
    "afterwards": ("left", "mended"),
}


def plain_row() -> Row:
    """Return the plainest value of every option."""
    return pairwise.plain_row(OPTIONS)


@cache
def pairwise_rows() -> tuple[Row, ...]:
    """Return rows of options that together hold every pair of values of two options."""
    return pairwise.pairwise_rows(OPTIONS)

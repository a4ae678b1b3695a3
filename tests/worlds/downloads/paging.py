"""Paging: which rows a source has on a page, by the flaw that it has in that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.worlds import dice
from tests.worlds.downloads.world import SEARCH_DEPTH, DownloadWorld
from tests.worlds.flaws import Flaw

Rows = list[int]
Paging = Callable[[DownloadWorld, Flaw, int, int], Rows | int]
"""The numbers of the rows of a page, or the status that it is refused with."""


def read_right_page(world: DownloadWorld, page: int, size: int) -> Rows:
    """What a page should hold."""
    if page < 0:
        return []
    return list(range(min(page * size, world.rows), min(page * size + size, world.rows)))


def read_page(world: DownloadWorld, page: int, size: int) -> Rows | int:
    """What it holds."""
    for flaw in world.flaws:
        if flaw.name in PAGINGS:
            return PAGINGS[flaw.name](world, flaw, page, size)
    return read_right_page(world, page, size)


def _find_cap(world: DownloadWorld, flaw: Flaw) -> int:
    return max(1, int(world.page_size * (0.2 + 0.7 * flaw.share)))


def _cap(world: DownloadWorld, flaw: Flaw, page: int, size: int) -> Rows:
    return read_right_page(world, page, min(size, _find_cap(world, flaw)))


def _cap_with_stride(world: DownloadWorld, flaw: Flaw, page: int, size: int) -> Rows:
    return read_right_page(world, page, size)[: _find_cap(world, flaw)]


def _count_from_1(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    return read_right_page(world, max(page, 1) - 1, size)


def _repeat_last_page(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    return read_right_page(world, min(page, max(0, -(-world.rows // size) - 1)), size)


def _ignore_page(world: DownloadWorld, _: Flaw, __: int, size: int) -> Rows:
    return read_right_page(world, 0, size)


def _answer_all_rows(world: DownloadWorld, _: Flaw, __: int, ___: int) -> Rows:
    return list(range(world.rows))


def _fail_past_end(world: DownloadWorld, flaw: Flaw, page: int, size: int) -> Rows | int:
    return (
        (404, 400, 422, 500)[flaw.dial % 4]
        if page and page * size >= world.rows
        else read_right_page(world, page, size)
    )


def _add_row(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    if page < 0:
        return []
    return list(range(min(page * size, world.rows), min(page * size + size + 1, world.rows)))


def find_depth(world: DownloadWorld, flaw: Flaw) -> int:
    """How many rows are reached where deep pages are not: some pages, or as many as search engines give."""
    return SEARCH_DEPTH if world.rows > SEARCH_DEPTH else (1 + flaw.dial % 3) * world.page_size


def _fail_deep_pages(world: DownloadWorld, flaw: Flaw, page: int, size: int) -> Rows | int:
    is_deep = size > 1 and page * size >= find_depth(world, flaw)
    return (400, 500)[flaw.dial % 2] if is_deep else read_right_page(world, page, size)


def _empty_deep_pages(world: DownloadWorld, flaw: Flaw, page: int, size: int) -> Rows:
    return [] if size > 1 and page * size >= find_depth(world, flaw) else read_right_page(world, page, size)


def _insert_rows(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    """A new row at the head, behind page 0, moves all others: the last row of that page comes again."""
    rows = read_right_page(world, page, size)
    if size == 1 or page < 1:
        return rows
    return [n for n in range(page * size - 1, page * size + size - 1) if n < world.rows]


def _remove_rows(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    """A row of page 0 goes behind it: the first one of page 1 is skipped."""
    if size == 1 or page < 1:
        return read_right_page(world, page, size)
    return [n for n in range(page * size + 1, page * size + size + 1) if n < world.rows]


def _reorder_ties(world: DownloadWorld, _: Flaw, page: int, size: int) -> Rows:
    """Rows at the edge of a page change places, each time that a page is made anew: some come twice, some never."""
    rows = read_right_page(world, page, size)
    if size == 1 or not rows:
        return rows
    if rows[0] and dice.share(world.seed, "ties", page, "first") < 0.5:
        rows[0] -= 1
    if rows[-1] + 1 < world.rows and dice.share(world.seed, "ties", page, "last") < 0.5:
        rows[-1] += 1
    return rows


PAGINGS: Mapping[str, Paging] = {
    "cap": _cap,
    "cap_with_stride": _cap_with_stride,
    "counts_from_1": _count_from_1,
    "clamped": _repeat_last_page,
    "page_ignored": _ignore_page,
    "all_at_once": _answer_all_rows,
    "error_past_the_end": _fail_past_end,
    "one_row_more": _add_row,
    "deep_error": _fail_deep_pages,
    "deep_nothing": _empty_deep_pages,
    "ties": _reorder_ties,
    "rows_enter": _insert_rows,
    "rows_leave": _remove_rows,
}

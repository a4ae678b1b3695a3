"""Paging: which rows a source has on a page, by the flaw that it has in that."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.worlds import dice
from tests.worlds.downloads.world import SEARCH_DEPTH, World
from tests.worlds.flaws import Flaw

Rows = list[int]
Paging = Callable[[World, Flaw, int, int], Rows | int]
"""The numbers of the rows of a page, or the status that it is refused with."""


def plain(world: World, page: int, size: int) -> Rows:
    """What a page should hold."""
    if page < 0:
        return []
    return list(range(min(page * size, world.rows), min(page * size + size, world.rows)))


def paged(world: World, page: int, size: int) -> Rows | int:
    """What it holds."""
    for flaw in world.flaws:
        if flaw.name in PAGINGS:
            return PAGINGS[flaw.name](world, flaw, page, size)
    return plain(world, page, size)


def _cap_of(world: World, flaw: Flaw) -> int:
    return max(1, int(world.page_size * (0.2 + 0.7 * flaw.share)))


def _cap(world: World, flaw: Flaw, page: int, size: int) -> Rows:
    return plain(world, page, min(size, _cap_of(world, flaw)))


def _cap_with_stride(world: World, flaw: Flaw, page: int, size: int) -> Rows:
    return plain(world, page, size)[: _cap_of(world, flaw)]


def _counts_from_1(world: World, _: Flaw, page: int, size: int) -> Rows:
    return plain(world, max(page, 1) - 1, size)


def _clamped(world: World, _: Flaw, page: int, size: int) -> Rows:
    return plain(world, min(page, max(0, -(-world.rows // size) - 1)), size)


def _page_ignored(world: World, _: Flaw, __: int, size: int) -> Rows:
    return plain(world, 0, size)


def _all_at_once(world: World, _: Flaw, __: int, ___: int) -> Rows:
    return list(range(world.rows))


def _error_past_the_end(world: World, flaw: Flaw, page: int, size: int) -> Rows | int:
    return (404, 400, 422, 500)[flaw.dial % 4] if page and page * size >= world.rows else plain(world, page, size)


def _one_row_more(world: World, _: Flaw, page: int, size: int) -> Rows:
    if page < 0:
        return []
    return list(range(min(page * size, world.rows), min(page * size + size + 1, world.rows)))


def depth(world: World, flaw: Flaw) -> int:
    """How many rows are reached where deep pages are not: some pages, or as many as search engines give."""
    return SEARCH_DEPTH if world.rows > SEARCH_DEPTH else (1 + flaw.dial % 3) * world.page_size


def _deep_error(world: World, flaw: Flaw, page: int, size: int) -> Rows | int:
    is_deep = size > 1 and page * size >= depth(world, flaw)
    return (400, 500)[flaw.dial % 2] if is_deep else plain(world, page, size)


def _deep_nothing(world: World, flaw: Flaw, page: int, size: int) -> Rows:
    return [] if size > 1 and page * size >= depth(world, flaw) else plain(world, page, size)


def _rows_enter(world: World, _: Flaw, page: int, size: int) -> Rows:
    """A new row at the head, behind page 0, moves all others: the last row of that page comes again."""
    rows = plain(world, page, size)
    if size == 1 or page < 1:
        return rows
    return [n for n in range(page * size - 1, page * size + size - 1) if n < world.rows]


def _rows_leave(world: World, _: Flaw, page: int, size: int) -> Rows:
    """A row of page 0 goes behind it: the first one of page 1 is skipped."""
    if size == 1 or page < 1:
        return plain(world, page, size)
    return [n for n in range(page * size + 1, page * size + size + 1) if n < world.rows]


def _ties(world: World, _: Flaw, page: int, size: int) -> Rows:
    """Rows at the edge of a page change places, each time that a page is made anew: some come twice, some never."""
    rows = plain(world, page, size)
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
    "counts_from_1": _counts_from_1,
    "clamped": _clamped,
    "page_ignored": _page_ignored,
    "all_at_once": _all_at_once,
    "error_past_the_end": _error_past_the_end,
    "one_row_more": _one_row_more,
    "deep_error": _deep_error,
    "deep_nothing": _deep_nothing,
    "ties": _ties,
    "rows_enter": _rows_enter,
    "rows_leave": _rows_leave,
}

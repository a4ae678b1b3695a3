"""Pages: how a window's orders are cut, what leads to the next page, and what is said of the whole."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from tests.worlds import dice
from tests.worlds.orders.rows import Goods
from tests.worlds.orders.world import ROWS_MAX, World

PLUS = "+/=+"
GHOST = None
"""A row of another account: it takes a place on a page and is left out of it."""


@dataclass(frozen=True)
class Place:
    """Where a page begins, as it was asked for."""

    first_us: int
    last_us: int
    size: int
    number: int = 0
    """Of the page, from 0."""
    key: tuple[int, int] | None = None
    """The row before it, where one was named."""
    is_after_gap: bool = False
    lap: int = 0

    def seal(self, *, with_plus: bool = False) -> str:
        """Return it as a token, optionally one that a request must escape."""
        parts = [self.first_us, self.last_us, self.size, self.number, self.key, self.is_after_gap, self.lap]
        text = urlsafe_b64encode(json.dumps(parts).encode()).decode()
        return f"{PLUS}{text}" if with_plus else text


def unseal(text: str) -> Place:
    """Read such a text; raises ValueError."""
    parts = json.loads(urlsafe_b64decode(text.removeprefix(PLUS).encode()))
    first_us, last_us, size, number, key, gap, lap = parts
    return Place(first_us, last_us, size, number, tuple(key) if key else None, gap, lap)


@dataclass(frozen=True)
class Cut:
    """One page."""

    numbers: Sequence[int]
    total: int
    has_more: bool
    following: Place | None
    fired: frozenset[str] = frozenset()


def cut(goods: Goods, place: Place) -> Cut:
    """Cut a page out of what the window shows at this moment."""
    world = goods.world
    found = goods.find(place.first_us, place.last_us)
    rows, fired = _with_ghosts(world, found), set[str]()
    size = place.size
    if world.has("page_cap") and size > 1:
        size = max(1, min(size, world.page_size // 2))
        fired |= {"page_cap"} if len(rows) > size else set()
    begin = _begin(goods, rows, place, size, fired)
    bound = ROWS_MAX if world.has("rows_stop") or world.is_so("rows_max", "declared") else len(rows)
    if world.has("rows_stop") and len(rows) > bound:
        fired.add("rows_stop")
    end = min(begin + size, bound)
    page = rows[begin:end]
    has_more = end < min(len(rows), bound)
    numbers = [number for number in page if number is not GHOST]
    if len(numbers) < len(page):
        fired.add("short_pages")
    following = _follow(goods, place, rows, end, numbers, has_more=has_more)
    if _is_gap(world, place):
        fired.add("empty_page")
        numbers, has_more, following = [], True, replace(place, is_after_gap=True)
    if world.has("next_for_ever") and following is None:
        fired.add("next_for_ever")
        following = replace(place, key=(1 << 62, 0), number=place.number + 1, lap=place.lap + 1)
    if world.has("says_it_ends") and has_more:
        fired.add("says_it_ends")
        has_more = False
    total = len(rows) if (flaw := world.flaw("short_pages")) and flaw.dial % 2 else len(found)
    return Cut(numbers, total, has_more, following, frozenset(fired))


def _with_ghosts(world: World, found: Sequence[int]) -> list[int | None]:
    flaw = world.flaw("short_pages")
    if flaw is None:
        return list(found)
    rows = list[int | None]()
    for number in found:
        rows += [number, *([GHOST] * (dice.share(world.seed, "ghost", number) < flaw.share))]
    return rows


def _begin(goods: Goods, rows: Sequence[int | None], place: Place, size: int, fired: set[str]) -> int:
    """Return where a page begins among the rows."""
    world = goods.world
    if not world.is_so("paging", "number") and not world.has("cursor_is_offset"):
        return len(rows) if place.lap else _behind(rows, place.key, goods.sort_key)
    begin = place.number * size
    if world.has("cursor_is_offset"):
        fired |= {"cursor_is_offset"} if begin else set()
    if world.has("page_ignored") and begin:
        fired.add("page_ignored")
        return 0
    if world.has("clamped") and rows and begin >= len(rows):
        fired.add("clamped")
        return (len(rows) - 1) // size * size
    return begin


def _behind(rows: Iterable[int | None], key: tuple[int, int] | None, sort_key: Callable[[int], tuple[int, int]]) -> int:
    """Return the place of the first row behind a key; a ghost goes with the row before it."""
    if key is None:
        return 0
    place = 0
    for at, number in enumerate(rows):
        if number is not GHOST and sort_key(number) > key:
            break
        place = at + 1
    return place


def _follow(
    goods: Goods, place: Place, rows: Sequence[int | None], end: int, numbers: Sequence[int], *, has_more: bool
) -> Place | None:
    """Return what leads to the next page; some platforms say so behind the last full page, too."""
    is_generous = dice.share(goods.world.seed, "generous") < 0.3 and len(numbers) == place.size
    if goods.world.is_so("paging", "number") or not (has_more or is_generous) or place.lap:
        return None
    last = next((number for number in reversed(rows[:end]) if number is not GHOST), None)
    key = place.key if last is None else goods.sort_key(last)
    return replace(place, number=place.number + 1, key=key, is_after_gap=False)


def _is_gap(world: World, place: Place) -> bool:
    flaw = world.flaw("empty_page")
    return flaw is not None and not place.is_after_gap and place.number == flaw.dial % 2 and place.size > 1

"""Walks over the pages of one window, each in its direction, and what shows that a platform leads us in circles."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from domain.orders.capability import Paging
from infra.platforms.failures import PlatformLied
from infra.platforms.reading import Page

EMPTY_PAGES_MAX: Final = 100
"""So many pages without a row may follow each other."""
REPEATS_MAX: Final = 2
"""So many pages may repeat the one before: when a whole page of rows leaves the window, the next holds the same."""

_LINK = re.compile(r"<([^>]*)>\s*;([^,]*)")


@dataclass(frozen=True, slots=True)
class Step:
    """One page, and what it says about those that follow."""

    page: Page
    has_more: bool | None
    """None where the platform does not say."""
    following: str | None = None
    """The token or link of the next page."""


Numbered = Callable[[int, int], Awaitable[Step]]
"""Reads a page: its place in the walk, and its number."""
Led = Callable[[int, str | None], Awaitable[Step]]
"""Reads a page: its place in the walk, and what the page before it said; None for the first."""


async def forwards(read: Numbered, paging: Paging) -> AsyncIterator[Page]:
    """From the first page to the last."""
    watch, number = _Watch(), paging.first
    while True:
        step = watch.passed(await read(number - paging.first, number))
        yield step.page
        if not _goes_on(step, paging, number):
            return
        number += 1


async def backwards(read: Numbered, paging: Paging, last: int) -> AsyncIterator[Page]:
    """From the last page to the first; what has come after the count is read before we turn round."""
    watch, place, number = _Watch(), 0, last
    while True:
        step = watch.passed(await read(place, number))
        yield step.page
        place += 1
        if not _goes_on(step, paging, number):
            break
        number += 1
    watch = _Watch()
    for number in range(last - 1, paging.first - 1, -1):
        yield watch.passed(await read(place, number)).page
        place += 1


async def led(read: Led, what: str = "token") -> AsyncIterator[Page]:
    """Where each page tells what the next is asked by, until one tells nothing."""
    watch, seen, place = _Watch(), set[str](), 0
    token: str | None = None
    while True:
        step = watch.passed(await read(place, token))
        yield step.page
        token, place = step.following, place + 1
        if token is None:
            return
        if token in seen:
            raise PlatformLied(
                f"The {what} {token[:100]!r} came twice: the platform leads in a circle. What it told so far is no "
                "whole window; read it again."
            )
        seen.add(token)


def linked(read: Led) -> AsyncIterator[Page]:
    """Where each page tells the address of the next."""
    return led(read, "link")


def next_link(headers: Iterable[str]) -> str | None:
    """The address that a header Link calls the next."""
    for header in headers:
        for address, parameters in _LINK.findall(header):
            if re.search(r"\brel\s*=\s*\"?next\b", parameters):
                return str(address)
    return None


def _goes_on(step: Step, paging: Paging, number: int) -> bool:
    """A short page is the last unless the platform says otherwise: some tell fewer rows than were asked for."""
    if step.has_more is not None:
        return step.has_more
    rows, total = len(step.page.orders), step.page.total
    if total is not None and rows:
        return (number - paging.first + 1) * paging.size < total
    return rows >= paging.size


class _Watch:
    """Notices pages that repeat each other, or never hold a row, while the platform says that more follow."""

    def __init__(self) -> None:
        self._ids: frozenset[str] = frozenset()
        self._same = 0
        self._empty = 0

    def passed(self, step: Step) -> Step:
        ids = frozenset(order.order_id for order in step.page.orders)
        self._empty = 0 if ids else self._empty + 1
        self._same = self._same + 1 if ids and ids == self._ids else 0
        self._ids = ids
        if self._same > REPEATS_MAX:
            raise PlatformLied(
                "Page after page tells the very same orders: the platform does not heed the page that is asked for. "
                "Mend the name of that parameter in its record."
            )
        if self._empty > EMPTY_PAGES_MAX:
            raise PlatformLied(
                f"{self._empty} pages without an order followed each other, and the platform says that there are more. "
                "Mend the paths of the record, or ask its owner."
            )
        return step

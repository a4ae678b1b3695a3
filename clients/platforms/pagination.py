"""Pagination: the pages of one window in sequence, and the signs of a platform that leads in circles."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from clients.platforms.answers import OrderPage
from clients.platforms.failures import IdenticalPages, InconsistentAnswers
from domain import egress
from domain.faults import Invalid
from domain.orders.capability import Paging

EMPTY_PAGES_MAX: Final = 100
"""Limit of consecutive pages without a row."""
REPEATS_MAX: Final = 3
"""Limit of consecutive pages that repeat the one before: this many are the same behind the last page where a platform
repeats that one, and when a page of rows leaves the window."""

_PAGE_IGNORED: Final = (
    (
        "Page after page tells the very same orders: the platform does not heed the page that is asked for, or says "
        "for ever that there are more."
    ),
    "Mend the name of that parameter, or the path `more`, in its record.",
)
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[^\s=;,"]+(?:\s*=\s*(?:"(?:\\.|[^"\\])*"|[^\s";,]*))?)*)')
_PARAMETER = re.compile(r';\s*([^\s=;,"]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s";,]*))')


@dataclass(frozen=True, slots=True)
class PageWithNextToken:
    """One page, and what it says about those that follow."""

    page: OrderPage
    has_more: bool | None
    """None where the platform does not say."""
    following: str | None = None
    """The token or link of the next page."""


NumberedPageReader = Callable[[int, int], Awaitable[PageWithNextToken]]
"""Reads a page by its position in the pass and its number."""
TokenPageReader = Callable[[int, str | None], Awaitable[PageWithNextToken]]
"""Reads a page by its position in the pass and the token of the page before; None for the first."""


async def iterate_numbered_pages(
    read: NumberedPageReader, paging: Paging, total: int | None, fills_pages: Callable[[], bool]
) -> AsyncIterator[OrderPage]:
    """Read numbered pages from the last to the first: a row that leaves the window is then read twice, never skipped.

    The pass begins at the page after the last row, and looks further up as long as more may follow: a total may be too
    small. Without a total, the end is searched for from the first page, and the pass back is compared with the one
    there.

    A short page is the last one only of a platform that fills its pages. Until one was full, the platform may list
    fewer orders on each page than were requested, and its total may hide that: then an empty page ends the window.

    Args:
        read: Reads a page.
        paging: How the platform pages.
        total: The rows of the window by the platform's own count.
        fills_pages: Whether the platform has listed as many orders on a page as were requested.

    Raises:
        IdenticalPages: All pages listed the same full page, and no total says that this is all.
        InconsistentAnswers: The pages cannot be those of one window.
    """
    beginning = _choose_page_number_to_start_at(paging, total, fills_pages=fills_pages())
    watch, place, number = _RepetitionGuard(), 0, beginning
    comparison = _ForwardAndBackwardPassComparison(paging.first) if total is None else None
    while True:
        step = await read(place, number)
        is_clamped = watch.repeats_previous(step) and not step.has_more
        if is_clamped:
            number -= 1  # behind the last page the platform repeats it
        else:
            yield watch.count_page_and_require_progress(step).page
            if comparison is not None:
                comparison.add_forward_page(number, step)
        place += 1
        if is_clamped or not _may_more_pages_follow(step, paging, is_short_last=total is not None and fills_pages()):
            break
        number += 1
    watch.reset_empty_and_same_counts()
    if comparison is not None:
        comparison.add_last_page(number, step)
    for each in range(number - 1, paging.first - 1, -1):
        step = watch.count_page_and_require_progress(await read(place, each))
        page = step.page if comparison is None else comparison.set_repeats_and_disorder_of_backward_page(each, step)
        yield replace(page, is_repeated=each >= beginning)
        place += 1
    if watch.has_only_repeated_pages and total is None and watch.last_page_order_count >= paging.size:
        raise IdenticalPages(*_PAGE_IGNORED)
    if watch.has_only_repeated_pages and total is not None and watch.last_page_order_count < total:
        raise InconsistentAnswers(*_PAGE_IGNORED)


async def iterate_pages_by_token(read: TokenPageReader, reference_name: str = "token") -> AsyncIterator[OrderPage]:
    """Read pages that each name the token of the next, until one names none."""
    watch, seen, place = _RepetitionGuard(), set[str](), 0
    token: str | None = None
    while True:
        step = watch.count_page_and_require_progress(await read(place, token))
        yield step.page
        token, place = step.following, place + 1
        if token is None:
            return
        if token in seen:
            raise InconsistentAnswers(
                f"The {reference_name} {token[:100]!r} came twice: the platform leads in a circle. What it told "
                "so far is no whole window.",
                "Read it again; if it stays so, ask the platform's owner.",
                may_pass=True,
            )
        seen.add(token)


def iterate_pages_by_link(read: TokenPageReader) -> AsyncIterator[OrderPage]:
    """Read pages that each name the address of the next."""
    return iterate_pages_by_token(read, "link")


def find_next_link(headers: Iterable[str]) -> str | None:
    """Return the address that a header Link calls the next, or None."""
    for header in headers:
        for address, parameters in _LINK.findall(header):
            for name, quoted, plain in _PARAMETER.findall(parameters):
                if name.casefold() == "rel" and "next" in (quoted or plain).casefold().split():
                    return str(address)
    return None


def find_origin(address: str) -> str:
    """Return scheme, host and port of an address in one spelling; a malformed one is returned as it is."""
    try:
        parts = egress.parse_url(address)
    except Invalid:
        return address
    return f"{parts.scheme}://{parts}"


def _choose_page_number_to_start_at(paging: Paging, total: int | None, *, fills_pages: bool) -> int:
    if total is not None:
        # The page behind a short one is read first: read afterwards, it would have the short one read again.
        return paging.first + total // paging.size + (0 if fills_pages or total == 0 or paging.more else 1)
    # The second page ends most windows: it is empty. Read first, it saves a second reading of the first one.
    return paging.first if paging.more else paging.first + 1


def _may_more_pages_follow(step: PageWithNextToken, paging: Paging, *, is_short_last: bool) -> bool:
    """Return whether more may follow. That a full page is the last one is never believed."""
    rows = len(step.page.orders)
    if step.has_more or rows >= paging.size:
        return True
    return rows > 0 and step.has_more is None and not is_short_last


class _ForwardAndBackwardPassComparison:
    """Compares the pass back from the last page with the pass there.

    Rows that leave pull all later ones forward and keep their sequence. So of two orders, the one that is on an earlier
    page of the pass there is not on a later page of the pass back, unless the platform sorts its pages anew for each
    request. A platform that repeats its last page while rows leave may look like that, too: it costs another pass.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._there = dict[str, int]()
        self._back = dict[str, int]()

    def add_forward_page(self, number: int, step: PageWithNextToken) -> None:
        """Add a page of the pass there."""
        for order_id in _collect_order_ids(step):
            self._there.setdefault(order_id, number)

    def add_last_page(self, number: int, step: PageWithNextToken) -> None:
        """Add the last page, which belongs to both passes."""
        self._back = dict.fromkeys(_collect_order_ids(step), number)

    def set_repeats_and_disorder_of_backward_page(self, number: int, step: PageWithNextToken) -> OrderPage:
        """Return a page of the pass back, with what it shows about those before."""
        ids = _collect_order_ids(step)
        repeated = len(ids & self._back.keys())
        for order_id in ids:
            self._back.setdefault(order_id, number)
        return replace(
            step.page,
            repeated=repeated,
            is_unsorted=number == self._first and self._has_sequence_changed_between_passes(),
        )

    def _has_sequence_changed_between_passes(self) -> bool:
        places = sorted((self._there[each], back) for each, back in self._back.items() if each in self._there)
        farthest = 0
        for _, pages in groupby(places, key=itemgetter(0)):
            backs = [back for _, back in pages]
            if backs[0] < farthest:
                return True
            farthest = max(farthest, backs[-1])
        return False


class _RepetitionGuard:
    """Detects pages that repeat each other, or never have a row, while the platform says that more follow."""

    def __init__(self) -> None:
        self._ids: frozenset[str] = frozenset()
        self._same = 0
        self._empty = 0
        self._pages = 0
        self._has_differed = False

    @property
    def has_only_repeated_pages(self) -> bool:
        """Whether all of several pages listed the same orders."""
        return self._pages > 1 and bool(self._ids) and not self._has_differed

    @property
    def last_page_order_count(self) -> int:
        """How many different orders the last page listed."""
        return len(self._ids)

    def repeats_previous(self, step: PageWithNextToken) -> bool:
        """Return whether a page repeats the one before."""
        return bool(self._ids) and _collect_order_ids(step) == self._ids

    def reset_empty_and_same_counts(self) -> None:
        """Reverse the direction: empty pages so far do not count any more."""
        self._same = self._empty = 0

    def count_page_and_require_progress(self, step: PageWithNextToken) -> PageWithNextToken:
        ids = _collect_order_ids(step)
        self._empty = 0 if ids else self._empty + 1
        self._same = self._same + 1 if ids and ids == self._ids else 0
        self._has_differed = self._has_differed or (self._pages > 0 and ids != self._ids)
        self._ids = ids
        self._pages += 1
        if self._same > REPEATS_MAX:
            raise InconsistentAnswers(*_PAGE_IGNORED)
        if self._empty > EMPTY_PAGES_MAX:
            raise InconsistentAnswers(
                f"{self._empty} pages without an order followed each other, and the platform says that there are more.",
                "Mend the paths of the record, or ask its owner.",
            )
        return step


def _collect_order_ids(step: PageWithNextToken) -> frozenset[str]:
    return frozenset(order.order_id for order in step.page.orders)

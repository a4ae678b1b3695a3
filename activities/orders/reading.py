"""Reading a window: one pass, or passes until it is confirmed, or the finding that it is too large."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from activities.orders.window_checks import (
    ModificationSortCheck,
    WindowCompleteness,
    check_window_completeness,
    confirm_zone_by_query_at_modification_second,
)
from clients.platforms import (
    CredentialsRefused,
    IdenticalPages,
    InconsistentAnswers,
    OrderPage,
    PlatformConnector,
    PlatformFailure,
    TooManyRows,
)
from domain.orders.capability import FilteredTimestamp, PagingByNumberCursorTokenOrLink, PlatformOrder
from domain.orders.confirmation import PagingPassHistory, PagingPassVerdict, describe_unrest
from domain.orders.windows import TimeWindow, floor_to_second
from infra.memory import CompressedBytes, HeldMemory, MemoryBudget
from stores.orders.fetched_orders import DIGEST_BYTES, FetchedOrder

DETAILS_AT_ONCE: Final = 8
SLICE_BYTES_MAX: Final = 48 * 1024 * 1024
"""Memory of the orders of a slice beyond which it is split, like one of too many orders."""
READINGS_BYTES_MAX: Final = 64 * 1024 * 1024
"""Memory of the orders of all slices that a process reads at a time; the oldest of them goes on beyond it."""
MEMORY_USED_UP: Final = "The slices that this worker reads hold all the memory that they may have together."
PROJECTED_FROM_BYTES: Final = SLICE_BYTES_MAX // 16
"""From here on the total shows whether the orders that are still to come are too large."""
COPY_BYTES: Final = 512
"""What a copy takes beside its text: its id, times and digest, and its places in tables."""


@dataclass(frozen=True, slots=True)
class RawOrderPage:
    """One page as received."""

    number: int
    asked_at: datetime
    body: CompressedBytes


@dataclass
class NewestOrdersOfWindow:
    """The content of a window: the newest copy of each order that was listed."""

    copies: dict[str, FetchedOrder] = field(default_factory=dict)
    pages: list[RawOrderPage] = field(default_factory=list)
    total: int | None = None
    passes: int = 0
    outside: int = 0
    """Orders from outside of the window in the pass that listed most of them; in parts, the sum over these."""
    undated: int = 0
    """Orders without a time, counted likewise."""
    largest_page: int = 0
    memory_bytes: int = 0
    """Estimated memory of the copies."""
    may_be_cut: bool = False
    """Whether it ended after a round number of orders, which may be an undeclared limit of the platform."""

    def add_page(self, page: OrderPage) -> None:
        """Add the orders of a page."""
        self.pages.append(RawOrderPage(page.number, page.asked_at, CompressedBytes(page.body)))
        self.largest_page = max(self.largest_page, len(page.orders))
        self._keep_newest(FetchedOrder(order, page.asked_at) for order in page.orders)

    def _keep_newest(self, copies: Iterable[FetchedOrder]) -> None:
        kept = self.copies
        for copy in copies:
            before = kept.setdefault(copy.order.order_id, copy)
            if before is copy:
                self.memory_bytes += len(copy.order.raw) + COPY_BYTES
            elif copy.version_rank > before.version_rank:
                self.memory_bytes += len(copy.order.raw) - len(before.order.raw)
                kept[copy.order.order_id] = copy

    def add_contents_of_part(self, part: NewestOrdersOfWindow) -> None:
        """Add the content of a part of the window."""
        self.pages += part.pages
        self.outside += part.outside
        self.undated += part.undated
        self.may_be_cut |= part.may_be_cut
        self.passes = max(self.passes, part.passes)
        self.largest_page = max(self.largest_page, part.largest_page)
        if part.total is not None:
            self.total = (self.total or 0) + part.total
        self._keep_newest(part.copies.values())

    @property
    def digest(self) -> bytes:
        """Digest of the copies: differs between readings that found different content."""
        copies = sorted(copy.digest for copy in self.copies.values())
        return hashlib.blake2b(b"".join(copies), digest_size=DIGEST_BYTES).digest()


@dataclass
class _PassListing:
    """What one pass over the pages listed."""

    ids: list[str] = field(default_factory=list)
    rows: int = 0
    """Orders listed, those of pages that were read on the way to the last page and back counted once."""
    outside: int = 0
    """How many of these rows lie outside of the window."""
    undated: int = 0
    """How many of these rows have no time."""
    repeated: int = 0
    is_unsorted: bool = False
    may_hold_page_of_other_request: bool = False
    sequence: ModificationSortCheck = field(default_factory=ModificationSortCheck)
    identical_pages_error: IdenticalPages | None = None
    """Raised if the page that came each time turns out not to be the whole window."""

    def add_page(self, page: OrderPage) -> None:
        """Add the orders of a page."""
        self.ids += [order.order_id for order in page.orders]
        if not page.is_repeated:
            self.rows += len(page.orders)
            self.outside += page.outside
            self.undated += page.undated
        self.repeated += page.repeated
        self.is_unsorted |= page.is_unsorted
        self.sequence.add(page.orders)


class WindowTooLarge(Exception):
    """The window has more orders, or larger ones, than one reading may hold."""


class WindowReader:
    """Reads one window of one account.

    Args:
        rows_max: Orders beyond which the slice is split instead; None where it is not split any more: then the
            window is read in as many parts as the platform's limits require.
        held: Counts the memory of its orders; by default that of no other reading counts.
    """

    def __init__(
        self, connector: PlatformConnector, window: TimeWindow, rows_max: int | None, held: HeldMemory | None = None
    ) -> None:
        self._connector = connector
        self._window = window
        self._rows_max = rows_max
        self._held = held or HeldMemory(MemoryBudget(math.inf))
        self.contents = NewestOrdersOfWindow()

    async def read_in_one_pass_and_check_end(self) -> NewestOrdersOfWindow:
        """Read the window in one pass, and check that the platform did not stop early."""
        return await self._read_whole_or_in_halves(WindowReader._read_once_and_check_end)

    async def read_passes_until_confirmed(self) -> NewestOrdersOfWindow:
        """Read the window until it is confirmed: again where rows have moved or totals do not agree.

        Raises:
            WindowTooLarge: It must be split.
            TooManyRows: It is too short to be split, and the platform withholds some of it.
            InconsistentAnswers: The passes do not come to agree with the platform's totals.
        """
        return await self._read_whole_or_in_halves(WindowReader._read_until_confirmed)

    async def _read_whole_or_in_halves(self, read: Callable[[WindowReader], Awaitable[None]]) -> NewestOrdersOfWindow:
        query = self._connector.capability.query
        halves = self._window.split_in_halves(query.window_min_seconds)
        is_too_long = self._window.is_longer_than(query.window_max_seconds)
        if is_too_long and self._rows_max is not None:
            raise WindowTooLarge
        if halves is None or not is_too_long:
            try:
                await read(self)
            except TooManyRows:
                if halves is None:
                    raise
            else:
                return self.contents
        self._held.release(self.contents.memory_bytes)
        self.contents = NewestOrdersOfWindow()
        for half in halves:
            part = await WindowReader(self._connector, half, None, self._held)._read_whole_or_in_halves(read)
            before = self.contents.memory_bytes
            self.contents.add_contents_of_part(part)
            self._held.release(part.memory_bytes - (self.contents.memory_bytes - before))
        return self.contents

    async def _read_once_and_check_end(self) -> None:
        await self._read_passes(is_clean_pass_enough=True)

    async def _read_until_confirmed(self) -> None:
        await self._read_passes(is_clean_pass_enough=False)

    async def _read_passes(self, *, is_clean_pass_enough: bool) -> None:
        capability = self._connector.capability
        passes = PagingPassHistory(
            has_totals=capability.total is not None, may_stir=capability.query.field is FilteredTimestamp.CREATED
        )
        total, verdict = await self._count_rows_or_raise_too_many(), PagingPassVerdict.AGAIN
        while verdict is PagingPassVerdict.AGAIN:
            before, listing = total, await self._read_all_pages_once(total)
            if is_clean_pass_enough and self._is_sorted_and_reaches_total(listing, total):
                break
            total = self.contents.total = await self._connector.fetch_row_count(self._window)
            verdict = passes.add_pass(
                self._get_exact_total(before),
                listing.ids,
                self._get_exact_total(total),
                repeated=listing.repeated,
                is_unsorted=listing.is_unsorted,
                is_doubtful=listing.may_hold_page_of_other_request,
            )
        if verdict is PagingPassVerdict.UNSTABLE:
            page_size, largest = capability.paging.size, self.contents.largest_page
            sentence, hint = describe_unrest(self._window, passes.done, page_size, largest)
            raise InconsistentAnswers(sentence, hint, may_pass=not 0 < largest < page_size)
        await self._require_complete_window(listing, total)

    def _is_sorted_and_reaches_total(self, listing: _PassListing, total: int | None) -> bool:
        """Return whether a pass lists as many orders as the platform counts, and nothing else speaks against it."""
        return (
            not listing.is_unsorted
            and not listing.may_hold_page_of_other_request
            and len(set(listing.ids)) >= (self._get_exact_total(total) or 0)
        )

    def _get_exact_total(self, total: int | None) -> int | None:
        """Return a total; None where it is so large that the platform no longer counts exactly."""
        declared = self._connector.capability.total
        is_capped = declared is not None and declared.max is not None and total is not None and total >= declared.max
        return None if is_capped else total

    async def _require_complete_window(self, listing: _PassListing, total: int | None) -> None:
        """Check that the platform did not stop at an undeclared limit; a smaller window may stay below it."""
        end = await self._determine_completeness(listing, total)
        least_seconds = self._connector.capability.query.window_min_seconds
        if (
            end is WindowCompleteness.CUT
            and self._rows_max is None
            and self._window.split_in_halves(least_seconds) is None
        ):
            # An order that appears between the last page and this check looks like one beyond a limit. A limit
            # hides it again; nothing smaller can be requested, so the window would fail.
            total = self.contents.total = await self._count_rows_or_raise_too_many()
            listing = await self._read_all_pages_once(total)
            end = await self._determine_completeness(listing, total)
        if end is WindowCompleteness.WHOLE:
            return
        if listing.identical_pages_error is not None:
            raise listing.identical_pages_error
        if self._rows_max is not None:
            raise WindowTooLarge
        if end is WindowCompleteness.CUT:
            raise TooManyRows(
                f"The platform ended after {len(self.contents.copies):,} orders of the window without a word, and told "
                "others when it was asked for a part of it.",
                "Say in its record after how many rows it stops (`paging.rows_max`), or declare its `total`.",
                rows=len(self.contents.copies),
            )
        self.contents.may_be_cut = True

    async def _determine_completeness(self, listing: _PassListing, total: int | None) -> WindowCompleteness:
        return await check_window_completeness(
            self._connector,
            self._window,
            self.contents.copies,
            self.contents.largest_page,
            listing.sequence,
            self._get_exact_total(total),
            is_doubted=listing.identical_pages_error is not None,
        )

    async def fetch_details_of_orders(self, copies: list[FetchedOrder]) -> list[FetchedOrder]:
        """Fetch the details of orders, where the list has only part of them; they take the place of what was listed.

        Raises:
            InconsistentAnswers: One is older than in the list, as from a replica that lags behind.
        """
        turns = asyncio.Semaphore(DETAILS_AT_ONCE)

        async def fetch_details_and_require_not_older(copy: FetchedOrder) -> FetchedOrder:
            async with turns:
                whole = FetchedOrder(*await self._connector.fetch_details(copy.order))
                listed, detailed = copy.order, whole.order
                if _get_version_rank(detailed) < _get_version_rank(listed):
                    raise InconsistentAnswers(
                        f"Order {listed.order_id} is listed as of {_format_version(listed)}, and told as of "
                        f"{_format_version(detailed)} when it is asked for by itself.",
                        "What is older is not stored; read the slice again later.",
                        may_pass=True,
                    )
                # The copy keeps the digest of the listed text, by which readings are compared, and not the text.
                copy.order = detailed
                self.contents.memory_bytes += len(detailed.raw) - len(listed.raw)
                self._held.release(len(listed.raw))
                await self._hold(len(detailed.raw))
            return whole

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(fetch_details_and_require_not_older(copy)) for copy in copies]
        except* PlatformFailure as failures:
            # Refused credentials concern each order, and have consequences that no other failure has.
            raise min(failures.exceptions, key=lambda each: not isinstance(each, CredentialsRefused)) from None
        return [task.result() for task in tasks]

    async def _hold(self, size: int) -> None:
        """Count more bytes, and wait while all slices together hold too many; raises PlatformBusy."""
        async with self._connector.budget.limit_own_wait(MEMORY_USED_UP):
            await self._held.add(size)

    async def confirm_zone_by_query_at_modification_second(self) -> bool:
        """Check the platform's time zone by an order of the window."""
        return await confirm_zone_by_query_at_modification_second(self._connector, self._window, self.contents.copies)

    async def _count_rows_or_raise_too_many(self) -> int | None:
        total = await self._connector.fetch_row_count(self._window)
        if total is not None and self._rows_max is not None and total > self._rows_max:
            page = await self._connector.fetch_first_page(self._window)
            if not _is_filter_ignored(page.outside, len(page.orders)):
                raise WindowTooLarge
            self._lift_row_limit()
        return total

    async def _read_all_pages_once(self, total: int | None) -> _PassListing:
        listing = _PassListing()
        distinct: set[str] = set()
        self.contents.passes += 1
        try:
            async for page in self._connector.iterate_pages(self._window, total):
                before = self.contents.memory_bytes
                self.contents.add_page(page)
                listing.may_hold_page_of_other_request |= self._may_belong_to_other_request(page, distinct)
                listing.add_page(page)
                distinct.update(order.order_id for order in page.orders)
                await self._hold(self.contents.memory_bytes - before)
                if self._rows_max is not None and (len(distinct) > self._rows_max or self._has_too_large_orders(total)):
                    if not _is_filter_ignored(listing.outside, listing.rows):
                        raise WindowTooLarge
                    self._lift_row_limit()
        except TooManyRows:
            if self._rows_max is None:
                raise
            raise WindowTooLarge from None
        except IdenticalPages as error:
            listing.identical_pages_error = error
        self.contents.outside = max(self.contents.outside, listing.outside)
        self.contents.undated = max(self.contents.undated, listing.undated)
        return listing

    def _has_too_large_orders(self, total: int | None) -> bool:
        """Return whether the orders are too large together, or will be with those that were counted."""
        # Both are those of all passes: a page of a later one has few orders that are not held already.
        size, orders = self.contents.memory_bytes, len(self.contents.copies)
        if size < PROJECTED_FROM_BYTES:
            return False
        return size * max(1.0, (total or 0) / max(1, orders)) > SLICE_BYTES_MAX

    def _lift_row_limit(self) -> None:
        """Read the window whatever number of orders it has: its parts have as many."""
        self._rows_max = None

    def _may_belong_to_other_request(self, page: OrderPage, before: Set[str]) -> bool:
        """Return whether a page may be that of another request, from its orders and those of the pages before it."""
        capability = self._connector.capability
        if page.outside and capability.query.field is FilteredTimestamp.MODIFIED:
            return True
        is_led_to = page.number > 0 and capability.paging.kind is not PagingByNumberCursorTokenOrLink.NUMBER
        return is_led_to and (not page.orders or any(order.order_id in before for order in page.orders))


def _is_filter_ignored(outside: int, orders: int) -> bool:
    """Return whether most orders lie outside of the window: then each part has as many, and splitting never ends."""
    return outside * 2 > orders


def _get_version_rank(order: PlatformOrder) -> tuple[datetime, int]:
    """Return how new an order is, to the second: lists and details may have different precision."""
    return floor_to_second(order.modified_at), order.version


def _format_version(order: PlatformOrder) -> str:
    version = f", version {order.version}" if order.version else ""
    return f"{order.modified_at.isoformat()}{version}"

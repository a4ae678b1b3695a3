"""Fetching one slice of a range: read pages ahead, encode them, check for repetition, and pass them to the stager."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from activities.downloads.stager import RangeStager
from clients.sources import RetryingPageReader, RetryLater, means_beyond_last_page
from domain.downloads import plan, repeats, sinks
from domain.downloads.activity_models import FetchRangeInput, FetchRangeResult
from domain.downloads.models import NewColumnPolicy, RangeFetcherProgress
from domain.downloads.pages import (
    FirstPage,
    NewColumnsFound,
    build_new_column_fault,
    read_first_page,
    read_raw_rows,
    read_row_texts,
)
from domain.downloads.repeats import ROWS_REMEMBERED, SeenPageMarks
from domain.downloads.retries import RetryWait, is_timeout
from domain.downloads.shape import require_column_limits
from domain.faults import SourceFault

if TYPE_CHECKING:
    from domain.downloads.shape import EncodedPage


SLOW_PAGE_SECONDS: Final = 5.0
"""How long a fetcher waits for a page in a place that fetchers of quick sources wait for."""


class PageTooSlow(Exception):
    """A page took longer than a fetcher may wait for it in its place."""


class RangeFetcher:
    """Fetches the pages of a range in order, from where its stager resumes."""

    def __init__(self, source: RetryingPageReader, stager: RangeStager, fetch: FetchRangeInput) -> None:
        self._source = source
        self._stager = stager
        self._fetch = fetch
        self._pages = fetch.pages
        self._extent = fetch.probe.extent
        self._tries = fetch.tries
        # Workflows import the activities for their signatures, and must not load Arrow.
        from domain.downloads.shape import PageEncoder  # noqa: PLC0415

        self._warnings: list[str] = []
        self._sink = sinks.build_sink(fetch.spec)
        self._encoder = PageEncoder(fetch.probe.shape, self._sink)
        self._seen = SeenPageMarks(
            self._extent.to_source_page_number(fetch.pages.first),
            stager.marks,
            is_allowed=fetch.spec.allow_repeats,
            is_endless=fetch.pages.end is None,
        )

    async def fetch_and_stage_until(self, deadline: float) -> FetchRangeResult:
        """Stage pages to the end of the range, or until the monotonic clock reads `deadline`."""
        if self._pages.index == 0 and self._stager.has_nothing_stored:
            self._stager.add_head(self._sink.encode_head(self._fetch.probe.shape.columns))
        try:
            if not self._stager.new_columns:
                try:
                    done = (
                        await self._stage_pages_and_find_empty_end(deadline)
                        or self._stager.next_page == self._pages.end
                    )
                    if done:
                        await self._require_no_rows_behind_end()
                except NewColumnsFound as found:
                    self._add_new_columns_or_raise_fault(found)
            if self._stager.new_columns:
                done = await self._collect_new_columns(deadline)
        except SourceFault as fault:
            await self._stager.store_tail()
            await self._add_transience_progress_and_advice(fault)
            raise
        except PageTooSlow:
            await self._stager.store_tail()
            return self._build_result(done=False).model_copy(update={"is_slow": True})
        except RetryLater as later:
            await self._stager.store_tail()
            return self._build_result(done=False, wait=later.wait)
        # Pages with new columns are read again with these: nothing of the range will be joined or rendered.
        is_staged = done and not self._stager.new_columns
        await (self._stager.on_last_page_added() if is_staged else self._stager.store_tail())
        return self._build_result(done=done)

    async def _stage_pages_and_find_empty_end(self, deadline: float) -> bool:
        """Stage pages until the monotonic clock reads `deadline`; return whether one of them is the last."""
        async with aclosing(self._read_ahead(deadline)) as answers:
            async for page in answers:
                if self._is_empty_end_of_source_without_total(page):
                    return True
                has_gaps = page.has_more and page.rows < self._extent.page_size
                mark = repeats.build_page_mark(page.rows, page.digest)
                await self._stager.add_page_and_store_due_parts(
                    page.data,
                    page.rows,
                    mark,
                    page.row_mark,
                    has_gaps=has_gaps,
                    repeated_keys=page.repeated_keys,
                    has_lone_surrogate=page.has_lone_surrogate,
                )
        return False

    async def _add_transience_progress_and_advice(self, fault: SourceFault) -> None:
        """Add to a fault the progress of the range, and what may help: waiting for the source, or smaller pages."""
        progress = RangeFetcherProgress(range=self._pages.number_among_all_tables, rows=self._stager.rows)
        if fault.transient:
            # If the source answers other requests, the fault concerns this page and does not pass with time.
            is_there = await self._source.can_fetch_first_page()
            if is_timeout(fault) and is_there:
                progress.smaller_page_size = self._extent.smaller_page_size
            # A page that timed out twice would only time out again after a longer pause.
            fault.transient = not is_there and not is_timeout(fault)
        fault.notes = [progress]

    def _build_result(self, *, done: bool, wait: RetryWait | None = None) -> FetchRangeResult:
        return FetchRangeResult(
            number=self._pages.number_among_all_tables,
            rows=self._stager.rows,
            done=done,
            new_columns=self._stager.new_columns if done else [],
            left_out=self._encoder.reader.left_out_keys_beyond_shape,
            warnings=self._warnings,
            wait=wait,
        )

    def _is_empty_end_of_source_without_total(self, page: EncodedPage | FirstPage) -> bool:
        """Return whether a page ends a source without a total: it is empty and announces no more."""
        if self._pages.end is not None:
            return False
        if self._is_empty_page_ending_open_range(page):
            return True
        position = self._stager.next_page
        plan.raise_if_too_many_or_empty_pages(
            position, self._extent.to_source_page_number(position), self._stager.marks
        )
        return False

    def _is_empty_page_ending_open_range(self, page: EncodedPage | FirstPage) -> bool:
        return self._pages.end is None and not page.rows and not page.has_more

    async def _request_empty_page_again_and_require_none_behind(
        self, position: int, parse: Callable[[bytes], EncodedPage]
    ) -> EncodedPage:
        """Request an empty page again, and the page behind it, since no total would show that rows are missing.

        Returns the page of the second answer, which may have rows.

        Raises:
            SourceFault: The page behind it has rows, so the empty page is not the end.
        """
        size = self._extent.page_size
        page = await self._source.read_page(position, size, parse, self._tries)
        if not self._is_empty_page_ending_open_range(page):
            return page

        def require_no_rows(body: bytes) -> None:
            # Checked while parsing, so that it is retried: a cache may once answer another page in its place.
            if behind := read_row_texts(body):
                raise _build_empty_page_fault(self._extent.to_source_page_number(position), len(behind))

        try:
            await self._source.read_page(position + 1, size, require_no_rows, self._tries)
        except SourceFault as fault:
            if not means_beyond_last_page(fault):
                raise
        return page

    async def _require_no_rows_behind_end(self) -> None:
        """Check the page behind the last one, unless the last page shows by itself that it is the last.

        A source that answers an error there, or the last page again, has no more rows.
        """
        end = self._pages.end
        if end is None or end != plan.count_pages(self._extent.total or 0, self._extent.page_size):
            return
        if not self._extent.is_last_page_full:
            return

        def read_repeated_rows_or_require_empty_page(body: bytes) -> list[bytes]:
            """Return the rows if they repeat another page."""
            beyond = self._encoder.encode(body)
            if repeats.build_page_mark(beyond.rows, beyond.digest) in self._stager.marks:
                return read_row_texts(body)
            self._extent.require_empty_page_after_end(beyond.rows)
            return []

        try:
            again = await self._source.read_page(
                end, self._extent.page_size, read_repeated_rows_or_require_empty_page, self._tries
            )
            if again:
                # A single repetition may come from a cache, which hides rows that are there.
                again = await self._source.read_page(
                    end, self._extent.page_size, read_repeated_rows_or_require_empty_page, self._tries
                )
            if end == 1:
                await self._require_source_honours_page_number(again)
        except NewColumnsFound as found:
            raise build_new_column_fault(
                found, self._fetch.probe.shape.columns, self._extent.to_source_page_number(end)
            ) from None
        except SourceFault as fault:
            if not means_beyond_last_page(fault):
                raise
            self._warnings.append(
                f"The total of {self._extent.total} rows is here; whether more follow could not be seen, as the page "
                f"behind the last row was refused: {fault.record.message}"
            )

    async def _require_source_honours_page_number(self, rows: Sequence[bytes]) -> None:
        """Check that a source with one page does not answer that page whatever page is requested, by requesting its
        halves.

        A source that ignores the page may honour the page size: if a larger page has no more rows, its total is right.

        Raises:
            SourceFault: It ignores the page, so it may have more rows than its total says. If repeats are allowed, that
                is a warning instead.
        """
        half = len(rows) // 2
        first, second = list(rows[:half]), list(rows[half : 2 * half])
        if first == second or await self._source.read_page(1, half, read_row_texts, self._tries) != first:
            return
        if await self._has_source_at_most_rows(len(rows)):
            return
        one, other = self._extent.to_source_page_number(0), self._extent.to_source_page_number(1)
        if not self._fetch.spec.allow_repeats:
            raise repeats.build_repeated_pages_fault(one, other, len(rows))
        self._warnings.append(
            f"Pages {one} and {other} of the source have the same "
            f"rows, whatever page size is asked for: whether it has more than the {self._extent.total} rows of its "
            "total could not be seen."
        )

    async def _has_source_at_most_rows(self, rows: int) -> bool:
        """Return whether a first page that may hold more rows than these has no more."""
        try:
            return len(await self._source.read_page(0, rows + 1, read_row_texts, self._tries)) <= rows
        except SourceFault as fault:
            if not means_beyond_last_page(fault):
                raise
            return False

    def _add_new_columns_or_raise_fault(self, found: NewColumnsFound) -> None:
        if self._fetch.spec.columns is not NewColumnPolicy.OPEN:
            source_page = self._extent.to_source_page_number(self._stager.next_page)
            raise build_new_column_fault(found, self._fetch.probe.shape.columns, source_page)
        self._add_new_columns_within_limits(found.names)

    def _add_new_columns_within_limits(self, names: Iterable[str]) -> None:
        self._stager.add_new_columns(names)
        require_column_limits([*self._fetch.probe.shape.columns, *self._stager.new_columns])

    async def _collect_new_columns(self, deadline: float) -> bool:
        """Read on for all new columns of the range, so that it is read again only once; return whether it ended.

        Like staging, this ends when the monotonic clock reads `deadline`, after one page at least, and goes on from
        there in the next slice.
        """
        known, end = set(self._fetch.probe.shape.columns), self._pages.end
        while end is None or self._stager.next_page < end:
            position = self._stager.next_page
            page = await self._source.read_page(position, self._extent.page_size, read_first_page, self._tries)
            if self._is_empty_end_of_source_without_total(page):
                return True
            mark = repeats.build_page_mark(page.rows, blake2b(page.text).hexdigest())
            if end is None:
                repeats.require_no_endless_page(
                    self._extent.to_source_page_number(position), [*self._stager.marks[-repeats.SAME_PAGES_MAX :], mark]
                )
            self._add_new_columns_within_limits(name for name in page.columns if name not in known)
            await self._stager.skip_page(mark)
            if time.monotonic() >= deadline:
                break
        return self._stager.next_page == end

    async def _read_ahead(self, deadline: float) -> AsyncGenerator[EncodedPage]:
        """Yield the pages to come; while one is processed, the next is being requested.

        At least one page is read, so that a late start makes progress. A page that was requested is awaited.
        """
        position, end, is_over = self._stager.next_page, self._pages.end, False
        upcoming: asyncio.Task[EncodedPage] | None = None
        try:
            while not is_over and (end is None or position < end):
                upcoming = upcoming or self._start_page_read(position)
                page = await self._wait_for_page_unless_too_slow(upcoming)
                position += 1
                is_over = time.monotonic() >= deadline
                # If the end is not known, the page ahead may not exist.
                is_next_there = end is not None and position < end
                upcoming = self._start_page_read(position) if is_next_there and not is_over else None
                yield page
        finally:
            if upcoming is not None:
                upcoming.cancel()
                # Awaiting the task itself would not distinguish its cancellation from that of this activity.
                await asyncio.wait([upcoming])
                _ = upcoming.cancelled() or upcoming.exception()

    async def _wait_for_page_unless_too_slow(self, upcoming: asyncio.Task[EncodedPage]) -> EncodedPage:
        if not self._fetch.leaves_slow_pages:
            return await upcoming
        await asyncio.wait([upcoming], timeout=SLOW_PAGE_SECONDS)
        if not upcoming.done():
            raise PageTooSlow
        return upcoming.result()

    def _start_page_read(self, position: int) -> asyncio.Task[EncodedPage]:
        source_page = self._extent.to_source_page_number(position)

        def encode_and_check_page(body: bytes) -> EncodedPage:
            page = self._encoder.encode(body)
            if (position - self._pages.first) * self._extent.page_size * self._fetch.ranges < ROWS_REMEMBERED:
                page = replace(page, row_mark=repeats.build_rows_mark(read_raw_rows(body)))
            self._extent.require_page_fits_total_and_size(position, page.rows, page.total, has_more=page.has_more)
            self._seen.require_no_repetition(source_page, repeats.build_page_mark(page.rows, page.digest))
            return page

        async def read_page_and_confirm_end() -> EncodedPage:
            page = await self._source.read_page(position, self._extent.page_size, encode_and_check_page, self._tries)
            if self._is_empty_page_ending_open_range(page):
                page = await self._request_empty_page_again_and_require_none_behind(position, encode_and_check_page)
            self._seen.add(source_page, repeats.build_page_mark(page.rows, page.digest))
            return page

        return asyncio.create_task(read_page_and_confirm_end())


def _build_empty_page_fault(page: int, rows: int) -> SourceFault:
    return SourceFault(
        "source_empty_page",
        f"Page {page} of the source has no rows twice in a row, and page {page + 1} has {rows}.",
        "Answer a total, or `force_continue`: true on each page that may be empty although more follows; where the "
        "source failed for a moment, retry.",
    )

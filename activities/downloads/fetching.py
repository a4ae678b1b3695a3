"""One slice of one range: pages fetched ahead, encoded, and given to the stager."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from activities.downloads.source import Source
from activities.downloads.stager import Stager
from domain.downloads import sinks
from domain.downloads.pages import NewColumns, first_look, new_column_fault
from domain.downloads.request import Columns
from domain.downloads.steps import FetchOrder, RangeReport
from domain.faults import SourceFault

if TYPE_CHECKING:
    from domain.downloads.encoding import EncodedPage


class Fetching:
    """Fetches the pages of a range in order, from where its stager stands."""

    def __init__(self, source: Source, stager: Stager, fetch: FetchOrder) -> None:
        self._source = source
        self._stager = stager
        self._fetch = fetch
        # Workflows import the steps for their signatures, and must not pay for Arrow.
        from domain.downloads.encoding import PageEncoder  # noqa: PLC0415

        self._sink = sinks.sink_for(fetch.order)
        self._encoder = PageEncoder(fetch.probe.shape, self._sink)

    async def run(self, until: float) -> RangeReport:
        """Stage pages to the end of the range, or until the given reading of the monotonic clock."""
        if self._fetch.pages.index == 0 and self._stager.fresh:
            self._stager.open_with(self._sink.head(self._fetch.probe.shape.columns))
        # A range without pages is done before it begins.
        done = self._stager.next_page == self._fetch.pages.end
        try:
            async with aclosing(self._pages()) as pages:
                async for page in pages:
                    await self._stager.add(page.data, page.rows)
                    done = self._is_end(page)
                    if done or time.monotonic() >= until:
                        break
            done = done or self._stager.next_page == self._fetch.pages.end
        except SourceFault as fault:
            if fault.transient:
                await self._stager.secure()
            raise
        except NewColumns as found:
            return self._report(done=True, new_columns=await self._survey(found))
        await (self._stager.finish() if done else self._stager.secure())
        return self._report(done=done)

    def _report(self, *, done: bool, new_columns: list[str] | None = None) -> RangeReport:
        return RangeReport(
            number=self._fetch.pages.number,
            rows=self._stager.rows,
            done=done,
            new_columns=new_columns or [],
            left_out=self._encoder.reader.newly_left_out,
        )

    def _is_end(self, page: EncodedPage) -> bool:
        """Where no total is told, the pages themselves say which one is the last."""
        return self._fetch.pages.end is None and self._fetch.probe.extent.is_last(page.rows)

    async def _survey(self, found: NewColumns) -> list[str]:
        """Where new columns are welcome, look for all that the rest of the range has: it is read again only once."""
        if self._fetch.order.columns is not Columns.OPEN:
            raise new_column_fault(found, self._fetch.probe.shape.columns)
        names = dict.fromkeys(found.names)
        known = set(self._fetch.probe.shape.columns)
        number = self._stager.next_page + 1
        while self._fetch.pages.end is None or number < self._fetch.pages.end:
            page = await self._source.read(number, self._fetch.probe.extent.page_size, first_look)
            names.update(dict.fromkeys(key for key in page.columns if key not in known))
            if not page.rows and self._fetch.pages.end is None:
                break
            number += 1
        return list(names)

    async def _pages(self) -> AsyncGenerator[EncodedPage]:
        """The pages still to come; while one is worked on, the next is on its way."""
        number, end = self._stager.next_page, self._fetch.pages.end
        upcoming = self._ask(number) if end is None or number < end else None
        try:
            while upcoming is not None:
                page = await upcoming
                number += 1
                # Where the end is not known, asking ahead would ask for a page that nobody wants.
                upcoming = self._ask(number) if end is not None and number < end else None
                yield page
                if end is None:
                    upcoming = self._ask(number)
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, SourceFault, NewColumns):
                    await upcoming

    def _ask(self, number: int) -> asyncio.Task[EncodedPage]:
        extent = self._fetch.probe.extent

        def parse(body: bytes) -> EncodedPage:
            page = self._encoder.encode(body)
            extent.check(number, page.rows, page.total)
            return page

        return asyncio.create_task(self._source.read(number, extent.page_size, parse))

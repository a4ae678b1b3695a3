"""The plan: how many fetchers share the pages of a source, and which pages each of them takes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from domain.faults import SourceFault

LINEAR_MAX_PAGES = 400
PAGES_PER_FETCHER = 100
MAX_FETCHERS = 5
# What the range of a parallel plan should weigh: one part of the final upload, with room for rows that vary.
RANGE_BYTES = 10 * 1024 * 1024
MAX_RANGES = 500
# What the numbers of the ranges of one table keep clear of those of the next.
RANGES_PER_TABLE = 1_000


class PageRange(BaseModel):
    """Consecutive pages of one fetcher: `first` up to, not including, `end`, or to where the source has no more."""

    model_config = ConfigDict(frozen=True)

    index: int
    first: int
    end: int | None
    table: int = 0

    @property
    def number(self) -> int:
        """Which of the ranges of all tables it is."""
        return self.table * RANGES_PER_TABLE + self.index


class Extent(BaseModel):
    """What is known beforehand of a source's size, and so what its pages must hold.

    Args:
        total: Rows in all; None where the source does not tell.
        gaps_allowed: Pages may hold fewer rows than they should, because the source filters after it has paged.
    """

    model_config = ConfigDict(frozen=True)

    total: int | None
    page_size: int
    gaps_allowed: bool = False

    @property
    def exact(self) -> bool:
        """Whether the number of rows is known before they are fetched."""
        return self.total is not None and not self.gaps_allowed

    def check(self, number: int, rows: int, told_total: int | None) -> None:
        """See that a page is what it should be.

        Raises:
            SourceFault: It tells another total, or holds too few rows or too many; asking again may help.
        """
        if self.total is not None and told_total not in (None, self.total):
            raise SourceFault(
                "source_total_changed",
                f"Page {number} told a total of {told_total}, the first page {self.total}.",
                "Start the download again, with filters that no new row can match (e.g. a closed period).",
                transient=True,
            )
        most = self.page_size if self.total is None else rows_of_page(number, self.total, self.page_size)
        if rows > most or (rows < most and self.exact):
            raise SourceFault(
                "source_page_size",
                f"Page {number} holds {rows} rows; total {self.total} and page_size {self.page_size} ask for {most}.",
                "Make the source honour `page` (from 0) and `page_size`, in a stable order.",
                transient=True,
            )

    def is_last(self, rows: int) -> bool:
        """Where no total is told: whether a page with so many rows is the last one."""
        return rows == 0 if self.gaps_allowed else rows < self.page_size


def page_count(total: int, page_size: int) -> int:
    """Pages that hold *total* rows."""
    return -(-total // page_size)


def rows_of_page(page: int, total: int, page_size: int) -> int:
    """Rows that page number *page* must hold when the source has *total* rows."""
    return max(0, min(page_size, total - page * page_size))


def rows_of_range(pages: PageRange, total: int, page_size: int) -> int:
    """Rows that all pages of a range must hold together."""
    end = total if pages.end is None else min(pages.end * page_size, total)
    return max(0, end - pages.first * page_size)


def fetchers(total: int | None, page_size: int) -> int:
    """One while there are at most 400 pages; beyond, one for each 100 pages, five at most. One, too, for no total."""
    if total is None or page_count(total, page_size) <= LINEAR_MAX_PAGES:
        return 1
    return min(MAX_FETCHERS, max(1, total // (page_size * PAGES_PER_FETCHER)))


def range_count(total: int | None, row_bytes: float, fetchers: int) -> int:
    """How many ranges the fetchers share: as many for each, so that all end together, and more of a large source."""
    if total is None or fetchers == 1:
        return 1
    rounds = round(total * row_bytes / RANGE_BYTES / fetchers)
    return fetchers * max(1, min(MAX_RANGES // fetchers, rounds))


def ranges(total: int | None, page_size: int, count: int, table: int = 0) -> list[PageRange]:
    """Split the pages evenly and in order; the first ranges take one page more where it does not come out even."""
    if total is None:
        return [PageRange(index=0, first=0, end=None, table=table)]
    pages = page_count(total, page_size)
    share, extra = divmod(pages, count)
    result, first = [], 0
    for index in range(count):
        end = first + share + (index < extra)
        result.append(PageRange(index=index, first=first, end=end, table=table))
        first = end
    return result

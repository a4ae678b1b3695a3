"""The plan: how many fetchers share the pages of a source, and which pages each of them takes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from domain.faults import SourceFault

REQUESTS_MAX = 20_000
"""Of pages without an end that is known beforehand."""
EMPTY_PAGES_MAX = 50
"""In a row, of a source that says each time that more follows."""
PAGE_SIZE_LEAST = 20
"""Pages that take too long are asked for with fewer rows, but not with fewer than these."""
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


class SourceExtent(BaseModel):
    """What is known beforehand of a source's size, and so what its pages must hold.

    Args:
        total: Rows in all; None where the source does not tell.
        gaps_allowed: Pages may hold fewer rows than they should, because the source filters after it has paged.
        is_whole: The source answers all rows at once, whatever page is asked for.
        first_page: What the source calls its first page; here pages are counted from 0.
        heeds_size: The source answers as many rows as it is asked for, or fewer.
    """

    model_config = ConfigDict(frozen=True)

    total: int | None
    page_size: int
    gaps_allowed: bool = False
    is_whole: bool = False
    first_page: int = 0
    honours_page_size: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the number of rows is known before they are fetched."""
        return self.total is not None and not self.gaps_allowed

    def source_number(self, number: int) -> int:
        """What the source calls a page."""
        return number + self.first_page

    @property
    def is_full_at_the_end(self) -> bool:
        """Whether the last page is as full as any, so that only one more page shows whether the total is right."""
        return bool(self.total) and not self.is_whole and (self.total or 0) % self.page_size == 0

    @property
    def smaller_page_size(self) -> int | None:
        """With how many rows a page it may be quick enough, where it is not; None where nothing smaller helps."""
        return reduce_page_size(self.page_size) if self.honours_page_size and not self.is_whole else None

    def check(self, number: int, rows: int, told_total: int | None, *, has_more: bool = False) -> None:
        """See that a page is what it should be.

        Args:
            number: Of the page, from 0.
            rows: How many it holds.
            told_total: What it says there are in all.
            goes_on: Whether it says that more follows, however few it holds.

        Raises:
            SourceFault: It tells another total, or holds too few rows or too many.
        """
        if self.total is not None and told_total not in (None, self.total):
            raise SourceFault(
                "source_total_changed",
                f"Page {self.source_number(number)} told a total of {told_total}, the first page {self.total}.",
                "Start the download again, with filters that no new row can match (e.g. a closed period).",
                doubtful=True,
            )
        most = self.page_size if self.total is None else count_rows_of_page(number, self.total, self.page_size)
        if rows > most or (rows < most and self.is_exact and not has_more):
            told = "no total" if self.total is None else f"total {self.total}"
            raise SourceFault(
                "source_page_size",
                f"Page {self.source_number(number)} holds {rows} rows; {told} and page_size {self.page_size} "
                f"ask for {most}.",
                "Make the source honour `page` and `page_size`, in a stable order; if it filters after "
                "it has paged, send `force_continue`: true.",
                doubtful=True,
            )

    def check_beyond(self, rows: int) -> None:
        """See that the page behind the last one is empty.

        Raises:
            SourceFault: It has rows: the total is none of all rows.
        """
        if rows:
            beyond = self.source_number(count_pages(self.total or 0, self.page_size))
            raise SourceFault(
                "source_bad_total",
                f"The source tells a total of {self.total}, and page {beyond}, behind its last row, holds {rows} rows.",
                "Answer the number of all rows that match, not of those on the page; or leave `total` out.",
            )


def require_possible_end(number: int, source_number: int, marks: Sequence[str]) -> None:
    """See that a source without a total may still come to an end.

    Args:
        number: Of a page that was not the last one, from 0; so many were asked for before it.
        named: What the source calls that page.
        marks: What is remembered of those before it; nothing of an empty one.

    Raises:
        SourceFault: It has too many pages, or goes on saying that more follow.
    """
    if number >= REQUESTS_MAX:
        raise SourceFault(
            "source_too_long",
            f"The source tells no total, and page {source_number:,} was not the last one; "
            f"{REQUESTS_MAX:,} are allowed.",
            "Answer `total`, ask for larger pages by `page_size`, or ask for less at a time.",
        )
    if not any(marks[-EMPTY_PAGES_MAX:]) and len(marks) >= EMPTY_PAGES_MAX:
        raise SourceFault(
            "source_endless",
            f"The source answered {EMPTY_PAGES_MAX} empty pages in a row, and says `force_continue` on each.",
            "Say `force_continue` only while rows follow; answer an empty page without it at the end.",
        )


def reduce_page_size(page_size: int) -> int | None:
    """A tenth of the rows of a page, to ask a source for that is too slow for so many; None where they are few."""
    return max(PAGE_SIZE_LEAST, page_size // 10) if page_size > PAGE_SIZE_LEAST else None


def count_pages(total: int, page_size: int) -> int:
    """Pages that hold *total* rows."""
    return -(-total // page_size)


def count_rows_of_page(page: int, total: int, page_size: int) -> int:
    """Rows that page number *page* must hold when the source has *total* rows."""
    return max(0, min(page_size, total - page * page_size))


def count_rows_of_range(pages: PageRange, total: int, page_size: int) -> int:
    """Rows that all pages of a range must hold together."""
    end = total if pages.end is None else min(pages.end * page_size, total)
    return max(0, end - pages.first * page_size)


def count_fetchers(total: int | None, page_size: int) -> int:
    """One while there are at most 400 pages; beyond, one for each 100 pages, five at most. One, too, for no total."""
    if total is None or count_pages(total, page_size) <= LINEAR_MAX_PAGES:
        return 1
    return min(MAX_FETCHERS, max(1, total // (page_size * PAGES_PER_FETCHER)))


def count_ranges(total: int | None, row_bytes: float, fetchers: int) -> int:
    """How many ranges the fetchers share: as many for each, so that all end together, and more of a large source."""
    if total is None or fetchers == 1:
        return 1
    rounds = round(total * row_bytes / RANGE_BYTES / fetchers)
    return fetchers * max(1, min(MAX_RANGES // fetchers, rounds))


def plan_ranges(total: int | None, page_size: int, count: int, table: int = 0) -> list[PageRange]:
    """Split the pages evenly and in order; the first ranges take one page more where it does not come out even."""
    if total is None:
        return [PageRange(index=0, first=0, end=None, table=table)]
    pages = count_pages(total, page_size)
    share, extra = divmod(pages, count)
    result, first = [], 0
    for index in range(count):
        end = first + share + (index < extra)
        result.append(PageRange(index=index, first=first, end=end, table=table))
        first = end
    return result

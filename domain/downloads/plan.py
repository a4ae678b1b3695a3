"""Planning: which pages of a source each fetcher takes, and which rows each book of an Excel download takes."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from domain.faults import SourceFault

REQUESTS_MAX = 20_000
"""Requests to a source without a total."""
EMPTY_PAGES_MAX = 50
"""Empty pages in a row, each of which announces more."""
PAGE_SIZE_LEAST = 20
"""Lower bound to which a page size is reduced after timeouts."""
LINEAR_MAX_PAGES = 400
PAGES_PER_FETCHER = 100
MAX_FETCHERS = 5
# Weight of a range of a parallel plan: one part of the final upload, with a margin for rows that vary.
RANGE_BYTES = 10 * 1024 * 1024
MAX_RANGES = 500
# Distance between the range numbers of two tables.
RANGES_PER_TABLE = 1_000
# Share of the maximum size of a book that is planned for, since rows vary; a book that grows beyond it is split.
FILL_RATIO = 0.92


class PageRange(BaseModel):
    """A range of consecutive pages from `first` up to, but not including, `end`; None means the end of the source."""

    model_config = ConfigDict(frozen=True)

    index: int
    first: int
    end: int | None
    table: int = 0

    @property
    def number_among_all_tables(self) -> int:
        """The number of the range among the ranges of all tables."""
        return self.table * RANGES_PER_TABLE + self.index


class SourceExtent(BaseModel):
    """The size of a source as far as it is known beforehand, and so the rows that its pages must hold.

    Args:
        total: All rows; None if the source does not report it.
        gaps_allowed: Pages may hold fewer rows than they should, because the source filters after paging.
        is_whole: The source answers all rows at once, whichever page is requested.
        first_page: The number that the source gives to its first page; pages are counted from 0 here.
        honours_page_size: The source answers at most as many rows as requested.
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

    def to_source_page_number(self, number: int) -> int:
        """Return the number that the source gives to a page."""
        return number + self.first_page

    @property
    def is_last_page_full(self) -> bool:
        """Whether the last page is full, so that only the page behind it can confirm the total."""
        return bool(self.total) and not self.is_whole and (self.total or 0) % self.page_size == 0

    @property
    def smaller_page_size(self) -> int | None:
        """A smaller page size to retry with after a timeout; None if no smaller one helps."""
        return reduce_page_size_to_a_tenth(self.page_size) if self.honours_page_size and not self.is_whole else None

    def require_page_fits_total_and_size(
        self, number: int, rows: int, reported_total: int | None, *, has_more: bool = False
    ) -> None:
        """Check the rows of a page against the total and the page size.

        Args:
            number: The page, from 0.
            rows: Its rows.
            reported_total: The total that it reports.
            has_more: Whether it announces more rows.

        Raises:
            SourceFault: It reports another total, or has too few rows or too many.
        """
        if self.total is not None and reported_total not in (None, self.total):
            raise SourceFault(
                "source_total_changed",
                f"Page {self.to_source_page_number(number)} reported a total of {reported_total}, "
                f"the first page {self.total}.",
                "Start the download again, with filters that no new row can match (e.g. a closed period).",
                doubtful=True,
            )
        most = self.page_size if self.total is None else count_rows_of_page(number, self.total, self.page_size)
        if rows > most or (rows < most and self.is_exact and not has_more):
            reported = "no total" if self.total is None else f"total {self.total}"
            raise SourceFault(
                "source_page_size",
                f"Page {self.to_source_page_number(number)} holds {rows} rows; {reported} and page_size "
                f"{self.page_size} ask for {most}.",
                "Make the source honour `page` and `page_size`, in a stable order; if it filters after "
                "it has paged, send `force_continue`: true.",
                doubtful=True,
            )

    def require_empty_page_after_end(self, rows: int) -> None:
        """Check that the page behind the last one is empty.

        Raises:
            SourceFault: It has rows, so the total does not count all rows.
        """
        if rows:
            beyond = self.to_source_page_number(count_pages(self.total or 0, self.page_size))
            raise SourceFault(
                "source_bad_total",
                f"The source reports a total of {self.total}, and page {beyond}, behind its last row, has {rows} rows.",
                "Answer the number of all rows that match, not of those on the page; or leave `total` out.",
            )


def raise_if_too_many_or_empty_pages(number: int, source_number: int, marks: Sequence[str]) -> None:
    """Check that a source without a total can still come to an end.

    Args:
        number: A page that was not the last one, from 0.
        source_number: The number that the source gives to it.
        marks: The marks of all pages before it; empty pages have empty marks.

    Raises:
        SourceFault: It has too many pages, or keeps announcing more.
    """
    if number >= REQUESTS_MAX:
        raise SourceFault(
            "source_too_long",
            f"The source reports no total, and page {source_number:,} was not the last one; "
            f"{REQUESTS_MAX:,} are allowed.",
            "Answer `total`, ask for larger pages by `page_size`, or ask for less at a time.",
        )
    if not any(marks[-EMPTY_PAGES_MAX:]) and len(marks) >= EMPTY_PAGES_MAX:
        raise SourceFault(
            "source_endless",
            f"The source answered {EMPTY_PAGES_MAX} empty pages in a row, with `force_continue` on each.",
            "Answer `force_continue` only while rows follow; answer an empty page without it at the end.",
        )


def reduce_page_size_to_a_tenth(page_size: int) -> int | None:
    """Return a tenth of the page size, to retry with after a timeout; None if it is small already."""
    return max(PAGE_SIZE_LEAST, page_size // 10) if page_size > PAGE_SIZE_LEAST else None


def count_pages(total: int, page_size: int) -> int:
    """Return the number of pages that *total* rows take."""
    return -(-total // page_size)


def count_rows_of_page(page: int, total: int, page_size: int) -> int:
    """Return how many rows page *page* must hold when the source has *total* rows."""
    return max(0, min(page_size, total - page * page_size))


def count_rows_of_range(pages: PageRange, total: int, page_size: int) -> int:
    """Return how many rows all pages of a range must hold."""
    end = total if pages.end is None else min(pages.end * page_size, total)
    return max(0, end - pages.first * page_size)


def choose_fetcher_count(total: int | None, page_size: int) -> int:
    """Return the number of fetchers: one for up to 400 pages or no total, else one per 100 pages, at most five."""
    if total is None or count_pages(total, page_size) <= LINEAR_MAX_PAGES:
        return 1
    return min(MAX_FETCHERS, max(1, total // (page_size * PAGES_PER_FETCHER)))


def choose_range_count(total: int | None, row_bytes: float, fetchers: int) -> int:
    """Return the number of ranges: a multiple of the fetchers, so that they end together; more for large sources."""
    if total is None or fetchers == 1:
        return 1
    rounds = round(total * row_bytes / RANGE_BYTES / fetchers)
    return fetchers * max(1, min(MAX_RANGES // fetchers, rounds))


def plan_ranges(total: int | None, page_size: int, count: int, table: int = 0) -> list[PageRange]:
    """Split the pages evenly and in order; if there is a remainder, the first ranges get one page more."""
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


class TooManyRowsForBook(Exception):
    """A book that cannot be split has more rows than allowed."""


class RowSegment(BaseModel):
    """Consecutive rows that are planned for one book. They become several books if rows are larger than sampled."""

    number: int
    count: int
    """Number of segments."""
    first_row: int
    rows: int
    whole: bool = False
    """Whether it must stay one book of any size, because it has row heads or several tables."""

    @property
    def is_last(self) -> bool:
        """Whether it is the last segment."""
        return self.number == self.count - 1

    def build_book_name(self, place: int, stem: str) -> str:
        """Return the name of a book in the archive; names sort in the order of the books."""
        letters = "z" * (place // 25) + (chr(ord("a") + place % 25) if place % 25 else "")
        return f"{stem}-{self.number + 1:0{len(str(self.count))}}{letters}.xlsx"


def plan_single_book(rows: int, max_rows: int) -> list[RowSegment]:
    """Plan a single book for all rows.

    Raises:
        TooManyRowsForBook: A book may not have as many.
    """
    if rows > max_rows:
        raise TooManyRowsForBook(f"{rows:,} rows")
    return [RowSegment(number=0, count=1, first_row=0, rows=rows, whole=True)]


def plan_segments(rows: int, row_bytes: float, max_bytes: int, max_rows: int) -> list[RowSegment]:
    """Plan as few segments as possible, of even size.

    Args:
        rows: All rows.
        row_bytes: Bytes per row in a book.
        max_bytes: The maximum size of a book.
        max_rows: The maximum rows of a book.
    """
    count = max(1, -(-rows // max_rows), -(-int(rows * row_bytes) // max(1, int(max_bytes * FILL_RATIO))))
    count = min(count, max(1, rows))
    share, extra = divmod(rows, count)
    found, first = [], 0
    for number in range(count):
        size = share + (number < extra)
        found.append(RowSegment(number=number, count=count, first_row=first, rows=size))
        first += size
    return found

"""The plan: how many fetchers share the pages of a source, and which pages each of them takes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

LINEAR_MAX_PAGES = 400
PAGES_PER_FETCHER = 100
MAX_FETCHERS = 5


class PageRange(BaseModel):
    """Consecutive pages of one fetcher: `first` up to, not including, `end`."""

    model_config = ConfigDict(frozen=True)

    index: int
    first: int
    end: int

    @property
    def pages(self) -> int:
        """How many pages it holds."""
        return self.end - self.first


def page_count(total: int, page_size: int) -> int:
    """Pages that hold *total* rows."""
    return -(-total // page_size)


def rows_of_page(page: int, total: int, page_size: int) -> int:
    """Rows that page number *page* must hold when the source has *total* rows."""
    return max(0, min(page_size, total - page * page_size))


def rows_of_range(pages: PageRange, total: int, page_size: int) -> int:
    """Rows that all pages of a range must hold together."""
    return max(0, min(pages.end * page_size, total) - pages.first * page_size)


def fetchers(total: int, page_size: int) -> int:
    """One while there are at most 400 pages; beyond, one for each 100 pages, five at most."""
    if page_count(total, page_size) <= LINEAR_MAX_PAGES:
        return 1
    return min(MAX_FETCHERS, max(1, total // (page_size * PAGES_PER_FETCHER)))


def ranges(total: int, page_size: int, count: int) -> list[PageRange]:
    """Split the pages evenly and in order; the first ranges take one page more where it does not come out even."""
    pages = page_count(total, page_size)
    share, extra = divmod(pages, count)
    result, first = [], 0
    for index in range(count):
        end = first + share + (index < extra)
        result.append(PageRange(index=index, first=first, end=end))
        first = end
    return result

"""The first look at the source of a table: how many rows, which keys, and how they become the cells of a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import JsonValue

from activities.downloads.book_rendering import BufferedRows
from activities.downloads.source import PageSource, means_no_page, parse_off_loop
from domain.downloads import repeats, sinks
from domain.downloads.activity_models import TableProbe
from domain.downloads.models import DownloadSpec, FileType
from domain.downloads.pages import FirstPage, read_first_page, read_row_texts
from domain.downloads.plan import SourceExtent, reduce_page_size
from domain.downloads.retries import TIMEOUTS_MAX, PageTries, is_timeout
from domain.downloads.shape import build_shape
from domain.downloads.shape import require_column_limits as _require_usable
from domain.faults import SourceFault
from excel.template.checking import find_table_faults
from excel.template.models import TableDrawing

T = TypeVar("T")

PAGE_GOAL_BYTES = 4 * 1024 * 1024
"""Heavier pages are asked for in smaller ones, so that many fetchers can have some in memory."""


@dataclass(frozen=True)
class ProbedTable:
    """What a source has, how its table is to look, and the rows of its first page, as they are staged."""

    probe: TableProbe
    drawing: TableDrawing | None
    sample: BufferedRows


async def probe_table(
    source: PageSource,
    spec: DownloadSpec,
    drawing: TableDrawing | None,
    more_columns: list[str],
    tries: Sequence[PageTries] = (),
    page_size_max: int | None = None,
) -> ProbedTable:
    """Learn what a source has, and how its table is to look.

    Args:
        source: Of the table.
        order: For the table.
        drawing: What the request says of how it looks, if it is for a book; what the source answers goes before it.
        more_columns: Columns that rows were seen to have beyond those of the first page.
        tries: What came of the tries before a wait, for each question that failed.
        page_size_max: How many rows a page may have, where larger ones took too long.
    """
    with source.open_session():
        first, extent = await _FirstRequests(source, spec, tries, page_size_max).probe()
        return await _build_probe(spec, drawing, more_columns, first, extent)


async def _build_probe(
    spec: DownloadSpec, drawing: TableDrawing | None, more_columns: list[str], first: FirstPage, extent: SourceExtent
) -> ProbedTable:
    first = replace(first, columns=list(dict.fromkeys([*first.columns, *more_columns])))
    if drawing is not None:
        drawing = _merge_drawing(drawing, first)
    shape = build_shape(spec.type, first, drawing)
    _require_usable(shape.columns)
    if first.rows and not shape.columns and spec.type is not FileType.CSV:
        raise SourceFault(
            "source_no_keys",
            f"The {first.rows:,} rows of the source's first page have no keys, so that {spec.type} has no columns.",
            'Answer rows like {"id": 1}, the first ones, too.',
        )
    # Workflows import the steps for their signatures, and must not pay for Arrow.
    from domain.downloads.shape import PageEncoder  # noqa: PLC0415

    page = await parse_off_loop(PageEncoder(shape, sinks.build_sink(spec)).encode, first.text)
    probe = TableProbe(
        extent=extent,
        shape=shape,
        row_bytes=len(page.data) / max(1, first.rows),
        first_rows=repeats.mark_page(page.rows, page.digest),
    )
    return ProbedTable(probe, drawing, BufferedRows(page.data, first.rows, shape))


class _FirstRequests:
    """The first questions to a source, and what they tell of its size.

    One row tells the total and what surrounds the rows, the first page the columns and what a row weighs. Where that
    page is not as full as it should be, one or two more show why: because the source caps its pages, because it filters
    them, or because there is no more. Where one of them takes too long, all are asked anew with fewer rows.
    """

    def __init__(
        self, source: PageSource, spec: DownloadSpec, tries: Sequence[PageTries], page_size_max: int | None = None
    ) -> None:
        self._source = source
        self._spec = spec
        self._tries = tries
        self._page_size = min(spec.page_size, page_size_max or spec.page_size)
        self._honours_page_size = False

    async def probe(self) -> tuple[FirstPage, SourceExtent]:
        """The first page with what was told around it, and the extent."""
        while True:
            try:
                return await self._ask_first_questions()
            except SourceFault as fault:
                smaller = reduce_page_size(self._page_size)
                if not self._honours_page_size or not is_timeout(fault) or smaller is None:
                    raise
                self._page_size = smaller

    async def _ask_first_questions(self) -> tuple[FirstPage, SourceExtent]:
        if self._spec.inline_key is not None:
            # Rows that came with the request are one page, whatever their number.
            first = await self._read_first_page(0, self._page_size)
            _require_total_covers(first)
            return first, self._extent(first, page_size=max(1, first.total or 0))
        around, first = await self._read_row_and_page()
        if _differ(around, first):
            before = around.total, first.total
            around, first = await self._read_row_and_page()
            _require_one_total(around, first, before, self._page_size)
        first = replace(
            first,
            total=around.total if first.total is None else first.total,
            template=around.template,
            header=around.header,
            footer=around.footer,
            has_more=first.has_more or around.has_more,
        )
        if self._spec.first_page:
            await self._require_no_page_before(first)
        elif not first.rows:
            await self._require_no_page_behind()
        if first.rows > self._page_size:
            return first, self._build_whole_extent(first)
        _require_total_covers(first)
        first, extent = await self._find_real_page_size(first)
        return first, _limit_page_bytes(extent, first) if self._honours_page_size else extent

    async def _read_row_and_page(self) -> tuple[FirstPage, FirstPage]:
        """One row and the first page. Where both are all rows, the text of one of them is enough."""
        self._honours_page_size = False
        around = replace(await self._read_first_page(0, 1), text=b"")
        # Many rows where one was asked for: it heeds no size. Some sources give one row more than they are asked for.
        self._honours_page_size = around.rows <= 2
        return around, await self._read_first_page(0, self._page_size)

    async def _read_first_page(self, page: int, page_size: int) -> FirstPage:
        return await self._read(page, page_size, read_first_page)

    async def _read(self, page: int, page_size: int, parse: Callable[[bytes], T]) -> T:
        # Once is enough: fewer rows are the better question, and nothing is staged yet that has another size.
        timeouts_max = 1 if self._honours_page_size else TIMEOUTS_MAX
        return await self._source.read(page, page_size, parse, self._tries, timeouts_max)

    def _extent(self, first: FirstPage, **differences: Any) -> SourceExtent:
        extent = SourceExtent(
            total=first.total,
            page_size=self._page_size,
            gaps_allowed=self._spec.force_continue or first.has_more,
            first_page=self._spec.first_page,
            honours_page_size=self._honours_page_size,
        )
        return extent.model_copy(update=differences)

    def _build_whole_extent(self, first: FirstPage) -> SourceExtent:
        """All rows in one answer, whatever was asked for: that is all there is if the total says so."""
        if first.total != first.rows:
            told = "no total" if first.total is None else f"a total of {first.total}"
            raise SourceFault(
                "source_page_size",
                f"The first page holds {first.rows} rows where page_size {self._page_size} was asked for; "
                f"it tells {told}.",
                "Make the source honour `page` and `page_size`, or answer all rows at once with `total`.",
            )
        return self._extent(first, page_size=max(1, first.rows), is_whole=True)

    async def _find_real_page_size(self, first: FirstPage) -> tuple[FirstPage, SourceExtent]:
        """The extent in pages that the source really answers."""
        should = self._page_size if first.total is None else min(self._page_size, first.total)
        if not first.rows or first.rows >= should:
            return first, self._extent(first)
        if first.total is None or self._spec.force_continue or first.has_more:
            return first, (await self._detect_cap(first) or self._extent(first))
        # It tells that there are more rows, and gives no more at a time.
        return first, self._extent(first, page_size=first.rows)

    async def _require_no_page_before(self, first: FirstPage) -> None:
        """A source that counts from 1 answers page 0 as page 1, with nothing, or with an error."""
        rows = await parse_off_loop(read_row_texts, first.text)

        def require_none_or_these(body: bytes) -> list[bytes]:
            # While it is parsed: what comes once may come from a cache, what comes twice is believed.
            before = read_row_texts(body)
            if before and before != rows:
                raise _rows_before_fault(len(before))
            return before

        try:
            before = await self._read(-1, self._page_size, require_none_or_these)
        except SourceFault as fault:
            if means_no_page(fault):
                return
            raise
        # Where both are the same, a cache may have told one in place of the other: the first page is looked at again.
        if before and before != await self._read(0, self._page_size, read_row_texts):
            raise _rows_before_fault(len(before))

    async def _require_no_page_behind(self) -> None:
        """Where page 0 has nothing, a source that counts from 1 has something on page 1."""

        def require_none(body: bytes) -> None:
            if behind := read_row_texts(body):
                raise SourceFault(
                    "source_first_page",
                    f"Page 0 of the source has no rows, and page 1 has {len(behind)}.",
                    "If its pages are counted from 1, send `first_page`: 1.",
                )

        try:
            await self._read(1, self._page_size, require_none)
        except SourceFault as fault:
            if not means_no_page(fault):
                raise

    async def _detect_cap(self, first: FirstPage) -> SourceExtent | None:
        """Whether a page that may rightly be short is short because the source caps its pages.

        Then pages of the size that it gives are asked for: else it would have more pages than its total says, or, where
        it reckons with the size that was asked for, would leave out what lies between.
        """
        smaller = await self._read(1, first.rows, read_row_texts)
        if not smaller:
            return None
        rows = set(await parse_off_loop(read_row_texts, first.text))
        if rows.issuperset(smaller):
            # The source filters what it has paged: these rows were on the first page, too. Or a cache told that page.
            smaller = await self._read(1, first.rows, read_row_texts)
            if rows.issuperset(smaller):
                return None
        following = await self._read(1, self._page_size, read_row_texts)
        if rows.union(following).issuperset(smaller) and following != smaller:
            return None
        return self._extent(first, page_size=first.rows)


def _rows_before_fault(rows: int) -> SourceFault:
    return SourceFault(
        "source_first_page",
        f"The request says that the first page is 1, and page 0 has {rows} rows that page 1 has not.",
        "Leave `first_page` out: the source counts from 0.",
    )


def _limit_page_bytes(extent: SourceExtent, first: FirstPage) -> SourceExtent:
    """The same with fewer rows a page where the first page was heavy: half as many, as often as it takes."""
    row_bytes, rows = len(first.text) / max(1, first.rows), extent.page_size
    while rows > 1 and rows * row_bytes > PAGE_GOAL_BYTES:
        rows //= 2
    return extent.model_copy(update={"page_size": rows})


def _differ(one: FirstPage, other: FirstPage) -> bool:
    """Whether two answers tell different totals; a source may tell it only once."""
    return None not in (one.total, other.total) and one.total != other.total


def _require_one_total(
    one_row: FirstPage, page: FirstPage, before: tuple[int | None, int | None], page_size: int
) -> None:
    """See that the total neither depends on how many rows are asked for, nor changes each time."""
    if not _differ(one_row, page):
        return
    if before == (one_row.total, page.total):
        raise _bad_total_fault(
            f"a total of {one_row.total} with page_size 1 and of {page.total} with page_size {page_size}"
        )
    raise SourceFault(
        "source_total_changed",
        f"The source told totals of {before[0]}, {before[1]}, {one_row.total} and {page.total}, one after another.",
        "Start the download again, with filters that no new row can match (e.g. a closed period).",
    )


def _require_total_covers(first: FirstPage) -> None:
    """See that the total is at least that of the rows which are there."""
    if first.total is not None and first.total < first.rows:
        raise _bad_total_fault(f"a total of {first.total} and answers {first.rows} rows")


def _bad_total_fault(told: str) -> SourceFault:
    return SourceFault(
        "source_bad_total",
        f"The source tells {told}.",
        "Answer the number of all rows that match, whatever `page_size` is, or leave `total` out.",
    )


def _merge_drawing(drawing: TableDrawing, first: FirstPage) -> TableDrawing:
    """The source's word counts where it says one."""
    answered: dict[str, JsonValue] = {
        "template": first.template,
        "header": first.header,
        "footer": first.footer,
    }
    told = {region: value for region, value in answered.items() if value not in (None, [], {}, "")}
    merged = drawing.model_copy(update=told)
    if faults := find_table_faults(merged):
        raise SourceFault(
            "source_bad_drawing",
            f"The table cannot be drawn: {' '.join(faults)}",
            "Mend what the source, or the request, says of it; POST /v1/templates/preview shows what that draws.",
        )
    return merged

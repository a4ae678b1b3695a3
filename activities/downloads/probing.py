"""Probing the source of a table: its size, its columns, and the shape of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import JsonValue

from activities.downloads.book_rendering import BufferedRowReader
from clients.sources import RetryingPageReader, means_beyond_last_page, parse_in_thread_if_large
from domain.downloads import repeats, sinks
from domain.downloads.activity_models import TableProbe
from domain.downloads.models import DownloadSpec, FileType
from domain.downloads.pages import FirstPage, read_first_page, read_row_texts
from domain.downloads.plan import SourceExtent, reduce_page_size_to_a_tenth
from domain.downloads.retries import TIMEOUTS_MAX, PageAttempts, is_timeout
from domain.downloads.shape import choose_table_shape
from domain.downloads.shape import require_column_limits as _require_usable
from domain.faults import SourceFault
from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from excel.template.reading import find_table_faults

T = TypeVar("T")

PAGE_GOAL_BYTES = 4 * 1024 * 1024
"""Heavier pages are requested in smaller ones, so that many fetchers can hold some in memory."""


@dataclass(frozen=True)
class ProbeWithDrawing:
    """The probed source of a table: its size, the drawing, and the encoded rows of its first page."""

    probe: TableProbe
    drawing: TableTextsAndTemplate | None
    sample: BufferedRowReader


async def probe_table(
    source: RetryingPageReader,
    spec: DownloadSpec,
    drawing: TableTextsAndTemplate | None,
    more_columns: list[str],
    failed_tries: Sequence[PageAttempts] = (),
    page_size_max: int | None = None,
) -> ProbeWithDrawing:
    """Probe the source of a table.

    Args:
        source: The source.
        spec: The spec of the table.
        drawing: The drawing that the request asks for, if any; what the source answers overrides it.
        more_columns: Known columns beyond those of the first page.
        failed_tries: Failed attempts of each request before a wait.
        page_size_max: Upper bound of the page size, after larger pages timed out.
    """
    with source.redact_faults_and_release_slot():
        first, extent = await _SourceProber(source, spec, failed_tries, page_size_max).probe_first_page_and_extent()
        return await _build_probed_table(spec, drawing, more_columns, first, extent)


def replace_tables_by_probed(spec: DownloadSpec, tables: Sequence[ProbeWithDrawing]) -> WorkbookLayout | None:
    """Return the drawing with what the sources say of each table."""
    if spec.drawing is None:
        return None
    return spec.drawing.model_copy(update={"tables": [table.drawing for table in tables]})


def have_sources_same_extent_and_first_rows(earlier: Sequence[TableProbe], now: Sequence[TableProbe]) -> bool:
    """Return whether the sources have the same size, columns and first rows as before."""
    return [(each.extent, each.shape, each.first_rows) for each in earlier] == [
        (each.extent, each.shape, each.first_rows) for each in now
    ]


async def _build_probed_table(
    spec: DownloadSpec,
    drawing: TableTextsAndTemplate | None,
    more_columns: list[str],
    first: FirstPage,
    extent: SourceExtent,
) -> ProbeWithDrawing:
    first = replace(first, columns=list(dict.fromkeys([*first.columns, *more_columns])))
    if drawing is not None:
        drawing = _override_drawing_from_source(drawing, first)
    shape = choose_table_shape(spec.type, first, drawing)
    _require_usable(shape.columns)
    if first.rows and not shape.columns and spec.type is not FileType.CSV:
        raise SourceFault(
            "source_no_keys",
            f"The {first.rows:,} rows of the source's first page have no keys, so that {spec.type} has no columns.",
            'Answer rows like {"id": 1}, the first ones, too.',
        )
    # Workflows import the activities for their signatures, and must not load Arrow.
    from domain.downloads.shape import PageEncoder  # noqa: PLC0415

    page = await parse_in_thread_if_large(PageEncoder(shape, sinks.build_sink(spec)).encode, first.text)
    probe = TableProbe(
        extent=extent,
        shape=shape,
        row_bytes=len(page.data) / max(1, first.rows),
        first_rows=repeats.build_page_mark(page.rows, page.digest),
    )
    return ProbeWithDrawing(probe, drawing, BufferedRowReader(page.data, first.rows, shape))


class _SourceProber:
    """The first requests to a source, which determine its size.

    A single row shows the total, template, header and footer; the first page shows the columns and the weight of a row.
    If the first page is not full, one or two more requests show why: the source caps its pages, filters them, or has no
    more rows. If one of them times out, all are repeated with fewer rows.
    """

    def __init__(
        self,
        source: RetryingPageReader,
        spec: DownloadSpec,
        tries: Sequence[PageAttempts],
        page_size_max: int | None = None,
    ) -> None:
        self._source = source
        self._spec = spec
        self._tries = tries
        self._page_size = min(spec.page_size, page_size_max or spec.page_size)
        self._honours_page_size = False

    async def probe_first_page_and_extent(self) -> tuple[FirstPage, SourceExtent]:
        """Return the first page, complete with the total and template, and the extent of the source."""
        while True:
            try:
                return await self._request_first_page_and_determine_extent()
            except SourceFault as fault:
                smaller = reduce_page_size_to_a_tenth(self._page_size)
                if not self._honours_page_size or not is_timeout(fault) or smaller is None:
                    raise
                self._page_size = smaller

    async def _request_first_page_and_determine_extent(self) -> tuple[FirstPage, SourceExtent]:
        if self._spec.inline_key is not None:
            # Rows that were sent with the request are one page, whatever their number.
            first = await self._read_first_page(0, self._page_size)
            _require_total_covers_received_rows(first)
            return first, self._build_extent(first, page_size=max(1, first.total or 0))
        around, first = await self._read_single_row_and_first_page()
        if _has_different_totals(around, first):
            before = around.total, first.total
            around, first = await self._read_single_row_and_first_page()
            _require_equal_totals_of_two_pages(around, first, before, self._page_size)
        first = replace(
            first,
            total=around.total if first.total is None else first.total,
            template=around.template,
            header=around.header,
            footer=around.footer,
            has_more=first.has_more or around.has_more,
        )
        if self._spec.first_page:
            await self._require_no_other_rows_on_page_zero(first)
        elif not first.rows:
            await self._require_second_page_empty()
        if first.rows > self._page_size:
            return first, self._build_extent_of_single_page_source(first)
        _require_total_covers_received_rows(first)
        first, extent = await self._build_extent_with_real_page_size(first)
        return first, _halve_page_size_to_goal_bytes(extent, first) if self._honours_page_size else extent

    async def _read_single_row_and_first_page(self) -> tuple[FirstPage, FirstPage]:
        """Read a single row, and the first page. Where both answers are all rows, one text is enough."""
        self._honours_page_size = False
        around = replace(await self._read_first_page(0, 1), text=b"")
        # A source that answers many rows instead of one ignores the size; some answer one row too many.
        self._honours_page_size = around.rows <= 2
        return around, await self._read_first_page(0, self._page_size)

    async def _read_first_page(self, page: int, page_size: int) -> FirstPage:
        return await self._read_page_with_few_timeouts(page, page_size, read_first_page)

    async def _read_page_with_few_timeouts(self, page: int, page_size: int, parse: Callable[[bytes], T]) -> T:
        # One timeout is enough: fewer rows are the better request, and nothing is staged yet with another page size.
        timeouts_max = 1 if self._honours_page_size else TIMEOUTS_MAX
        return await self._source.read_page(page, page_size, parse, self._tries, timeouts_max)

    def _build_extent(self, first: FirstPage, **differences: Any) -> SourceExtent:
        extent = SourceExtent(
            total=first.total,
            page_size=self._page_size,
            gaps_allowed=self._spec.force_continue or first.has_more,
            first_page=self._spec.first_page,
            honours_page_size=self._honours_page_size,
        )
        return extent.model_copy(update=differences)

    def _build_extent_of_single_page_source(self, first: FirstPage) -> SourceExtent:
        """Return the extent of a source that answers all rows at once; the total must confirm that."""
        if first.total != first.rows:
            reported = "no total" if first.total is None else f"a total of {first.total}"
            raise SourceFault(
                "source_page_size",
                f"The first page holds {first.rows} rows where page_size {self._page_size} was asked for; "
                f"it reports {reported}.",
                "Make the source honour `page` and `page_size`, or answer all rows at once with `total`.",
            )
        return self._build_extent(first, page_size=max(1, first.rows), is_whole=True)

    async def _build_extent_with_real_page_size(self, first: FirstPage) -> tuple[FirstPage, SourceExtent]:
        """Return the extent with the page size that the source really answers."""
        should = self._page_size if first.total is None else min(self._page_size, first.total)
        if not first.rows or first.rows >= should:
            return first, self._build_extent(first)
        if first.total is None or self._spec.force_continue or first.has_more:
            return first, (await self._build_capped_extent_if_pages_are_capped(first) or self._build_extent(first))
        # Its total says that there are more rows, so it caps its pages.
        return first, self._build_extent(first, page_size=first.rows)

    async def _require_no_other_rows_on_page_zero(self, first: FirstPage) -> None:
        """Check that page 0 has no rows of its own if the source counts from 1."""
        rows = await parse_in_thread_if_large(read_row_texts, first.text)

        def require_none_or_same_rows(body: bytes) -> list[bytes]:
            # Checked while parsing, so that it is retried: a single answer may come from a cache.
            before = read_row_texts(body)
            if before and before != rows:
                raise _build_page_numbering_fault(len(before))
            return before

        try:
            before = await self._read_page_with_few_timeouts(-1, self._page_size, require_none_or_same_rows)
        except SourceFault as fault:
            if means_beyond_last_page(fault):
                return
            raise
        # If both are equal, a cache may have answered one in place of the other, so the first page is read again.
        if before and before != await self._read_page_with_few_timeouts(0, self._page_size, read_row_texts):
            raise _build_page_numbering_fault(len(before))

    async def _require_second_page_empty(self) -> None:
        """Check that page 1 has no rows if page 0 has none; otherwise the source counts from 1."""

        def require_no_rows(body: bytes) -> None:
            if behind := read_row_texts(body):
                raise SourceFault(
                    "source_first_page",
                    f"Page 0 of the source has no rows, and page 1 has {len(behind)}.",
                    "If its pages are counted from 1, send `first_page`: 1.",
                )

        try:
            await self._read_page_with_few_timeouts(1, self._page_size, require_no_rows)
        except SourceFault as fault:
            if not means_beyond_last_page(fault):
                raise

    async def _build_capped_extent_if_pages_are_capped(self, first: FirstPage) -> SourceExtent | None:
        """Return the extent if the source caps its pages at the rows of the first one; None if that page was short
        otherwise.

        Then pages of that size must be requested: with larger ones, a source that counts by the requested size would
        skip the rows in between.
        """
        smaller = await self._read_page_with_few_timeouts(1, first.rows, read_row_texts)
        if not smaller:
            return None
        rows = set(await parse_in_thread_if_large(read_row_texts, first.text))
        if rows.issuperset(smaller):
            # The source filters after paging, as these rows were on the first page too; or a cache answered that
            # page.
            smaller = await self._read_page_with_few_timeouts(1, first.rows, read_row_texts)
            if rows.issuperset(smaller):
                return None
        following = await self._read_page_with_few_timeouts(1, self._page_size, read_row_texts)
        if rows.union(following).issuperset(smaller) and following != smaller:
            return None
        return self._build_extent(first, page_size=first.rows)


def _build_page_numbering_fault(rows: int) -> SourceFault:
    return SourceFault(
        "source_first_page",
        f"The request says that the first page is 1, and page 0 has {rows} rows that page 1 has not.",
        "Leave `first_page` out: the source counts from 0.",
    )


def _halve_page_size_to_goal_bytes(extent: SourceExtent, first: FirstPage) -> SourceExtent:
    """Halve the page size until a page does not exceed `PAGE_GOAL_BYTES`."""
    row_bytes, rows = len(first.text) / max(1, first.rows), extent.page_size
    while rows > 1 and rows * row_bytes > PAGE_GOAL_BYTES:
        rows //= 2
    return extent.model_copy(update={"page_size": rows})


def _has_different_totals(one: FirstPage, other: FirstPage) -> bool:
    """Return whether two answers report different totals; a source may report its total only once."""
    return None not in (one.total, other.total) and one.total != other.total


def _require_equal_totals_of_two_pages(
    one_row: FirstPage, page: FirstPage, before: tuple[int | None, int | None], page_size: int
) -> None:
    """Check that the total neither depends on the page size nor changes with each request."""
    if not _has_different_totals(one_row, page):
        return
    if before == (one_row.total, page.total):
        raise _build_contradictory_total_fault(
            f"a total of {one_row.total} with page_size 1 and of {page.total} with page_size {page_size}"
        )
    raise SourceFault(
        "source_total_changed",
        f"The source reported totals of {before[0]}, {before[1]}, {one_row.total} and {page.total}, one after another.",
        "Start the download again, with filters that no new row can match (e.g. a closed period).",
    )


def _require_total_covers_received_rows(first: FirstPage) -> None:
    """Check that the total is at least the number of rows received."""
    if first.total is not None and first.total < first.rows:
        raise _build_contradictory_total_fault(f"a total of {first.total} and answers {first.rows} rows")


def _build_contradictory_total_fault(reported: str) -> SourceFault:
    return SourceFault(
        "source_bad_total",
        f"The source reports {reported}.",
        "Answer the number of all rows that match, whatever `page_size` is, or leave `total` out.",
    )


def _override_drawing_from_source(drawing: TableTextsAndTemplate, first: FirstPage) -> TableTextsAndTemplate:
    """Return the drawing with what the source answers of it.

    Raises:
        SourceFault: The result cannot be drawn.
    """
    answered: dict[str, JsonValue] = {
        "template": first.template,
        "header": first.header,
        "footer": first.footer,
    }
    reported = {region: value for region, value in answered.items() if value not in (None, [], {}, "")}
    merged = drawing.model_copy(update=reported)
    if faults := find_table_faults(merged):
        raise SourceFault(
            "source_bad_drawing",
            f"The table cannot be drawn: {' '.join(faults)}",
            "Correct the template of the source or of the request; POST /v1/templates/preview shows the result.",
        )
    return merged

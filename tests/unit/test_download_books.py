"""Books of an Excel download: what is planned of them, whatever a source reports, and where their rows are encoded."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest
from temporalio import workflow

from activities.downloads import books, stager
from activities.downloads.book_rendering import BookRenderer, BufferedRowReader, TemporaryBookFile
from activities.downloads.stager import BookRenderingStager
from domain.downloads import sinks, staging
from domain.downloads.activity_models import (
    DownloadStateCarriedToNextRun,
    FetchRangeInput,
    FileOrSegments,
    SourcesProbe,
    TableProbe,
)
from domain.downloads.models import DownloadSpec, FileType, StoredFile
from domain.downloads.plan import PageRange, RowSegment, SourceExtent
from domain.downloads.shape import PageEncoder, TableShape
from domain.downloads.staging import RangeLedger, RenderedSegment, StagedPartsInvalid
from excel.limits import WorkbookSizeAndCellChanges, list_warnings
from excel.table_body import TableBodyWriter
from excel.template.models import TableTextsAndTemplate, WorkbookLayout
from workflows.downloads.processing import FileMaker

DRAWING = WorkbookLayout(tables=[TableTextsAndTemplate(title="t" * 10_000)])
SPEC = DownloadSpec(task_id="t", project_id="p", file_name="f.xlsx", type=FileType.EXCEL, drawing=DRAWING)
SHAPE = TableShape(columns=["a"])
SAMPLE = PageEncoder(SHAPE, sinks.build_sink(SPEC)).encode(b'{"data": [{"a": 1}, {"a": 2}]}').data


def build_probe(total: int) -> TableProbe:
    return TableProbe(extent=SourceExtent(total=total, page_size=500), shape=SHAPE, row_bytes=5)


@pytest.mark.parametrize(
    ("total", "sample"),
    [(300_000, BufferedRowReader(b"", 0, SHAPE)), (2_000_000_000, BufferedRowReader(SAMPLE, 2, SHAPE))],
    ids=["no rows on the first page", "more than an archive holds"],
)
async def test_no_books_are_planned_by_what_a_source_only_reports(total: int, sample: BufferedRowReader) -> None:
    """Rows are staged first, and what is there is planned."""
    assert await books.count_books_rendered_by_fetchers(SPEC, DRAWING, build_probe(total), sample) == 0


async def test_rows_are_encoded_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker answers and sends heartbeats while it renders."""
    threads, flush = set[threading.Thread](), TableBodyWriter.flush_and_count_bytes

    def flush_and_note_thread(body: TableBodyWriter) -> int:
        threads.add(threading.current_thread())
        return flush(body)

    monkeypatch.setattr(TableBodyWriter, "flush_and_count_bytes", flush_and_note_thread)
    renderer = BookRenderer(SPEC, DRAWING, [SHAPE], BufferedRowReader(SAMPLE, 2, SHAPE))
    segment = RowSegment(number=0, count=1, first_row=0, rows=2)

    assert await renderer.measure_row_bytes(0) > 0
    made = [file async for file in renderer.render_books(segment)]
    for file in made:
        file.close()

    assert [file.report.rows for file in made] == [2]
    assert threads
    assert threading.main_thread() not in threads


async def test_no_book_is_asked_for_with_its_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are asked for at once: a hundred drawings would be more than one message may hold."""
    asked: list[Any] = []
    segments = [RowSegment(number=number, count=3, first_row=number, rows=1) for number in range(3)]
    file = StoredFile(key="k", name="n", rows=3, bytes=1, etag="e")

    async def answer(method: Any, argument: Any, **_: Any) -> Any:
        asked.append(argument)
        return {
            "join_ranges_or_plan_books": FileOrSegments(segments=segments),
            "render_segment": RenderedSegment(books=[]),
            "combine_books": file,
        }[method.__name__]

    monkeypatch.setattr(workflow, "execute_activity_method", answer)
    maker = FileMaker(SPEC, None, lambda _: None)  # type: ignore[arg-type]
    monkeypatch.setattr(maker, "_progress", type("Progress", (), {"warnings": [], "left_out": [], "done_rows": 3})())

    assert await maker.make_file(SourcesProbe(tables=[build_probe(3)]), [[]]) == file
    assert [len(each.model_dump_json()) < 5_000 for each in asked[1:4]] == [True] * 3


async def test_rows_that_outgrow_the_memory_of_a_book_are_staged_by_parts_instead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first page has small rows: what its fetcher holds is bounded all the same, and the download starts over."""
    monkeypatch.setattr(stager, "BOOK_ROWS_MAX_BYTES", 2 * staging.CUT_AT_BYTES)
    fetch = FetchRangeInput(
        spec=SPEC, probe=build_probe(1_000), pages=PageRange(index=0, first=0, end=9), ranges=1, slice_seconds=60
    )
    ledger = RangeLedger(upload_id="u", range=0, next_page=0)
    gathering = BookRenderingStager(AsyncMock(), fetch, ledger, b"", asyncio.Semaphore(1))

    for _ in range(2):
        await gathering.add_page_and_store_due_parts(bytes(staging.CUT_AT_BYTES), 1)
    with pytest.raises(StagedPartsInvalid, match="too large for books in memory"):
        await gathering.add_page_and_store_due_parts(b"1", 1)


async def test_the_titles_of_empty_columns_are_noted_of_the_first_book_only() -> None:
    """All books of a download are in one message, which Temporal takes up to 2 MB."""
    empty = WorkbookSizeAndCellChanges(rows=1, bytes=1, empty_columns=["城市"], empty_places="1")

    async def render_two_books() -> AsyncGenerator[TemporaryBookFile]:
        for _ in range(2):
            yield TemporaryBookFile(empty, 0, io.BytesIO())

    noted = []
    for number in range(2):
        segment = RowSegment(number=number, count=2, first_row=0, rows=2)
        storage = books._SegmentBookWriter(AsyncMock(), SPEC, segment)
        noted += (await storage.store_as_part_unless_too_small("u", render_two_books())).books

    assert [book.report.empty_columns for book in noted] == [["城市"], [], [], []]
    assert list_warnings([book.report for book in noted]) == ["The column “城市” is empty: no row has a value for it."]


def test_what_is_limited_begins_anew_with_a_retry() -> None:
    """Else a retry would fail where the first processing started over."""
    before, now = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    progress = DownloadStateCarriedToNextRun(began=before, reruns=3, resets=2, column_additions=3, expirations=3)

    progress.begin_again(now)

    assert progress == DownloadStateCarriedToNextRun(began=now)

"""One processing of a download: fetchers share the ranges slice by slice, then the staged rows become a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.activities import DownloadActivities
    from domain.downloads import names
    from domain.downloads.activity_models import (
        AssembleInput,
        CombineBooksInput,
        DownloadInput,
        DownloadStateCarriedToNextRun,
        FetchRangeInput,
        FetchRangeResult,
        RenderSegmentInput,
        SourcesProbe,
    )
    from domain.downloads.models import DownloadPhase, DownloadSpec, DownloadTrouble, RangeFetcherProgress, StoredFile
    from domain.downloads.plan import PageRange, RowSegment
    from domain.downloads.retries import PageAttempts, RetryWait, replace_request_attempts
    from domain.downloads.staging import RenderedSegment, StagedPartsInvalid, StagedRowsTooOld
    from workflows.activity_calls import (
        FILE_MAKING,
        SOURCE_READING,
        disable_retry_on_error_types,
        read_fault_note,
    )
    from workflows.run_length import is_run_long

Argument = TypeVar("Argument")
Result = TypeVar("Result")

CANCEL_AGAIN_SECONDS = 1.0
# A queue longer than the resume window looks like workers that were stopped; a download must not start over for ever.
EXPIRATIONS_MAX = 3

_SHOW_EVERY = timedelta(seconds=1)
STAGING_LOST = (StagedPartsInvalid, StagedRowsTooOld)
"""Errors after which no further attempt helps: the processing starts over."""
_FETCH_OPTIONS = disable_retry_on_error_types(SOURCE_READING, *STAGING_LOST)
_MAKE_OPTIONS = disable_retry_on_error_types(FILE_MAKING, *STAGING_LOST)


class RangeFetchers:
    """Fetches the ranges of one download, several at a time.

    Args:
        progress: The progress of the download, which is updated.
        on_rows: Called with the number of rows, and with the rows of each unfinished range.
        on_wait: Waits until a page may be requested again; returns the trouble that it shows.
        on_resolved: Called when that trouble is over.
    """

    def __init__(
        self,
        spec: DownloadSpec,
        progress: DownloadStateCarriedToNextRun,
        on_rows: Callable[[int, dict[int, int]], None],
        on_wait: Callable[[RetryWait], Awaitable[DownloadTrouble | None]],
        on_resolved: Callable[[DownloadTrouble | None], None],
    ) -> None:
        self._spec = spec
        self._progress = progress
        self._on_rows = on_rows
        self._on_wait = on_wait
        self._on_resolved = on_resolved
        self._published_at = workflow.now()
        self._under_way: dict[int, int] = {}
        self._first_wait: RetryWait | None = None

    async def fetch_all_and_get_new_columns(
        self, sources: SourcesProbe, ranges: list[list[PageRange]], fetchers: int, wait: RetryWait | None = None
    ) -> dict[int, list[str]]:
        """Fetch all ranges; the first failure cancels the others. Return the new columns of each table.

        If the history grows too long before all is fetched, the workflow continues as new.

        Args:
            ranges: The ranges of each table.
            wait: The pause of a page of the first range that failed before.
        """
        done = {*self._progress.done, *self._progress.done_with_new_columns}
        waiting = [pages for pages in reversed([*chain(*ranges)]) if pages.number_among_all_tables not in done]
        self._first_wait = wait
        self._under_way = {pages.number_among_all_tables: 0 for pages in waiting[-fetchers:]}
        self._publish_rows()
        counts = [len(pages) for pages in ranges]
        fetching = [asyncio.create_task(self._run_range_fetcher(sources, waiting, counts)) for _ in range(fetchers)]
        try:
            await asyncio.gather(*fetching)
        except ActivityError as error:
            await cancel_and_wait(*fetching)
            progress = read_fault_note(error, RangeFetcherProgress)
            if progress is not None:
                self._under_way[progress.range] = progress.rows
                self._publish_rows()
            raise
        except asyncio.CancelledError:
            await cancel_and_wait(*fetching)
            raise
        self._publish_rows()
        if len(self._progress.done) + len(self._progress.done_with_new_columns) < sum(counts):
            workflow.continue_as_new(DownloadInput(spec=self._spec, progress=self._progress))
        return {
            table: sorted(places, key=lambda name: places[name])
            for table, places in self._progress.found_columns.items()
        }

    async def _run_range_fetcher(self, sources: SourcesProbe, waiting: list[PageRange], counts: list[int]) -> None:
        """Run one fetcher: take the next range as long as there is one and the history may grow."""
        while waiting and not is_run_long():
            pages = waiting.pop()
            await self._fetch_range(sources, pages, counts[pages.table])

    async def _fetch_range(self, sources: SourcesProbe, pages: PageRange, range_count: int) -> None:
        """Fetch a range in slices, so that fetchers of other projects get their turn in between."""
        tries: list[PageAttempts] = []
        trouble: DownloadTrouble | None = None
        wait, self._first_wait = self._first_wait, None
        if wait is not None:
            tries = [wait.tries]
            trouble = await self._on_wait(wait)
        while True:
            self._under_way.setdefault(pages.number_among_all_tables, 0)
            if workflow.now() - self._published_at >= _SHOW_EVERY:
                self._publish_rows()
            report = await self._fetch_slice(sources, pages, range_count, tries)
            if _is_task_cancelled():
                raise asyncio.CancelledError
            if report.wait is None or report.rows > self._under_way[pages.number_among_all_tables]:
                tries = []
            self._add_slice_result_to_progress(pages, report)
            self._on_resolved(trouble)
            if report.wait:
                tries = replace_request_attempts(tries, report.wait.tries)
                self._publish_rows()
                # The activity slot is free while this waits.
                trouble = await self._on_wait(report.wait)
            if report.done or is_run_long():
                return

    async def _fetch_slice(
        self, sources: SourcesProbe, pages: PageRange, count: int, tries: list[PageAttempts]
    ) -> FetchRangeResult:
        # Where others wait for a place, a slow page is left to places for slow sources, and asked for again there.
        is_slow = sources.is_slow or self._progress.is_source_slow
        fetch = FetchRangeInput(
            spec=self._spec.build_table_spec(pages.table),
            probe=sources.tables[pages.table],
            pages=pages,
            ranges=count,
            slice_seconds=self._spec.slice_seconds,
            archive=sources.archive,
            tries=tries,
            leaves_slow_pages=not is_slow,
            checks_staging_age=self._progress.expirations < EXPIRATIONS_MAX,
        )
        return await workflow.execute_activity_method(
            DownloadActivities.fetch_range,
            fetch,
            task_queue=names.SLOW_FETCH_QUEUE if is_slow else names.FETCH_QUEUE,
            **_FETCH_OPTIONS,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"pages {pages.first} to {'the end' if pages.end is None else pages.end - 1}",
        )

    def _add_slice_result_to_progress(self, pages: PageRange, result: FetchRangeResult) -> None:
        """Add the result of a slice to the progress."""
        self._progress.is_source_slow = self._progress.is_source_slow or result.is_slow
        left_out = self._progress.left_out
        left_out += [name for name in result.left_out if name not in left_out]
        warnings = self._progress.warnings
        warnings += [warning for warning in result.warnings if warning not in warnings]
        if result.done and result.new_columns:
            self._progress.done_with_new_columns.append(result.number)
            places = self._progress.found_columns.setdefault(pages.table, {})
            for index, name in enumerate(result.new_columns):
                places[name] = min(places.get(name, (result.number, index)), (result.number, index))
        if result.done and not result.new_columns:
            self._progress.done.append(result.number)
            self._progress.done_rows += result.rows
            self._under_way.pop(result.number, None)
        else:
            self._under_way[result.number] = result.rows

    def _publish_rows(self) -> None:
        self._published_at = workflow.now()
        self._on_rows(self._progress.done_rows + sum(self._under_way.values()), dict(self._under_way))


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> bool:
    """Cancel tasks and wait until their activities have ended; return whether the caller was cancelled meanwhile.

    A cancellation is lost on a task whose activity completes at that moment, so it is repeated. If the caller is
    cancelled meanwhile, this goes on waiting: the caller deletes the staged rows next, and no activity may be writing
    then.
    """
    is_cancelled = False
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        try:
            await workflow.wait(running, timeout=CANCEL_AGAIN_SECONDS)
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


async def finish_despite_cancellation(step: Coroutine[Any, Any, None]) -> bool:
    """Await a step even while the workflow is being cancelled; return whether it was cancelled meanwhile."""
    task = asyncio.create_task(step)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    task.result()
    return is_cancelled


def _is_task_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class FileMaker:
    """Makes the file of one download from its staged rows.

    Args:
        spec: The download.
        progress: Its progress, with the warnings of its fetchers.
        on_phase: Called at the beginning of each phase.
    """

    def __init__(
        self, spec: DownloadSpec, progress: DownloadStateCarriedToNextRun, on_phase: Callable[[DownloadPhase], None]
    ) -> None:
        self._spec = spec
        self._progress = progress
        self._on_phase = on_phase

    async def make_file(self, sources: SourcesProbe, ranges: list[list[PageRange]]) -> StoredFile:
        """Assemble the ranges; return the file, rendered from them if its type asks for it."""
        self._on_phase(DownloadPhase.ASSEMBLING)
        assembled = await self._run_activity(
            DownloadActivities.join_ranges_or_plan_books,
            AssembleInput(
                spec=self._spec,
                sources=sources,
                ranges=[len(pages) for pages in ranges],
                pages=[[each.first for each in pages] for pages in ranges],
                rows=self._progress.done_rows,
                warnings=self._progress.warnings,
            ),
            summary=f"join {sum(map(len, ranges))} ranges into one object",
        )
        if assembled.file is not None:
            return assembled.file
        self._on_phase(DownloadPhase.RENDERING)
        archive = assembled.archive
        rendered = assembled.rendered or await self._render_segments(sources, assembled.segments, archive)
        if archive and any(each.part is None for each in rendered):
            # Some books are too small to be parts of an upload, so all of them become objects.
            archive = ""
            rendered = await self._render_segments(sources, assembled.segments, archive)
        return await self._run_activity(
            DownloadActivities.combine_books,
            CombineBooksInput(
                spec=self._spec,
                sources=sources,
                rendered=rendered,
                archive=archive,
                left_out=self._progress.left_out,
                warnings=assembled.warnings,
                has_gaps=assembled.has_gaps,
            ),
            summary=f"make one file of {len(rendered)} books",
        )

    async def _render_segments(
        self, sources: SourcesProbe, segments: list[RowSegment], archive: str
    ) -> list[RenderedSegment]:
        """Render the books of all segments and return them in order; the first failure cancels the others."""
        # All are scheduled at once: with the drawing, which is stored, many would be too large a message.
        spec = self._spec.model_copy(update={"drawing": None})
        rendering = [
            asyncio.create_task(
                self._run_activity(
                    DownloadActivities.render_segment,
                    RenderSegmentInput(spec=spec, sources=sources, segment=segment, archive=archive),
                    task_queue=names.RENDER_QUEUE,
                    summary=f"rows {segment.first_row:,} to {segment.first_row + segment.rows:,} into a book",
                )
            )
            for segment in segments
        ]
        try:
            return await asyncio.gather(*rendering)
        except (ActivityError, asyncio.CancelledError):
            await cancel_and_wait(*rendering)
            raise

    async def _run_activity(
        self,
        method: Callable[[DownloadActivities, Argument], Awaitable[Result]],
        argument: Argument,
        *,
        summary: str,
        task_queue: str | None = None,
    ) -> Result:
        """Run a long activity and, on cancellation, wait until it has ended: nothing may be deleted before."""
        return await workflow.execute_activity_method(
            method,
            argument,
            task_queue=task_queue,
            **_MAKE_OPTIONS,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
        )

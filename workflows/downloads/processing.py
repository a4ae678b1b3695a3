"""One processing of a download: fetchers share the ranges slice by slice, then what is staged becomes a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.activities import DownloadActivities
    from domain.downloads import names
    from domain.downloads.activity_models import (
        AssembleOrder,
        BindOrder,
        Course,
        DownloadRun,
        FetchOrder,
        Opening,
        RangeReport,
        RenderOrder,
    )
    from domain.downloads.books import Segment
    from domain.downloads.models import DownloadOrder, FetchProgress, Phase, StoredFile, Trouble
    from domain.downloads.plan import PageRange
    from domain.downloads.retries import PageTries, RetryWait, merge_tries
    from domain.downloads.staging import Rendered, StagingError, StagingExpired
    from workflows.activity_calls import FILE_MAKING, SOURCE_READING, read_fault_note, without_retry_on

Argument = TypeVar("Argument")
Result = TypeVar("Result")

CANCEL_AGAIN_SECONDS = 1.0
# A queue that is longer than the resume window looks like workers that were stopped; nobody must start again for ever.
EXPIRATIONS_MAX = 3

_SHOW_EVERY = timedelta(seconds=1)
STAGING_LOST = (StagingError, StagingExpired)
"""What no further attempt of a step mends: the processing starts again."""
_FETCH_OPTIONS = without_retry_on(SOURCE_READING, *STAGING_LOST)
_MAKE_OPTIONS = without_retry_on(FILE_MAKING, *STAGING_LOST)


class RangeFetchers:
    """The fetchers of one download.

    Args:
        course: How far the download is; they carry it on.
        tell: Shows how many rows there are, and how many of them lie in ranges that are under way.
        wait: Waits until a page may be asked for again, and shows that; returns what it shows.
        resolve: Shows that no longer.
    """

    def __init__(
        self,
        order: DownloadOrder,
        course: Course,
        tell: Callable[[int, dict[int, int]], None],
        wait: Callable[[RetryWait], Awaitable[Trouble | None]],
        resolve: Callable[[Trouble | None], None],
    ) -> None:
        self._order = order
        self._course = course
        self._tell = tell
        self._wait = wait
        self._resolve = resolve
        self._told_at = workflow.now()
        self._under_way: dict[int, int] = {}
        self._reports: list[tuple[PageRange, RangeReport]] = []

    async def fetch(self, opening: Opening, ranges: list[list[PageRange]], fetchers: int) -> dict[int, list[str]]:
        """Fetch all ranges; the first that fails ends the others. Says which columns turned up in which table.

        Where the history is full before all is fetched, the workflow continues as new.

        Args:
            ranges: Of each table.
        """
        done = set(self._course.done)
        waiting = [pages for pages in reversed([*chain(*ranges)]) if pages.number not in done]
        self._reports = []
        self._under_way = {pages.number: 0 for pages in waiting[-fetchers:]}
        self._show()
        counts = [len(pages) for pages in ranges]
        fetching = [asyncio.create_task(self._take_ranges(opening, waiting, counts)) for _ in range(fetchers)]
        try:
            await asyncio.gather(*fetching)
        except ActivityError as error:
            await cancel_and_wait(*fetching)
            progress = read_fault_note(error, FetchProgress)
            if progress is not None:
                self._under_way[progress.range] = progress.rows
                self._show()
            raise
        except asyncio.CancelledError:
            await cancel_and_wait(*fetching)
            raise
        self._show()
        if len(self._course.done) < sum(counts):
            workflow.continue_as_new(DownloadRun(order=self._order, course=self._course))
        return self._new_columns()

    async def _take_ranges(self, opening: Opening, waiting: list[PageRange], counts: list[int]) -> None:
        """One fetcher: takes the next range whenever it is done with one, while the history has room."""
        while waiting and not workflow.info().is_continue_as_new_suggested():
            pages = waiting.pop()
            await self._fetch_range(opening, pages, counts[pages.table])

    async def _fetch_range(self, opening: Opening, pages: PageRange, count: int) -> None:
        """Slice by slice, so that other projects' fetchers get their turn in between."""
        tries: list[PageTries] = []
        trouble: Trouble | None = None
        while True:
            self._under_way.setdefault(pages.number, 0)
            if workflow.now() - self._told_at >= _SHOW_EVERY:
                self._show()
            report = await self._fetch_slice(opening, pages, count, tries)
            if _is_cancelled():
                raise asyncio.CancelledError
            if report.wait is None or report.rows > self._under_way[pages.number]:
                tries = []
            self._note(pages, report)
            self._resolve(trouble)
            if report.wait:
                tries = merge_tries(tries, report.wait.tries)
                self._show()
                # The place is given back meanwhile: others fetch.
                trouble = await self._wait(report.wait)
            if report.done or workflow.info().is_continue_as_new_suggested():
                return

    async def _fetch_slice(self, opening: Opening, pages: PageRange, count: int, tries: list[PageTries]) -> RangeReport:
        fetch = FetchOrder(
            order=self._order.for_table(pages.table),
            probe=opening.tables[pages.table],
            pages=pages,
            ranges=count,
            slice_seconds=self._order.slice_seconds,
            archive=opening.archive,
            tries=tries,
            minds_gaps=self._course.expirations < EXPIRATIONS_MAX,
        )
        return await workflow.execute_activity_method(
            DownloadActivities.fetch_range,
            fetch,
            task_queue=names.FETCH_QUEUE,
            **_FETCH_OPTIONS,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(fairness_key=self._order.project_id),
            summary=f"pages {pages.first} to {'the end' if pages.end is None else pages.end - 1}",
        )

    def _note(self, pages: PageRange, report: RangeReport) -> None:
        """Take a range's report into the course."""
        self._reports.append((pages, report))
        left_out = self._course.left_out
        left_out += [name for name in report.left_out if name not in left_out]
        warnings = self._course.warnings
        warnings += [warning for warning in report.warnings if warning not in warnings]
        if report.done:
            self._course.done.append(report.number)
            self._course.done_rows += report.rows
            self._under_way.pop(report.number, None)
        else:
            self._under_way[report.number] = report.rows

    def _new_columns(self) -> dict[int, list[str]]:
        """The columns that turned up, by table, in the order of the rows that have them."""
        found: dict[int, list[str]] = {}
        for pages, report in sorted(self._reports, key=lambda noted: noted[0].number):
            for name in report.new_columns:
                columns = found.setdefault(pages.table, [])
                columns += [name] if name not in columns else []
        return found

    def _show(self) -> None:
        self._told_at = workflow.now()
        self._tell(self._course.done_rows + sum(self._under_way.values()), dict(self._under_way))


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until what they started has ended.

    A cancellation is lost on a task whose activity completes in that very moment, so it is said again. Who waits here
    may be told again, too, and waits all the same: what comes next is to wipe, and nobody may be writing then.
    """
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await workflow.wait(running, timeout=CANCEL_AGAIN_SECONDS)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class FileMaker:
    """Makes the file of one download.

    Args:
        order: What is asked for.
        course: What fetchers have to say of the rows.
        tell: Shows what is being done.
    """

    def __init__(self, order: DownloadOrder, course: Course, tell: Callable[[Phase], None]) -> None:
        self._order = order
        self._course = course
        self._tell = tell

    async def file(self, opening: Opening, ranges: list[list[PageRange]]) -> StoredFile:
        """The joined rows themselves, or what is rendered of them."""
        self._tell(Phase.ASSEMBLING)
        assembled = await self._step(
            DownloadActivities.assemble,
            AssembleOrder(
                order=self._order,
                opening=opening,
                ranges=[len(pages) for pages in ranges],
                pages=[[each.first for each in pages] for pages in ranges],
                warnings=self._course.warnings,
            ),
            summary=f"join {sum(map(len, ranges))} ranges into one object",
        )
        if assembled.file is not None:
            return assembled.file
        self._tell(Phase.RENDERING)
        archive = assembled.archive
        rendered = assembled.rendered or await self._rendered(opening, assembled.segments, archive)
        if archive and any(each.part is None for each in rendered):
            # Some books are too small for parts of an upload: then all must be objects.
            archive = ""
            rendered = await self._rendered(opening, assembled.segments, archive)
        return await self._step(
            DownloadActivities.bind,
            BindOrder(
                order=self._order,
                opening=opening,
                rendered=rendered,
                archive=archive,
                left_out=self._course.left_out,
                warnings=assembled.warnings,
                has_gaps=assembled.has_gaps,
            ),
            summary=f"make one file of {len(rendered)} books",
        )

    async def _rendered(self, opening: Opening, segments: list[Segment], archive: str) -> list[Rendered]:
        """The books of all segments, in order; the first that fails ends the others."""
        rendering = [
            asyncio.create_task(
                self._step(
                    DownloadActivities.render,
                    RenderOrder(order=self._order, opening=opening, segment=segment, archive=archive),
                    task_queue=names.RENDER_QUEUE,
                    priority=Priority(fairness_key=self._order.project_id),
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

    async def _step(
        self,
        method: Callable[[DownloadActivities, Argument], Awaitable[Result]],
        argument: Argument,
        *,
        summary: str,
        task_queue: str | None = None,
        priority: Priority = Priority.default,
    ) -> Result:
        """A long step that makes something of what is staged: nobody may wipe before it has ended."""
        return await workflow.execute_activity_method(
            method,
            argument,
            task_queue=task_queue,
            **_MAKE_OPTIONS,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=priority,
            summary=summary,
        )

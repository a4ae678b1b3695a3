"""Fetching, as a part of the plan of a download: a few fetchers share many ranges, slice by slice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.steps import DownloadSteps
    from domain.downloads.plan import PageRange
    from domain.downloads.request import DownloadOrder
    from domain.downloads.staging import StagingError, StagingExpired
    from domain.downloads.steps import Course, DownloadRun, FetchOrder, Probe, RangeReport

FETCH_QUEUE = "downloads-fetch"
CANCEL_AGAIN_SECONDS = 1.0
# A queue that is longer than the resume window looks like workers that were stopped; nobody must start again for ever.
EXPIRATIONS_MAX = 3

_TELL_EVERY = timedelta(seconds=1)
_HEARTBEAT_SECONDS = timedelta(seconds=5)
_SECONDS = timedelta(hours=1)
_STRICTLY = RetryPolicy(
    initial_interval=timedelta(seconds=0.5),
    maximum_interval=timedelta(seconds=15),
    non_retryable_error_types=[StagingError.__name__, StagingExpired.__name__],
)


class Fetchers:
    """The fetchers of one download.

    Args:
        course: How far the download is; they carry it on.
        tell: Shows how many rows there are, and how many of them lie in ranges that are under way.
    """

    def __init__(self, order: DownloadOrder, course: Course, tell: Callable[[int, dict[int, int]], None]) -> None:
        self._order = order
        self._course = course
        self._tell = tell
        self._told_at = workflow.now()
        self._under_way: dict[int, int] = {}
        self._new_columns: dict[int, list[str]] = {}

    async def fetch(self, probe: Probe, ranges: list[PageRange], fetchers: int) -> list[str]:
        """Fetch all ranges; the first that fails ends the others. Says which columns turned up on the way.

        Where the history is full before all is fetched, the workflow continues as new.
        """
        waiting = [pages for pages in reversed(ranges) if pages.index not in self._course.done]
        self._new_columns = {}
        self._under_way = {pages.index: 0 for pages in waiting[-fetchers:]}
        self._show()
        fetching = [asyncio.create_task(self._take_ranges(probe, waiting, len(ranges))) for _ in range(fetchers)]
        try:
            await asyncio.gather(*fetching)
        except (ActivityError, asyncio.CancelledError):
            await stopped(*fetching)
            raise
        self._show()
        if len(self._course.done) < len(ranges):
            workflow.continue_as_new(DownloadRun(order=self._order, course=self._course))
        return list(dict.fromkeys(name for _, names in sorted(self._new_columns.items()) for name in names))

    async def _take_ranges(self, probe: Probe, waiting: list[PageRange], count: int) -> None:
        """One fetcher: takes the next range whenever it is done with one, while the history has room."""
        while waiting and not workflow.info().is_continue_as_new_suggested():
            await self._fetch_range(probe, waiting.pop(), count)

    async def _fetch_range(self, probe: Probe, pages: PageRange, count: int) -> None:
        """Slice by slice, so that other projects' fetchers get their turn in between."""
        while True:
            self._under_way.setdefault(pages.index, 0)
            if workflow.now() - self._told_at >= _TELL_EVERY:
                self._show()
            report = await self._fetch_slice(probe, pages, count)
            if _is_cancelled():
                raise asyncio.CancelledError
            self._note(report)
            if report.done or workflow.info().is_continue_as_new_suggested():
                return

    async def _fetch_slice(self, probe: Probe, pages: PageRange, count: int) -> RangeReport:
        fetch = FetchOrder(
            order=self._order,
            probe=probe,
            pages=pages,
            ranges=count,
            slice_seconds=self._order.slice_seconds,
            minds_gaps=self._course.expirations < EXPIRATIONS_MAX,
        )
        return await workflow.execute_activity_method(
            DownloadSteps.fetch_range,
            fetch,
            task_queue=FETCH_QUEUE,
            start_to_close_timeout=_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_STRICTLY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=Priority(fairness_key=self._order.project_id),
            summary=f"pages {pages.first} to {'the end' if pages.end is None else pages.end - 1}",
        )

    def _note(self, report: RangeReport) -> None:
        """Take a range's report into the course."""
        if report.new_columns:
            self._new_columns[report.index] = report.new_columns
        if report.done:
            self._course.done.append(report.index)
            self._course.done_rows += report.rows
            self._under_way.pop(report.index, None)
        else:
            self._under_way[report.index] = report.rows

    def _show(self) -> None:
        self._told_at = workflow.now()
        self._tell(self._course.done_rows + sum(self._under_way.values()), dict(self._under_way))


async def stopped(*tasks: asyncio.Task[Any]) -> None:
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

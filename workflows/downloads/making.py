"""Making the file of what is staged, as a part of the plan of a download: join, render, bind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.activities import DownloadActivities
    from domain.downloads import names
    from domain.downloads.activity_models import AssembleOrder, BindOrder, Course, Opening, RenderOrder
    from domain.downloads.books import Segment
    from domain.downloads.models import DownloadOrder, Phase, StoredFile
    from domain.downloads.plan import PageRange
    from domain.downloads.staging import Rendered
    from workflows.activity_calls import FILE_MAKING, without_retry_on
    from workflows.downloads.fetching import STAGING_LOST, stopped

Argument = TypeVar("Argument")
Result = TypeVar("Result")


_MAKING = without_retry_on(FILE_MAKING, *STAGING_LOST)


class Making:
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
            await stopped(*rendering)
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
            **_MAKING,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=priority,
            summary=summary,
        )

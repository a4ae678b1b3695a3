"""The plan of a download: probe, fetch in slices and in parallel, assemble, render, finish; again where that helps.

A user's fault is a result. A failed download waits for a retry as long as what it staged may still be used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.steps import DownloadSteps
    from domain.downloads import places, plan, story
    from domain.downloads.excel.segments import Segment
    from domain.downloads.plan import PageRange
    from domain.downloads.staging import Rendered, StagingError, StagingExpired
    from domain.downloads.status import Outcome, Phase, State, Status, StoredFile
    from domain.downloads.steps import (
        AssembleOrder,
        BindOrder,
        Course,
        DownloadRun,
        FinishOrder,
        Opening,
        Probe,
        ProbeOrder,
        RecordOrder,
        RenderOrder,
    )
    from domain.faults import FaultRecord
    from domain.sealed import Sealed
    from domain.webhooks import WebhookEvent, WebhookOrder
    from infra import temporal
    from workflows import webhooks
    from workflows.fetching import Fetchers, stopped
    from workflows.outcomes import fault_of, is_type

Argument = TypeVar("Argument")
Result = TypeVar("Result")

QUEUE = "downloads"
RENDER_QUEUE = "downloads-render"
STATUS_MEMO = "status"
NAME_MEMO = "file_name"

WIDENINGS_MAX = 3

_PATIENTLY = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=15))
_STRICTLY = replace(_PATIENTLY, non_retryable_error_types=[StagingError.__name__, StagingExpired.__name__])
_STEP_SECONDS = timedelta(seconds=30)
# Probing retries pages by itself, with pauses as long as the source asks for.
_PROBE_SECONDS = timedelta(hours=1)
_LONG_SECONDS = timedelta(hours=12)
_HEARTBEAT_SECONDS = timedelta(seconds=5)


workflow_id = places.workflow_id


class Unmendable(Exception):
    """The processing ends in a fault that no activity raised."""

    def __init__(self, fault: FaultRecord) -> None:
        self.fault = fault
        super().__init__(fault.sentence)


@workflow.defn
class DownloadWorkflow:
    """One download, from the request to the file or the fault."""

    @workflow.init
    def __init__(self, run: DownloadRun) -> None:
        self._order = run.order
        self._course = run.course or Course(began=workflow.now())
        self._status = Status()
        self._is_retry_wanted = False
        self._fetchers = Fetchers(self._order, self._course, self._tell_rows)

    @workflow.run
    async def run(self, run: DownloadRun) -> Outcome:
        """Read this as the story."""
        while True:
            outcome = await self._within_its_time()
            await _regardless(self._finish(outcome))
            if outcome.state is not State.FAILED or not await self._is_retried(outcome):
                return outcome

    @workflow.query
    def status(self) -> Status:
        """Where the download stands."""
        return self._status

    @workflow.signal
    def retry(self) -> None:
        """Process a failed download again, from what is staged."""
        self._is_retry_wanted = True

    async def _within_its_time(self) -> Outcome:
        """Process to an end within the time that is allowed. Cancelling really stops what runs, and wipes it."""
        processing = asyncio.create_task(self._to_an_end())
        deadline = self._course.began + timedelta(seconds=self._order.max_exec_seconds)
        try:
            await workflow.wait([processing], timeout=max(0.0, (deadline - workflow.now()).total_seconds()))
            if processing.done():
                return processing.result()
            await stopped(processing)
            if _has_succeeded(processing):
                return processing.result()
            return self._failed(_took_too_long(self._order.max_exec_seconds))
        except asyncio.CancelledError:
            await stopped(processing)
            await _regardless(self._discard())
            return Outcome(state=State.CANCELLED, total=self._status.total)

    async def _to_an_end(self) -> Outcome:
        """Process; what failed but may pass is processed again by itself, after a growing pause."""
        while True:
            try:
                return Outcome(state=State.SUCCEEDED, file=await self._process(), total=self._status.total)
            except ActivityError as error:
                fault = fault_of(error)
            except Unmendable as error:
                fault = error.fault
            self._course.is_fetching = False
            if not fault.retryable or self._course.reruns == self._order.max_task_retries:
                return self._failed(fault)
            self._status.fault = fault
            self._tell(State.RUNNING, Phase.PAUSING)
            await workflow.sleep(self._order.rerun_pause_seconds * 2**self._course.reruns)
            self._course.reruns += 1

    async def _process(self) -> StoredFile:
        """One processing by the plan. What was staged for nothing is wiped, and the processing starts again."""
        while True:
            opening, ranges = await self._opened()
            try:
                new_columns = await self._fetchers.fetch(opening, ranges, self._status.fetchers)
                if not new_columns:
                    return await self._made(opening, ranges)
                self._widen(new_columns)
            except ActivityError as error:
                if not self._starts_again(error):
                    raise
            self._course.is_fetching, self._course.opening = False, None
            await self._discard()

    async def _opened(self) -> tuple[Opening, list[list[PageRange]]]:
        """What the sources are like, by a new look at them unless this run continues an earlier one."""
        course = self._course
        if not course.is_fetching or course.opening is None:
            course.processings += 1
            course.done, course.done_rows, course.left_out = [], 0, []
            self._status = Status(processings=course.processings, started_at=workflow.now())
            self._tell(State.RUNNING, Phase.PROBING)
            await self._step(DownloadSteps.record, RecordOrder(order=self._order, processings=course.processings))
            course.opening = await workflow.execute_activity_method(
                DownloadSteps.probe,
                ProbeOrder(
                    order=self._order,
                    earlier=course.opening,
                    columns=course.new_columns,
                    one_fetcher=course.one_fetcher,
                ),
                start_to_close_timeout=_PROBE_SECONDS,
                heartbeat_timeout=_HEARTBEAT_SECONDS,
                retry_policy=_PATIENTLY,
                # It opens an upload: nobody may wipe before it has ended.
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary="ask the source for its total and columns",
            )
            course.is_fetching = True
        self._status.total = course.opening.total
        self._status.processings, self._status.started_at = course.processings, course.began
        ranges = [self._ranges(table, probe) for table, probe in enumerate(course.opening.tables)]
        self._status.fetchers = max(self._fetchers_of(probe) for probe in course.opening.tables)
        return course.opening, ranges

    def _fetchers_of(self, probe: Probe) -> int:
        return 1 if self._course.one_fetcher else plan.fetchers(probe.extent.total, probe.extent.page_size)

    def _ranges(self, table: int, probe: Probe) -> list[PageRange]:
        extent = probe.extent
        count = probe.books or plan.range_count(extent.total, probe.row_bytes, self._fetchers_of(probe))
        return plan.ranges(extent.total, extent.page_size, count, table)

    async def _made(self, opening: Opening, ranges: list[list[PageRange]]) -> StoredFile:
        """The file of what is staged: the joined rows themselves, or what is rendered of them."""
        self._tell(State.RUNNING, Phase.ASSEMBLING)
        assembled = await self._making(
            DownloadSteps.assemble,
            AssembleOrder(order=self._order, opening=opening, ranges=[len(pages) for pages in ranges]),
            summary=f"join {sum(map(len, ranges))} ranges into one object",
        )
        if assembled.file is not None:
            return assembled.file
        self._tell(State.RUNNING, Phase.RENDERING)
        archive = assembled.archive
        rendered = assembled.rendered or await self._rendered(opening, assembled.segments, archive)
        if archive and any(each.part is None for each in rendered):
            # Some books are too small for parts of an upload: then all must be objects.
            archive = ""
            rendered = await self._rendered(opening, assembled.segments, archive)
        return await self._making(
            DownloadSteps.bind,
            BindOrder(
                order=self._order, opening=opening, rendered=rendered, archive=archive, left_out=self._course.left_out
            ),
            summary=f"make one file of {len(rendered)} books",
        )

    async def _rendered(self, opening: Opening, segments: list[Segment], archive: str) -> list[Rendered]:
        """The books of all segments, in order; the first that fails ends the others."""
        rendering = [
            asyncio.create_task(
                self._making(
                    DownloadSteps.render,
                    RenderOrder(order=self._order, opening=opening, segment=segment, archive=archive),
                    task_queue=RENDER_QUEUE,
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

    async def _making(
        self,
        method: Callable[[DownloadSteps, Argument], Awaitable[Result]],
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
            start_to_close_timeout=_LONG_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_STRICTLY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            priority=priority,
            summary=summary,
        )

    def _widen(self, new_columns: dict[int, list[str]]) -> None:
        """Columns that turned up late join those of the first page; the rows before need their empty cells."""
        for table, names in new_columns.items():
            known = self._course.new_columns.setdefault(table, [])
            known += [name for name in names if name not in known]
        self._course.widenings += 1
        if self._course.widenings > WIDENINGS_MAX:
            raise Unmendable(_columns_keep_changing([name for names in new_columns.values() for name in names]))

    def _starts_again(self, error: ActivityError) -> bool:
        """Whether the error is mended by starting again from nothing."""
        if is_type(error, StagingError.__name__) and not self._course.one_fetcher:
            self._course.one_fetcher = True
            return True
        if is_type(error, StagingExpired.__name__):
            self._course.expirations += 1
            return True
        return False

    async def _finish(self, outcome: Outcome) -> None:
        keeps_staging = outcome.fault is not None and outcome.fault.retryable
        if outcome.state is State.FAILED and not keeps_staging:
            await self._discard()
        await self._step(
            DownloadSteps.finish,
            FinishOrder(
                order=self._order,
                outcome=outcome,
                processings=self._course.processings,
                fetchers=self._status.fetchers,
            ),
        )
        self._tell(outcome.state, Phase.DONE)
        if self._order.callback is not None:
            await webhooks.announce(self._news(self._order.callback, outcome))

    def _news(self, callback: Sealed, outcome: Outcome) -> WebhookOrder:
        """What the callback is told."""
        event = WebhookEvent(
            type=f"download.{outcome.state}",
            timestamp=workflow.now(),
            data=story.told(self._order, outcome, self._course.processings),
        )
        return WebhookOrder(
            delivery_id=webhooks.new_delivery_id(),
            project_id=self._order.project_id,
            task_id=self._order.task_id,
            url=callback,
            event=event,
        )

    async def _is_retried(self, outcome: Outcome) -> bool:
        """Wait for a retry as long as what is staged may be used; then it goes."""
        if outcome.fault is None or not outcome.fault.retryable:
            return False
        window = timedelta(seconds=self._order.resume_window_seconds)
        try:
            await workflow.wait_condition(lambda: self._is_retry_wanted, timeout=window)
        except (TimeoutError, asyncio.CancelledError):
            await _regardless(self._discard())
            return False
        self._is_retry_wanted = False
        self._course.began, self._course.reruns = workflow.now(), 0
        return True

    def _failed(self, fault: FaultRecord) -> Outcome:
        self._status.fault = fault
        return Outcome(state=State.FAILED, fault=fault, total=self._status.total)

    async def _discard(self) -> None:
        if not self._status.state.final:
            self._tell(State.RUNNING, Phase.CLEANING)
        await self._step(DownloadSteps.discard, self._order)

    async def _step(self, method: Callable[[DownloadSteps, Argument], Awaitable[None]], argument: Argument) -> None:
        await workflow.execute_activity_method(
            method,
            argument,
            start_to_close_timeout=_STEP_SECONDS,
            retry_policy=_PATIENTLY,
            # What is told of a cancelled download must not come after its end.
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    def _tell_rows(self, rows: int, under_way: dict[int, int]) -> None:
        self._status.rows, self._status.under_way = rows, under_way
        self._tell(State.RUNNING, Phase.FETCHING)

    def _tell(self, state: State, phase: Phase) -> None:
        """Show a change of state or phase in the memo (which the API reads), the search attributes and the Web UI."""
        is_new_state = self._status.state is not state
        self._status.state, self._status.phase = state, phase
        workflow.upsert_memo({STATUS_MEMO: self._status})
        if is_new_state:
            workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        total = "" if self._status.total is None else f" of {self._status.total:,}"
        workflow.set_current_details(
            f"**{state}** ({state.label}), {phase}: {self._status.rows:,}{total} rows, {self._order.file_name}"
        )


def _has_succeeded(processing: asyncio.Task[Outcome]) -> bool:
    """Whether it came to a good end while it was being stopped."""
    if processing.cancelled() or processing.exception() is not None:
        return False
    return processing.result().state is State.SUCCEEDED


async def _regardless(step: Coroutine[Any, Any, None]) -> None:
    """See a step to its end, whoever cancels the workflow meanwhile."""
    task = asyncio.create_task(step)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()


def _took_too_long(seconds: int) -> FaultRecord:
    return FaultRecord(
        code="max_exec_time",
        message=f"The download was not done within {seconds:,} s, its `max_exec_time`.",
        hint="Ask for less, give it more time, or retry soon: what is fetched already is kept for a while.",
        retryable=True,
    )


def _columns_keep_changing(names: list[str]) -> FaultRecord:
    return FaultRecord(
        code="source_columns_changing",
        message=f"New keys keep turning up at every reading of the source; at last: {', '.join(names[:20])}.",
        hint="Give every row the same keys, with null where there is no value.",
    )

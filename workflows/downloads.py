"""The plan of a download: record, probe, fetch in parallel, assemble, finish. A user's fault is a result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.steps import DownloadSteps
    from domain.downloads import plan
    from domain.downloads.plan import PageRange
    from domain.downloads.request import DownloadOrder
    from domain.downloads.staging import StagingError
    from domain.downloads.status import Outcome, Phase, State, Status, StoredFile
    from domain.downloads.steps import AssembleOrder, FetchOrder, FinishOrder, Probe, RangeDone
    from infra import temporal
    from workflows.outcomes import fault_of, is_type

Argument = TypeVar("Argument")

FETCH_QUEUE = "downloads-fetch"
QUEUE = "downloads"
STATUS_MEMO = "status"
NAME_MEMO = "file_name"

_PATIENTLY = RetryPolicy(initial_interval=timedelta(seconds=0.5), maximum_interval=timedelta(seconds=15))
_STRICTLY = replace(_PATIENTLY, non_retryable_error_types=[StagingError.__name__])
_STEP_SECONDS = timedelta(seconds=30)
# Probing retries a page by itself for up to half a minute of pauses, each answer taking its time.
_PROBE_SECONDS = timedelta(minutes=10)
_FETCH_SECONDS = timedelta(hours=12)
_HEARTBEAT_SECONDS = timedelta(seconds=5)


def workflow_id(project_id: str, task_id: str) -> str:
    """The id of a download's workflow; it names the project, so that no other project can name the workflow."""
    return f"download:{project_id}:{task_id}"


@workflow.defn
class DownloadWorkflow:
    """One download, from the request to the file or the fault."""

    @workflow.init
    def __init__(self, order: DownloadOrder) -> None:
        self._order = order
        self._status = Status()

    @workflow.run
    async def run(self, order: DownloadOrder) -> Outcome:
        """Read this as the story."""
        self._tell(State.RUNNING, Phase.WAITING)
        await self._step(DownloadSteps.record, order)
        try:
            outcome = Outcome(state=State.SUCCEEDED, file=await self._export(), total=self._status.total)
        except ActivityError as error:
            self._status.fault = fault_of(error)
            await self._clean()
            outcome = Outcome(state=State.FAILED, fault=self._status.fault, total=self._status.total)
        await self._step(DownloadSteps.finish, FinishOrder(order=order, outcome=outcome))
        self._tell(outcome.state, Phase.DONE)
        return outcome

    @workflow.query
    def status(self) -> Status:
        """Where the download stands."""
        return self._status

    async def _export(self) -> StoredFile:
        """By the plan; where what was staged makes no valid file, once more from the start with one fetcher."""
        try:
            return await self._process(plan.MAX_FETCHERS)
        except ActivityError as error:
            if not is_type(error, StagingError.__name__):
                raise
        await self._clean()
        return await self._process(1)

    async def _process(self, fetchers_max: int) -> StoredFile:
        self._tell(State.RUNNING, Phase.PROBING)
        probe = await workflow.execute_activity_method(
            DownloadSteps.probe,
            self._order,
            start_to_close_timeout=_PROBE_SECONDS,
            retry_policy=_PATIENTLY,
            summary="ask the source for its total and columns",
        )
        count = min(fetchers_max, plan.fetchers(probe.total, self._order.page_size))
        self._status.rows, self._status.total, self._status.fetchers = 0, probe.total, count
        self._tell(State.RUNNING, Phase.FETCHING)
        await self._fetch(probe, plan.ranges(probe.total, self._order.page_size, count))
        self._tell(State.RUNNING, Phase.ASSEMBLING)
        return await workflow.execute_activity_method(
            DownloadSteps.assemble,
            AssembleOrder(order=self._order, probe=probe, ranges=count),
            start_to_close_timeout=_FETCH_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_STRICTLY,
            summary=f"join {count} ranges into one file",
        )

    async def _clean(self) -> None:
        self._tell(State.RUNNING, Phase.CLEANING)
        await self._step(DownloadSteps.discard, self._order)

    async def _fetch(self, probe: Probe, ranges: list[PageRange]) -> None:
        """Fetch all ranges; the first that fails ends the others, and nothing of theirs runs on."""
        fetching = [asyncio.create_task(self._fetch_range(probe, pages)) for pages in ranges]
        try:
            for task in workflow.as_completed(fetching):
                self._status.rows += (await task).rows
                self._tell(State.RUNNING, Phase.FETCHING)
        except ActivityError:
            for task in fetching:
                task.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)
            raise

    async def _fetch_range(self, probe: Probe, pages: PageRange) -> RangeDone:
        return await workflow.execute_activity_method(
            DownloadSteps.fetch_range,
            FetchOrder(order=self._order, probe=probe, pages=pages),
            task_queue=FETCH_QUEUE,
            start_to_close_timeout=_FETCH_SECONDS,
            heartbeat_timeout=_HEARTBEAT_SECONDS,
            retry_policy=_STRICTLY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"pages {pages.first} to {pages.end - 1}",
        )

    async def _step(self, method: Callable[[DownloadSteps, Argument], Awaitable[None]], argument: Argument) -> None:
        await workflow.execute_activity_method(
            method,
            argument,
            start_to_close_timeout=_STEP_SECONDS,
            retry_policy=_PATIENTLY,
        )

    def _tell(self, state: State, phase: Phase) -> None:
        """Show a change of state or phase in the memo (which the API reads), the search attributes and the Web UI."""
        self._status.state, self._status.phase = state, phase
        workflow.upsert_memo({STATUS_MEMO: self._status})
        workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        total = "" if self._status.total is None else f" of {self._status.total:,} rows"
        workflow.set_current_details(f"**{state}**, {phase}{total}: {self._order.file_name}")

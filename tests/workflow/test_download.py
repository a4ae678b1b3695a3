"""The workflow of a download on a real engine, beside activities that the test answers for: retries and cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from domain.downloads import names
from domain.downloads.activity_models import (
    DownloadInput,
    FetchRangeInput,
    FetchRangeResult,
    ProbedSourcesOrWaitOrFile,
    ProbeInput,
    RecordEndInput,
    SourcesProbe,
    TableProbe,
)
from domain.downloads.models import DownloadResult, DownloadSpec, DownloadState, SealedRequestValues, StoredFile
from domain.downloads.plan import SourceExtent
from domain.downloads.retries import PageAttempts, RetryWait
from domain.downloads.shape import TableShape
from domain.faults import FaultRecord
from domain.secrets import SealedText
from infra import temporal
from infra.interceptors import FAULT_TYPE
from tests.support.waiting import eventually
from workflows.downloads import processing
from workflows.downloads.download import DownloadWorkflow

pytestmark = pytest.mark.stack

SPEC = DownloadSpec(task_id="t", project_id="p", file_name="f.csv", max_exec_seconds=600, resume_window_seconds=60)
SOURCES = SourcesProbe(
    tables=[TableProbe(extent=SourceExtent(total=1, page_size=1), shape=TableShape(columns=["a"]), row_bytes=1)]
)
FILE = StoredFile(key="k", name="f.csv", rows=1, bytes=1, etag="e")
FAULT = FaultRecord(code="source_status", message="It answered 404.")
MADE = ProbedSourcesOrWaitOrFile(sources=SOURCES, file=FILE)


class Steps:
    """The activities: each probe answers as the test says, a fetcher hangs until it is cancelled."""

    def __init__(self, *probes: Callable[[], ProbedSourcesOrWaitOrFile], wait: RetryWait | None = None) -> None:
        self._answers = list(probes)
        self.wait = wait
        self.probes: list[int] = []
        self.specs: list[DownloadSpec] = []
        self.ends: list[DownloadState] = []
        self.discards = 0
        self.hung = self.was_told_to_stop = False
        self.may_probe, self.may_discard, self.may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.may_end = asyncio.Event()
        for each in (self.may_probe, self.may_discard, self.may_stop, self.may_end):
            each.set()

    @activity.defn(name="download_probe")
    async def probe(self, ask: ProbeInput) -> ProbedSourcesOrWaitOrFile:
        """Answer as the test says."""
        self.probes.append(ask.times_processed)
        self.specs.append(ask.spec)
        await self.may_probe.wait()
        return self._answers.pop(0)()

    @activity.defn(name="download_fetch_range")
    async def fetch_range(self, fetch: FetchRangeInput) -> FetchRangeResult:
        """Ask for a pause, or hang until it is cancelled, and end only when the test says so."""
        if self.wait is not None:
            return FetchRangeResult(number=0, rows=0, done=False, wait=self.wait)
        self.hung = True
        try:
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.1)
        finally:
            self.was_told_to_stop = True
            while not self.may_stop.is_set():
                activity.heartbeat()
                await asyncio.sleep(0.1)

    @activity.defn(name="download_discard")
    async def discard(self, spec: DownloadSpec) -> None:
        """Delete what is staged."""
        self.discards += 1
        while not self.may_discard.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.05)

    @activity.defn(name="download_finish")
    async def finish(self, end: RecordEndInput) -> None:
        """Record the end."""
        self.ends.append(end.outcome.state)
        await self.may_end.wait()


def fail() -> ProbedSourcesOrWaitOrFile:
    raise ApplicationError(FAULT.message, FAULT, type=FAULT_TYPE, non_retryable=True)


@asynccontextmanager
async def running(steps: Steps, **changes: Any) -> AsyncIterator[WorkflowHandle[DownloadWorkflow, DownloadResult]]:
    """Start a download, beside a worker for it."""
    engine = await temporal.connect()
    often: Any = {
        "max_heartbeat_throttle_interval": timedelta(seconds=0.1),
        "default_heartbeat_throttle_interval": timedelta(seconds=0.1),
    }
    own: list[Any] = [steps.probe, steps.discard, steps.finish]
    workflows = Worker(engine, task_queue=names.QUEUE, workflows=[DownloadWorkflow], activities=own, **often)
    fetchers = Worker(engine, task_queue=names.FETCH_QUEUE, activities=[steps.fetch_range], **often)
    async with workflows, fetchers:
        yield await engine.start_workflow(
            DownloadWorkflow.run,
            DownloadInput(spec=SPEC.model_copy(update=changes)),
            id=names.build_download_workflow_id("p", "t"),
            task_queue=names.QUEUE,
        )


async def test_a_retry_that_comes_while_the_staged_rows_are_deleted_is_done(namespace: str) -> None:
    """It was accepted: the download is processed once more, from nothing."""
    steps = Steps(fail, lambda: MADE)
    steps.may_discard.clear()
    async with running(steps, resume_window_seconds=1) as handle:
        await eventually(lambda: steps.discards)
        await handle.signal(DownloadWorkflow.retry)
        steps.may_discard.set()
        outcome = await handle.result()

    assert outcome.state is DownloadState.SUCCEEDED
    assert steps.ends == [DownloadState.FAILED, DownloadState.SUCCEEDED]


async def test_a_retry_that_comes_twice_is_done_once(namespace: str) -> None:
    """The second signal is of the failure before: the next failure waits to be retried by a person."""
    steps = Steps(fail, fail)
    steps.may_end.clear()
    async with running(steps, resume_window_seconds=2) as handle:
        await eventually(lambda: steps.ends)
        steps.may_probe.clear()
        await handle.signal(DownloadWorkflow.retry)
        steps.may_end.set()
        await eventually(lambda: len(steps.probes) == 2)
        await handle.signal(DownloadWorkflow.retry)
        steps.may_probe.set()
        outcome = await handle.result()

    assert outcome.state is DownloadState.FAILED
    assert steps.ends == [DownloadState.FAILED] * 2


async def test_a_retry_is_cancelled_with_the_failed_download_that_it_is_of(namespace: str) -> None:
    """Also where both come while the failure is recorded: nothing begins again behind the cancellation."""
    steps = Steps(fail)
    steps.may_end.clear()
    async with running(steps, resume_window_seconds=2) as handle:
        await eventually(lambda: steps.ends)
        await handle.signal(DownloadWorkflow.retry)
        await handle.cancel()
        await asyncio.sleep(0.5)
        steps.may_end.set()
        outcome = await handle.result()

    assert outcome.state is DownloadState.FAILED
    assert (steps.probes, steps.ends, steps.discards) == ([1], [DownloadState.FAILED], 1)


async def test_a_cancellation_while_its_time_limit_ends_it_is_no_failure(namespace: str) -> None:
    """It is cancelled as was asked, however long the fetchers take to stop."""
    steps = Steps(lambda: ProbedSourcesOrWaitOrFile(sources=SOURCES))
    steps.may_stop.clear()
    async with running(steps, max_exec_seconds=3) as handle:
        await eventually(lambda: steps.hung)
        await eventually(lambda: steps.was_told_to_stop)  # its time is over; its fetcher goes on
        await handle.cancel()
        await asyncio.sleep(0.5)
        steps.may_stop.set()
        outcome = await handle.result()

    assert outcome.state is DownloadState.CANCELLED
    assert (steps.ends, steps.discards) == ([DownloadState.CANCELLED], 1)


async def test_a_retry_of_what_took_too_long_probes_the_source_again(namespace: str) -> None:
    """Also where it waited for a page: the probe writes into the row that it runs, and notices a changed source."""
    wait = RetryWait(tries=PageAttempts(page=0, page_size=1, fault=FAULT), seconds=600)
    steps = Steps(lambda: ProbedSourcesOrWaitOrFile(sources=SOURCES), lambda: MADE, wait=wait)
    async with running(steps, max_exec_seconds=3) as handle:
        await eventually(lambda: steps.ends)
        await handle.signal(DownloadWorkflow.retry)
        outcome = await handle.result()

    assert outcome.state is DownloadState.SUCCEEDED
    assert steps.probes == [1, 2]


async def test_a_retry_has_the_secrets_as_they_are_sealed_now(namespace: str) -> None:
    """The run has them as they were when it began, and that key may be gone; its progress is kept."""
    stored = SealedRequestValues(source_url=SealedText(token="new"))
    steps = Steps(fail, lambda: MADE)
    async with running(steps, source_url=SealedText(token="old")) as handle:
        await eventually(lambda: steps.ends)
        await handle.signal(DownloadWorkflow.retry, stored)
        outcome = await handle.result()

    assert outcome.state is DownloadState.SUCCEEDED
    assert [spec.source_url and spec.source_url.token for spec in steps.specs] == ["old", "new"]
    assert steps.probes == [1, 2]


class ColumnsInEachRange(Steps):
    """Each range has a column that the first page has not; a second probe ends the download."""

    def __init__(self) -> None:
        shape, extent = TableShape(columns=["a"]), SourceExtent(total=1_000_000, page_size=100)
        wide = SourcesProbe(tables=[TableProbe(extent=extent, shape=shape, row_bytes=100)])
        super().__init__(lambda: ProbedSourcesOrWaitOrFile(sources=wide), lambda: MADE)
        self.columns: list[list[str]] = []
        self.fetched: list[int] = []

    @activity.defn(name="download_probe")
    async def probe(self, ask: ProbeInput) -> ProbedSourcesOrWaitOrFile:
        """Keep the columns that are asked for."""
        self.columns.append(ask.columns.get(0, []))
        return await super().probe(ask)

    @activity.defn(name="download_fetch_range")
    async def fetch_range(self, fetch: FetchRangeInput) -> FetchRangeResult:
        """Read the range to its end at once."""
        number = fetch.pages.number_among_all_tables
        self.fetched.append(number)
        return FetchRangeResult(number=number, rows=0, done=True, new_columns=[f"c{number}", "z"])


async def test_new_columns_are_carried_to_the_next_run(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that were read for them are not read again by a run that continues another, and never ends so."""
    monkeypatch.setattr(processing, "is_run_long", lambda: workflow.info().get_current_history_length() > 30)
    steps = ColumnsInEachRange()
    async with running(steps) as handle:
        outcome = await handle.result()
        first = await handle.describe()

    assert outcome.state is DownloadState.SUCCEEDED
    assert first.run_id != handle.first_execution_run_id, "the run has to continue as new"
    assert sorted(steps.fetched) == [*range(len(steps.fetched))]
    assert steps.columns == [[], ["c0", "z", *(f"c{number}" for number in range(1, len(steps.fetched)))]]

"""The workflow of a download: probe, fetch, assemble, render and finish, and process again where that may help.

A user's fault is a result. A failed download waits for a retry as long as its staged rows may still be used.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from activities.downloads.activities import DownloadActivities
    from domain.downloads import models, plan
    from domain.downloads import names as downloads_names
    from domain.downloads.activity_models import (
        DownloadInput,
        DownloadStateCarriedToNextRun,
        ProbedSourcesOrWaitOrFile,
        ProbeInput,
        RecordEndInput,
        SourcesProbe,
        TableProbe,
    )
    from domain.downloads.models import (
        DownloadPhase,
        DownloadResult,
        DownloadState,
        DownloadStatus,
        DownloadTrouble,
        RangeFetcherProgress,
        SealedRequestValues,
        StoredFile,
    )
    from domain.downloads.plan import PageRange
    from domain.downloads.retries import (
        RetryWait,
        build_columns_changing_fault,
        build_time_limit_fault,
        replace_request_attempts,
    )
    from domain.downloads.staging import StagedPartsInvalid, StagedRowsTooOld
    from domain.faults import FaultRecord
    from domain.secrets import SealedText
    from domain.webhooks import WebhookDeliveryInput, WebhookEvent, WebhookEventSubject
    from infra import temporal
    from workflows import activity_calls
    from workflows.downloads.processing import (
        FileMaker,
        RangeFetchers,
        cancel_and_wait,
        finish_despite_cancellation,
    )
    from workflows.webhooks import delivery

WIDENINGS_MAX = 3
RESETS_MAX = 2
# After these faults staged rows may be wrong, so a retry must not resume from them.
_DISCARD_STAGED_ON = frozenset({"source_pages_repeat", "source_bad_total", "source_total_changed"})


class WorkflowFault(Exception):
    """Ends a processing with a fault that no activity raised."""

    def __init__(self, fault: FaultRecord) -> None:
        self.fault = fault
        super().__init__(fault.sentence)


@workflow.defn(name=downloads_names.DOWNLOAD_WORKFLOW)
class DownloadWorkflow:
    """Carry out one download, from the request to the file or the fault."""

    @workflow.init
    def __init__(self, run: DownloadInput) -> None:
        self._spec = self._stored_spec = run.spec
        self._progress = run.progress or DownloadStateCarriedToNextRun(began=workflow.now())
        self._status = DownloadStatus()
        self._is_retry_wanted = False
        self._probed = ProbedSourcesOrWaitOrFile()
        self._file_maker = FileMaker(
            self._spec, self._progress, lambda phase: self._publish_status(DownloadState.RUNNING, phase)
        )
        self._fetchers = RangeFetchers(
            self._spec, self._progress, self._publish_rows, self._wait_for_retry, self._clear_trouble_if_current
        )

    @workflow.run
    async def run(self, run: DownloadInput) -> DownloadResult:
        """Process until the download succeeds, is cancelled, or fails without being retried in time."""
        while True:
            outcome = await self._process_within_deadline()
            self._is_retry_wanted = False  # what came while it ran was of the failure before
            is_cancelled = await finish_despite_cancellation(self._record_end_and_notify(outcome))
            if is_cancelled:
                self._is_retry_wanted = False  # what came while the end was recorded is cancelled with it
            if outcome.state is not DownloadState.FAILED:
                return outcome
            if is_cancelled or not await self._wait_for_user_retry():
                await finish_despite_cancellation(self._delete_unfinished_data())
                if self._is_retry_wanted:
                    # Accepted meanwhile. A run that was cancelled once could not be cancelled again.
                    workflow.continue_as_new(DownloadInput(spec=self._stored_spec))
                return outcome
            self._progress.begin_again(workflow.now())
            if self._stored_spec != self._spec:
                workflow.continue_as_new(DownloadInput(spec=self._stored_spec, progress=self._progress))

    @workflow.query
    def status(self) -> DownloadStatus:
        """Return the current status."""
        return self._status

    @workflow.signal
    def retry(self, stored: SealedRequestValues | None = None) -> None:
        """Process a failed download again, resuming from staged rows where they may still be used.

        Args:
            stored: The sealed values as they are stored now: the key of those in the input of this run may be gone.
        """
        self._is_retry_wanted = True
        if stored is not None:
            self._stored_spec = self._spec.model_copy(update=dict(stored))

    async def _process_within_deadline(self) -> DownloadResult:
        """Process within `max_exec_seconds`. On a timeout the download fails; on a cancellation its staged rows are
        removed."""
        processing = asyncio.create_task(self._process_until_done())
        deadline = self._progress.began + timedelta(seconds=self._spec.max_exec_seconds)
        try:
            await workflow.wait([processing], timeout=max(0.0, (deadline - workflow.now()).total_seconds()))
            if processing.done():
                return processing.result()
            trouble = self._status.trouble
            if await cancel_and_wait(processing):
                raise asyncio.CancelledError
            if _has_succeeded(processing):
                return processing.result()
            return self._set_fault_and_build_result(build_time_limit_fault(self._spec.max_exec_seconds, trouble))
        except asyncio.CancelledError:
            await cancel_and_wait(processing)
            await finish_despite_cancellation(self._delete_unfinished_data())
            return DownloadResult(state=DownloadState.CANCELLED, total=self._status.total)

    async def _process_until_done(self) -> DownloadResult:
        """Process until success or a final fault; after a fault that may pass, process again after a growing pause."""
        while True:
            try:
                return DownloadResult(
                    state=DownloadState.SUCCEEDED, file=await self._probe_and_make_file(), total=self._status.total
                )
            except ActivityError as error:
                fault = activity_calls.build_fault(error)
            except WorkflowFault as error:
                fault = error.fault
            self._progress.is_fetching = False
            if fault.code in _DISCARD_STAGED_ON:
                self._progress.sources = None
                await self._delete_unfinished_data()
            if not self._may_rerun_after_fault(fault):
                return self._set_fault_and_build_result(fault)
            pause = self._spec.rerun_pause_seconds * 2**self._progress.reruns
            self._progress.reruns += 1
            await self._show_trouble_and_sleep(_build_trouble(fault, self._progress.reruns, pause), pause)

    def _may_rerun_after_fault(self, fault: FaultRecord) -> bool:
        """Return whether the fault may pass, the source was readable before, and reruns are left."""
        is_unprobed = self._progress.sources is None
        return fault.retryable and not is_unprobed and self._progress.reruns < self._spec.max_task_retries

    async def _wait_for_retry(self, wait: RetryWait) -> DownloadTrouble | None:
        """Sleep until a page is to be requested again. Return the trouble that is shown until the page has arrived."""
        fault = wait.tries.fault
        if fault is None:
            return None
        trouble = _build_trouble(fault, wait.tries.total_attempts, wait.seconds)
        await self._show_trouble_and_sleep(trouble, wait.seconds)
        return trouble

    def _clear_trouble_if_current(self, trouble: DownloadTrouble | None) -> None:
        """Remove a trouble from the status, if it is still the one shown."""
        if self._status.trouble is trouble:
            self._status.trouble = None

    async def _show_trouble_and_sleep(self, trouble: DownloadTrouble, seconds: float) -> None:
        """Sleep, and show the trouble in the status until the next attempt has ended."""
        self._status.trouble = trouble
        self._publish_status(DownloadState.RUNNING, DownloadPhase.PAUSING)
        try:
            await workflow.sleep(seconds)
        finally:
            if self._status.trouble is trouble:
                self._publish_status(
                    DownloadState.RUNNING,
                    DownloadPhase.FETCHING if self._progress.is_fetching else DownloadPhase.PROBING,
                )

    async def _probe_and_make_file(self) -> StoredFile:
        """Process once, and start over from nothing where an error or new columns require it."""
        while True:
            sources, ranges = await self._probe_unless_fetching()
            if self._probed.file is not None:
                return self._probed.file
            try:
                new_columns = await self._fetchers.fetch_all_and_get_new_columns(
                    sources, ranges, self._status.fetchers, self._probed.wait
                )
                if not new_columns:
                    return await self._file_maker.make_file(sources, ranges)
                self._add_late_columns_or_raise_if_too_often(new_columns)
            except ActivityError as error:
                if not self._adjust_progress_if_restart_may_help(error):
                    raise
            self._progress.is_fetching, self._progress.sources = False, None
            await self._delete_unfinished_data()

    async def _probe_unless_fetching(self) -> tuple[SourcesProbe, list[list[PageRange]]]:
        """Return the probed sources and the ranges of every table; probe unless this run continues an earlier one."""
        progress = self._progress
        if not progress.is_fetching or progress.sources is None:
            progress.times_processed += 1
            progress.done, progress.done_rows, progress.left_out, progress.warnings = [], 0, [], []
            progress.done_with_new_columns, progress.found_columns = [], {}
            count, trouble = progress.times_processed, self._status.trouble
            self._status = DownloadStatus(times_processed=count, started_at=workflow.now(), trouble=trouble)
            self._publish_status(DownloadState.RUNNING, DownloadPhase.PROBING)
            progress.sources = await self._probe_sources()
            progress.is_fetching = True
        self._status.total = progress.sources.total_rows
        self._status.times_processed, self._status.started_at = progress.times_processed, progress.began
        ranges = [self._plan_ranges(table, probe) for table, probe in enumerate(progress.sources.tables)]
        self._status.fetchers = max(self._count_fetchers(probe) for probe in progress.sources.tables)
        return progress.sources, ranges

    async def _probe_sources(self) -> SourcesProbe:
        """Probe the sources, and wait and probe again as long as they ask for it."""
        ask = ProbeInput(
            spec=self._spec,
            earlier=self._progress.sources,
            columns=self._progress.new_columns,
            single_fetcher=self._progress.single_fetcher,
            page_size_max=self._progress.page_size_max,
            times_processed=self._progress.times_processed,
        )
        while True:
            looked = await workflow.execute_activity_method(
                DownloadActivities.probe_and_begin_uploads_or_make_small_file,
                ask,
                **activity_calls.SOURCE_READING,
                # The activity begins an upload: nothing may be deleted before it has ended.
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary="ask the source for its total and columns",
            )
            if looked.sources is not None:
                self._probed, self._status.trouble = looked, None
                self._status.rows = looked.file.rows if looked.file else 0
                return looked.sources
            if looked.wait is not None:
                await self._wait_for_retry(looked.wait)
                ask = ask.model_copy(update={"tries": replace_request_attempts(ask.tries, looked.wait.tries)})

    def _count_fetchers(self, probe: TableProbe) -> int:
        return (
            1
            if self._progress.single_fetcher
            else plan.choose_fetcher_count(probe.extent.total, probe.extent.page_size)
        )

    def _plan_ranges(self, table: int, probe: TableProbe) -> list[PageRange]:
        extent = probe.extent
        count = probe.books or plan.choose_range_count(extent.total, probe.row_bytes, self._count_fetchers(probe))
        return plan.plan_ranges(extent.total, extent.page_size, count, table)

    def _add_late_columns_or_raise_if_too_often(self, new_columns: dict[int, list[str]]) -> None:
        """Add columns that appeared late to those of the first page; all rows are then read again with them."""
        for table, names in new_columns.items():
            known = self._progress.new_columns.setdefault(table, [])
            known += [name for name in names if name not in known]
        self._progress.column_additions += 1
        if self._progress.column_additions > WIDENINGS_MAX:
            raise WorkflowFault(
                build_columns_changing_fault([name for names in new_columns.values() for name in names])
            )

    def _adjust_progress_if_restart_may_help(self, error: ActivityError) -> bool:
        """Return whether starting over from nothing may mend the error, and note what to do differently."""
        if activity_calls.has_error_type(error, StagedPartsInvalid.__name__) and not self._progress.single_fetcher:
            self._progress.single_fetcher = True
            return True
        if activity_calls.has_error_type(error, StagedRowsTooOld.__name__):
            self._progress.expirations += 1
            return True
        progress = activity_calls.read_fault_note(error, RangeFetcherProgress)
        # At most once, since starting over reads all rows again.
        if progress is not None and progress.smaller_page_size is not None and self._progress.page_size_max is None:
            self._progress.page_size_max = progress.smaller_page_size
            return True
        if activity_calls.build_fault(error).code == "source_total_changed" and self._progress.resets < RESETS_MAX:
            self._progress.resets += 1
            return True
        return False

    async def _record_end_and_notify(self, outcome: DownloadResult) -> None:
        end = RecordEndInput(
            spec=self._spec,
            outcome=outcome,
            times_processed=self._progress.times_processed,
            fetchers=self._status.fetchers,
            rows=self._status.rows,
        )
        if self._probed.file is None:
            await workflow.execute_activity_method(
                DownloadActivities.record_end_release_slots_and_delete_inline_rows,
                end,
                **activity_calls.SHORT_ACTIVITY,
                # Nothing may be written about a cancelled download after it has ended.
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        else:
            # A local activity costs the engine one task less.
            await workflow.execute_local_activity_method(
                DownloadActivities.record_end_release_slots_and_delete_inline_rows,
                end,
                **activity_calls.SHORT_ACTIVITY,
                cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        self._publish_status(outcome.state, DownloadPhase.DONE)
        if self._spec.callback is not None:
            await delivery.start_delivery(self._build_webhook(self._spec.callback, outcome))

    def _build_webhook(self, callback: SealedText, outcome: DownloadResult) -> WebhookDeliveryInput:
        """Build the webhook that announces the result."""
        event = WebhookEvent(
            type=f"download.{outcome.state}",
            timestamp=workflow.now(),
            data=models.build_webhook_payload(self._spec, outcome, self._progress.times_processed),
        )
        return WebhookDeliveryInput(
            delivery_id=delivery.create_delivery_id(),
            project_id=self._spec.project_id,
            owner=WebhookEventSubject(system=downloads_names.SYSTEM, id=self._spec.task_id),
            url=callback,
            event=event,
        )

    async def _wait_for_user_retry(self) -> bool:
        """Wait for a retry signal within the resume window; return whether one came, and no cancellation behind it."""
        window = timedelta(seconds=self._spec.resume_window_seconds)
        try:
            await workflow.wait_condition(lambda: self._is_retry_wanted, timeout=window)
        except asyncio.CancelledError:
            self._is_retry_wanted = False
        except TimeoutError:
            pass
        return self._is_retry_wanted

    def _set_fault_and_build_result(self, fault: FaultRecord) -> DownloadResult:
        self._status.fault, self._status.trouble = fault, None
        return DownloadResult(state=DownloadState.FAILED, fault=fault, total=self._status.total)

    async def _delete_unfinished_data(self) -> None:
        if not self._status.state.is_final:
            self._publish_status(DownloadState.RUNNING, DownloadPhase.CLEANING)
        await workflow.execute_activity_method(
            DownloadActivities.delete_unfinished,
            self._spec,
            **activity_calls.FILE_MAKING,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    def _publish_rows(self, rows: int, under_way: dict[int, int]) -> None:
        self._status.rows, self._status.under_way = rows, under_way
        self._publish_status(DownloadState.RUNNING, DownloadPhase.FETCHING)

    def _publish_status(self, state: DownloadState, phase: DownloadPhase) -> None:
        """Publish state and phase to the memo, which the API reads, the search attributes and the engine's web UI."""
        is_new_state = self._status.state is not state
        self._status.state, self._status.phase = state, phase
        workflow.upsert_memo({downloads_names.STATUS_MEMO: self._status})
        if is_new_state:
            workflow.upsert_search_attributes([temporal.STATE.value_set(state)])
        total = "" if self._status.total is None else f" of {self._status.total:,}"
        workflow.set_current_details(
            f"**{state}** ({state.chinese_label}), {phase}: {self._status.rows:,}{total} rows, {self._spec.file_name}"
        )


def _has_succeeded(processing: asyncio.Task[DownloadResult]) -> bool:
    """Return whether a processing that was being cancelled succeeded nevertheless."""
    if processing.cancelled() or processing.exception() is not None:
        return False
    return processing.result().state is DownloadState.SUCCEEDED


def _build_trouble(fault: FaultRecord, attempts: int, seconds: float) -> DownloadTrouble:
    next_attempt_at = workflow.now() + timedelta(seconds=seconds)
    return DownloadTrouble(code=fault.code, message=fault.sentence, attempts=attempts, next_attempt_at=next_attempt_at)

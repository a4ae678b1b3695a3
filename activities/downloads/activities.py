"""The activities of downloads, each safe to repeat: the steps of one, from `record` to `finish`, and housekeeping."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from activities.downloads import assembly, books, probing, small_files
from activities.downloads.fetching import SLOW_PAGE_SECONDS, RangeFetcher
from activities.downloads.stager import BookRenderingStager, RangeStager, load_ledger_and_tail
from clients.sources import (
    SLOT_HELD_MAX_SECONDS,
    RequestRowsAsSinglePage,
    RetryingPageReader,
    RetryLater,
    SourceClient,
    open_source_address,
)
from domain.downloads import names, plan, sinks
from domain.downloads.activity_models import (
    AssembleInput,
    CombineBooksInput,
    FetchRangeInput,
    FetchRangeResult,
    FileOrSegments,
    ProbedSourcesOrWaitOrFile,
    ProbeInput,
    RecordEndInput,
    RemovedStagingCounts,
    RenderSegmentInput,
    SourcesProbe,
    TableProbe,
)
from domain.downloads.models import DownloadSpec, DownloadState, RangeFetcherProgress, StoredFile
from domain.downloads.retries import RUN_ENDED_FAULT, PageAttempts
from domain.downloads.staging import RenderedSegment, StagedPartsInvalid, StagedRowsTooOld
from domain.redaction import SecretRedactor
from infra import log, metrics, outages
from infra.heartbeats import require_current_attempt, send_heartbeats_during_block
from infra.housekeeping import remove_in_batches_within_time
from infra.limits import DatabaseLimiter
from infra.objects import ListedObject, ObjectMissing, StoreFailure, UploadMissing
from services.services import Services
from stores.downloads import catalogue, quotas

# Slices that begin together must not end together, or every waiting download waits for a whole slice.
SLICE_SHARE_MIN = 0.2
# A page may take a third of a worker's memory, so only one source at a time has large pages.
LARGE_PAGES_MAX = 1
EXPIRED_BATCH = 200
PURGE_BATCH = 1_000
ABANDONED_AFTER = timedelta(hours=24)
_TEMPORARY = (names.STAGING, names.INLINE)


class DownloadActivities:
    """The activities of downloads, with the clients that they use."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._objects = services.objects
        # Fetchers render books themselves; each takes a core and some memory.
        self._render_slots = asyncio.Semaphore(services.settings.worker.render_slots)
        self._large_pages = asyncio.Semaphore(LARGE_PAGES_MAX)
        self._small_files = asyncio.Semaphore(services.settings.worker.fetch_slots)

    @activity.defn(name="download_probe")
    async def probe_and_begin_uploads_or_make_small_file(self, request: ProbeInput) -> ProbedSourcesOrWaitOrFile:
        """Record in the catalogue that a processing begins, and probe the sources.

        Staged rows are kept if they may be used; otherwise they are deleted, and new uploads begin. A small file is
        made at once.
        """
        async with send_heartbeats_during_block():
            await require_current_attempt()
            await catalogue.record_processing_start(self._database, request.spec, request.times_processed)
            # Also for a retry, or for a start whose answer was lost.
            await quotas.take_active_slots_beyond_quota(self._database, request.spec)
            try:
                return await self._probe_and_resume_or_start_over(request)
            except RetryLater as later:
                return ProbedSourcesOrWaitOrFile(wait=later.wait)

    @activity.defn(name="download_fetch_range")
    async def fetch_range(self, fetch: FetchRangeInput) -> FetchRangeResult:
        """Stage pages of a range, resuming where an earlier attempt ended, until its end or the end of the slice."""
        spec, number = fetch.spec, fetch.pages.number_among_all_tables
        stagers: list[RangeStager] = []
        # They begin before the first look at the store, which may be slow.
        async with send_heartbeats_during_block(
            lambda: [RangeFetcherProgress(range=number, rows=stager.rows) for stager in stagers]
        ):
            # After the window old rows must not be mixed with new ones, whether the worker was killed or stopped.
            if (
                activity.info().attempt > 1 or fetch.checks_staging_age
            ) and await self._was_staged_within_resume_window_or_none(spec) is False:
                raise StagedRowsTooOld(f"nothing was staged for {spec.resume_window_seconds} s")
            with _convert_missing_to_staging_error():
                stager = await self._load_ledger_and_build_stager(fetch)
                stagers.append(stager)
                try:
                    source = self._build_page_reader_of_source_or_inline_rows(spec, fetch.tries)
                except RetryLater as later:
                    return FetchRangeResult(number=number, rows=stager.rows, done=False, wait=later.wait)
                with source.redact_faults_and_release_slot():
                    report = await RangeFetcher(source, stager, fetch).fetch_and_stage_until(
                        deadline=time.monotonic() + fetch.slice_seconds * random.uniform(SLICE_SHARE_MIN, 1)
                    )
        extent = fetch.probe.extent
        if report.done and not report.new_columns and extent.is_exact and not stager.has_gaps:
            expected = plan.count_rows_of_range(fetch.pages, extent.total or 0, extent.page_size)
            if report.rows != expected:
                raise StagedPartsInvalid(f"range {report.number} staged {report.rows} rows, not {expected}")
        return report

    @activity.defn(name="download_assemble")
    async def join_ranges_or_plan_books(self, assemble: AssembleInput) -> FileOrSegments:
        """Join the staged ranges into one object and write the manifest, or plan the books to render."""
        async with send_heartbeats_during_block():
            with _convert_missing_to_staging_error():
                return await assembly.join_ranges_or_plan_books(self._objects, assemble)

    @activity.defn(name="download_render")
    async def render_segment(self, render: RenderSegmentInput) -> RenderedSegment:
        """Render the books of a segment."""
        async with send_heartbeats_during_block():
            with _convert_missing_to_staging_error():
                return await books.render_segment(self._objects, render)

    @activity.defn(name="download_bind")
    async def combine_books(self, params: CombineBooksInput) -> StoredFile:
        """Combine the books into one file, and write its manifest last."""
        async with send_heartbeats_during_block():
            with _convert_missing_to_staging_error():
                return await books.combine_books(self._objects, params)

    @activity.defn(name="download_discard")
    async def delete_unfinished(self, spec: DownloadSpec) -> None:
        """Delete everything of an unfinished download from the object store."""
        async with send_heartbeats_during_block():
            await self._delete_objects_and_uploads(spec)

    @activity.defn(name="download_finish")
    async def record_end_release_slots_and_delete_inline_rows(self, finish: RecordEndInput) -> None:
        """Write the result into the catalogue, and notify the API."""
        await require_current_attempt()
        spec, file = finish.spec, finish.outcome.file
        # A failed download may still be retried with the rows that were sent along; housekeeping deletes them later.
        if finish.outcome.state is not DownloadState.FAILED:
            for key in spec.inline_keys:
                await self._objects.delete(key)
        # Before the notification: a caller who then starts the next download must find the slot free.
        await quotas.release_slots_and_count_file_size(
            self._database,
            spec.project_id,
            spec.operator_id,
            spec.task_id,
            file_bytes=file.bytes if file else 0,
            file_rows=file.rows if file else 0,
        )
        await catalogue.record_result_and_notify(self._database, finish)
        _count_and_log_end(finish)

    async def _probe_and_resume_or_start_over(self, request: ProbeInput) -> ProbedSourcesOrWaitOrFile:
        spec, earlier, began = request.spec, request.earlier, time.monotonic()
        tables = [await self._probe_table(request, table) for table in range(spec.table_count)]
        probes, drawing = [table.probe for table in tables], probing.replace_tables_by_probed(spec, tables)
        seconds = time.monotonic() - began
        is_slow = seconds > SLOW_PAGE_SECONDS
        books.require_rows_within_single_book(spec, drawing, probes)
        if (
            earlier
            and probing.have_sources_same_extent_and_first_rows(earlier.tables, probes)
            and await self._was_staged_within_resume_window_or_none(spec)
        ):
            return ProbedSourcesOrWaitOrFile(sources=earlier.model_copy(update={"resumed": True, "is_slow": is_slow}))
        if drawing is not None and not request.single_fetcher:
            probes[0].books = await books.count_books_rendered_by_fetchers(spec, drawing, probes[0], tables[0].sample)
        # An attempt that died after it began an upload left that behind.
        await self._delete_objects_and_uploads(spec)
        if drawing is not None:
            await self._objects.put(names.build_drawing_key(spec), drawing.model_dump_json().encode())
        small = None
        max_bytes = self._services.settings.downloads.small_file_max_bytes
        # The probe took two requests or more.
        if not self._small_files.locked() and small_files.is_small_enough_for_two_seconds(
            spec, probes, max_bytes, seconds / 2
        ):
            async with self._small_files:
                small = small_files.SmallFileMaker.create(self._objects, spec, probes[0])
                source = self._build_page_reader_of_source_or_inline_rows(spec, pause_max_seconds=0.0)
                if (file := await small.read_all_pages_and_store_file(source)) is not None:
                    return ProbedSourcesOrWaitOrFile(sources=SourcesProbe(tables=probes), file=file)
        sources = await self._begin_upload_of_each_table_or_archive(spec, probes)
        sources.is_slow = is_slow or (small is not None and small.is_slow)
        if small is not None:
            await small.stage_read_pages_for_fetchers(probes[0].upload_id)
        return ProbedSourcesOrWaitOrFile(sources=sources, wait=small.wait if small else None)

    async def _load_ledger_and_build_stager(self, fetch: FetchRangeInput) -> RangeStager:
        ledger, gathered = await load_ledger_and_tail(self._objects, fetch)
        if fetch.archive:
            return BookRenderingStager(self._objects, fetch, ledger, gathered, self._render_slots)
        return RangeStager(self._objects, fetch, ledger, gathered)

    def _build_page_reader_of_source_or_inline_rows(
        self, spec: DownloadSpec, tries: Sequence[PageAttempts] = (), pause_max_seconds: float = SLOT_HELD_MAX_SECONDS
    ) -> RetryingPageReader:
        """Open the source of a download, or the rows that were sent with it; raises RetryLater."""
        services, settings = self._services, self._services.settings.downloads
        if spec.inline_key is not None:
            inline = RequestRowsAsSinglePage(services.objects, spec.inline_key)
            return RetryingPageReader(settings, inline, pause_max_seconds=pause_max_seconds)
        url, headers = open_source_address(services.sealer, spec, tries)
        pages = SourceClient(services.http, services.gate, settings, url, headers, self._large_pages)
        redactor = SecretRedactor(url, headers)
        return RetryingPageReader(settings, pages, spec.first_page, redactor, spec.table, pause_max_seconds)

    async def _probe_table(self, request: ProbeInput, table: int) -> probing.ProbeWithDrawing:
        spec, more = request.spec, request.columns.get(table, [])
        drawing = spec.drawing.tables[table] if spec.drawing is not None else None
        of_table = spec.build_table_spec(table)
        return await probing.probe_table(
            self._build_page_reader_of_source_or_inline_rows(of_table, request.tries),
            of_table,
            drawing,
            more,
            request.tries,
            request.page_size_max,
        )

    async def _begin_upload_of_each_table_or_archive(
        self, spec: DownloadSpec, probes: list[TableProbe]
    ) -> SourcesProbe:
        """Begin the uploads for rows or books."""
        if probes[0].books:
            probes[0].upload_id = await books.abort_old_and_begin_archive_upload(self._objects, spec)
            return SourcesProbe(tables=probes, archive=probes[0].upload_id)
        for table, probe in enumerate(probes):
            of_table = spec.build_table_spec(table)
            probe.upload_id = await self._objects.begin_upload(
                names.build_joined_parts_key(of_table),
                content_type=sinks.build_sink(spec).content_type,
                metadata={"task": spec.task_id},
            )
        return SourcesProbe(tables=probes)

    async def _was_staged_within_resume_window_or_none(self, spec: DownloadSpec) -> bool | None:
        """Return whether rows were staged within the resume window; None if there are none."""
        staged = await self._objects.list(names.build_staging_prefix(spec))
        if not staged:
            return None
        window = timedelta(seconds=spec.resume_window_seconds)
        return datetime.now(UTC) - max(each.modified for each in staged) <= window

    async def _delete_objects_and_uploads(self, spec: DownloadSpec) -> None:
        await require_current_attempt()
        for prefix in (names.build_files_prefix(spec), names.build_staging_prefix(spec)):
            for upload in await self._objects.list_open_uploads(prefix):
                await self._objects.abort_upload(upload.key, upload.upload_id)
        await self._objects.delete_prefix(names.build_staging_prefix(spec))
        await self._objects.delete_prefix(names.build_files_prefix(spec))


class DownloadHousekeeping:
    """The activities that remove what is past its time."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._engine = services.engine
        kept_days = max(services.settings.downloads.rows_kept_days, services.settings.api.idempotency_kept_days)
        self._retention = timedelta(days=kept_days)

    @activity.defn(name=names.EXPIRE)
    async def remove_expired_files(self) -> int:
        """Remove expired files and mark them in the catalogue, in batches; return how many."""
        kept = set[str]()
        async with send_heartbeats_during_block():
            removed = await remove_in_batches_within_time(
                partial(self._delete_batch_of_expired_files, kept), EXPIRED_BATCH
            )
        return removed - len(kept)

    async def _delete_batch_of_expired_files(self, kept: set[str], limit: int) -> int:
        """Remove some expired files; add those that cannot be removed to `kept`, so that others are not held up."""
        rows = await catalogue.list_expired_downloads(self._database, limit, excluded=kept)
        for row in rows:
            try:
                spec = DownloadSpec.model_validate(row.request)
                await catalogue.delete_file_and_mark_expired(self._database, self._objects, spec)
            except (StoreFailure, ValidationError) as error:
                await self._objects.check_health()  # raises where not this file is the reason
                log.get(__name__).error("expired_file_not_removed", task_id=row.task_id, error=str(error))
                kept.add(row.task_id)
        return len(rows)

    @activity.defn(name=names.SWEEP)
    async def remove_abandoned_staging_and_old_rows(self) -> RemovedStagingCounts:
        """Remove staging and uploads that are a day old and whose workflow has ended, and rows past their retention."""
        async with send_heartbeats_during_block():
            return await self._remove_abandoned_staging_and_old_rows()

    async def _remove_abandoned_staging_and_old_rows(self) -> RemovedStagingCounts:
        await DatabaseLimiter(self._database).delete_expired_rows()
        ended = datetime.now(UTC) - self._retention
        await self._mark_downloads_without_run_as_failed()
        rows = await remove_in_batches_within_time(
            partial(catalogue.purge_rows_of_ended_downloads, self._database, ended), PURGE_BATCH
        )
        before = datetime.now(UTC) - ABANDONED_AFTER
        aborted = swept = 0
        for prefix in (names.FILES, names.STAGING):
            for upload in await self._objects.list_open_uploads(prefix):
                if upload.started < before and await self._is_of_ended_download(upload.key):
                    await self._objects.abort_upload(upload.key, upload.upload_id)
                    aborted += 1
        for prefix in _TEMPORARY:
            for task, newest in _find_newest_object_time_by_download(await self._objects.list(prefix)).items():
                if newest < before and await self._is_of_ended_download(task):
                    swept += await self._objects.delete_prefix(task)
        if aborted or swept:
            log.get(__name__).info("abandoned_staging_removed", uploads=aborted, objects=swept)
        if rows:
            log.get(__name__).info("download_rows_purged", rows=rows)
        return RemovedStagingCounts(uploads=aborted, objects=swept, rows=rows)

    async def _mark_downloads_without_run_as_failed(self) -> None:
        """End the rows of runs that were terminated: the engine forgets those, and nothing else would end them."""
        for row in await catalogue.list_unfinished_downloads(self._database, datetime.now(UTC) - ABANDONED_AFTER):
            if await self._has_ended(row.project_id, row.task_id):
                await catalogue.mark_unfinished_as_failed(self._database, row, RUN_ENDED_FAULT)

    async def _is_of_ended_download(self, key: str) -> bool:
        found = names.parse_download_of_key(key)
        return found is not None and await self._has_ended(*found)

    async def _has_ended(self, project_id: str, task_id: str) -> bool:
        """Return whether the workflow of a download does not run."""
        workflow_id = names.build_download_workflow_id(project_id, task_id)
        try:
            description = await self._engine.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if outages.is_workflow_or_schedule_missing(error):
                return True
            raise
        return description.status is not WorkflowExecutionStatus.RUNNING


def _count_and_log_end(finish: RecordEndInput) -> None:
    """Count the end of a download, and log it in one line."""
    spec, outcome = finish.spec, finish.outcome
    cause = outcome.fault.code if outcome.fault else ""
    metrics.DOWNLOADS_ENDED.labels(outcome.state, cause).inc()
    seconds = None if spec.created_at is None else (datetime.now(UTC) - spec.created_at).total_seconds()
    if seconds is not None:
        metrics.DOWNLOAD_SECONDS.labels(outcome.state).observe(seconds)
    log.get(__name__).info(
        "download_ended",
        project_id=spec.project_id,
        task_id=spec.task_id,
        type=spec.type,
        state=outcome.state,
        cause=cause or None,
        rows=outcome.file.rows if outcome.file else finish.rows,
        bytes=outcome.file.bytes if outcome.file else None,
        times_processed=finish.times_processed,
        fetchers=finish.fetchers,
        seconds=seconds,
    )


@contextmanager
def _convert_missing_to_staging_error() -> Iterator[None]:
    """Raise `StagedPartsInvalid` for a missing upload or object, which no retry brings back: it starts over."""
    try:
        yield
    except (UploadMissing, ObjectMissing) as error:
        raise StagedPartsInvalid(str(error)) from error


def _find_newest_object_time_by_download(listed: Iterable[ListedObject]) -> dict[str, datetime]:
    """Return, for each download with objects here, when the last of them was written."""
    newest: dict[str, datetime] = {}
    for each in listed:
        task = "/".join(each.key.split("/")[:3])
        newest[task] = max(each.modified, newest.get(task, each.modified))
    return newest

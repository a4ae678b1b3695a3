"""The steps of a download, each safe to repeat: record, probe, fetch a range, assemble, discard, finish."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities.downloads import catalogue
from activities.downloads.assembly import Assembly
from activities.downloads.fetching import Fetching
from activities.downloads.source import Source, source_of
from activities.downloads.stager import Stager
from domain.downloads import places, plan, sinks
from domain.downloads.pages import PageReader, first_look
from domain.downloads.plan import Extent
from domain.downloads.request import DownloadOrder
from domain.downloads.staging import StagingError, StagingExpired
from domain.downloads.status import FetchProgress, State, StoredFile
from domain.downloads.steps import AssembleOrder, FetchOrder, FinishOrder, Probe, ProbeOrder, RangeReport, RecordOrder
from domain.faults import SourceFault
from infra import quotas
from infra.heartbeats import beating
from infra.objects import ObjectMissing, UploadMissing
from infra.services import Services

COLUMNS_MAX = 2_000
COLUMN_NAMES_MAX_CHARACTERS = 100_000


class DownloadSteps:
    """The activities of the download room, with the clients they work with."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._objects = services.objects

    @activity.defn(name="download_record")
    async def record(self, record: RecordOrder) -> None:
        """Enter the download into the catalogue, or say that it is processed once more."""
        await catalogue.record(self._database, record)
        # However it was started: also by a retry, or by a start whose answer was lost.
        await quotas.hold_active(self._database, record.order)

    @activity.defn(name="download_probe")
    async def probe(self, ask: ProbeOrder) -> Probe:
        """Learn the total and the columns; keep what is staged if that is allowed, else open a new upload."""
        order, earlier = ask.order, ask.earlier
        async with beating():
            extent, columns, row_bytes = await self._look(order)
            columns += [name for name in ask.columns if name not in columns]
            _require_usable(columns)
            if earlier and (earlier.extent, earlier.columns) == (extent, columns) and await self._is_recent(order):
                return earlier.model_copy(update={"resumed": True})
            # An attempt that died after it opened an upload left it behind, too.
            await self._wipe(order)
            content_type = sinks.sink_for(order).content_type
            upload_id = await self._objects.begin_upload(
                places.upload(order), content_type=content_type, metadata={"task": order.task_id}
            )
            return Probe(extent=extent, columns=columns, row_bytes=row_bytes, upload_id=upload_id)

    @activity.defn(name="download_fetch_range")
    async def fetch_range(self, fetch: FetchOrder) -> RangeReport:
        """Stage pages of a range, going on from what is secured, until its end or until the slice of time is over."""
        order = fetch.order
        # Who comes back after the window must not mix old rows with new ones, be it killed or stopped in order.
        if (activity.info().attempt > 1 or fetch.minds_gaps) and await self._is_recent(order) is False:
            raise StagingExpired(f"nothing was staged for {order.resume_window_seconds} s")
        with _staging_lost():
            stager = await Stager.resume(self._objects, fetch)
            async with beating(lambda: [FetchProgress(range=fetch.pages.index, rows=stager.rows)]):
                report = await Fetching(self._source(order), stager, fetch).run(
                    until=time.monotonic() + fetch.slice_seconds
                )
        extent = fetch.probe.extent
        if report.done and not report.new_columns and extent.exact:
            expected = plan.rows_of_range(fetch.pages, extent.total or 0, extent.page_size)
            if report.rows != expected:
                raise StagingError(f"range {report.index} staged {report.rows} rows, not {expected}")
        return report

    @activity.defn(name="download_assemble")
    async def assemble(self, assemble: AssembleOrder) -> StoredFile:
        """Make the staged ranges one object, check it, and write its manifest last."""
        async with beating():
            with _staging_lost():
                file = await Assembly(self._objects, assemble).run()
            await self._objects.delete_prefix(places.staging(assemble.order))
            return file

    @activity.defn(name="download_discard")
    async def discard(self, order: DownloadOrder) -> None:
        """Leave nothing of an unfinished download in the store."""
        await self._wipe(order)

    @activity.defn(name="download_finish")
    async def finish(self, finish: FinishOrder) -> None:
        """Write the end into the catalogue and tell who listens."""
        order, file = finish.order, finish.outcome.file
        # A failed download may still be retried with the rows that came with it; those go with the next sweep.
        if order.inline_key is not None and finish.outcome.state is not State.FAILED:
            await self._objects.delete(order.inline_key)
        await catalogue.finish(self._database, finish)
        await quotas.release_active(
            self._database, order.project_id, order.operator_id, order.task_id, file_bytes=file.bytes if file else 0
        )

    def _source(self, order: DownloadOrder) -> Source:
        return source_of(self._services, order)

    async def _look(self, order: DownloadOrder) -> tuple[Extent, list[str], float]:
        """One row tells the total, the first page the columns and what a row weighs."""
        source = self._source(order)
        first = await source.read(0, 1, first_look)
        total = first.total
        if total == 0 and first.rows:
            raise SourceFault(
                "source_bad_total",
                f"The source tells a total of 0 and answers {first.rows} rows.",
                "Answer the number of all rows that match.",
            )
        if total is None or total > 1:
            first = await source.read(0, order.page_size, first_look)
        # Rows that came with the request are one page, whatever their number.
        page_size = order.page_size if order.inline_key is None else max(1, total or 0)
        extent = Extent(total=total, page_size=page_size, gaps_allowed=order.force_continue)
        encoded = sinks.sink_for(order).page(PageReader(first.columns).read(first.text).rows)
        return extent, first.columns, len(encoded) / max(1, first.rows)

    async def _is_recent(self, order: DownloadOrder) -> bool | None:
        """Whether what is staged was staged within the resume window; None where nothing is."""
        staged = await self._objects.list(places.staging(order))
        if not staged:
            return None
        window = timedelta(seconds=order.resume_window_seconds)
        return datetime.now(UTC) - max(each.modified for each in staged) <= window

    async def _wipe(self, order: DownloadOrder) -> None:
        for prefix in (places.files(order), places.staging(order)):
            for upload in await self._objects.list_uploads(prefix):
                await self._objects.abort(upload.key, upload.upload_id)
        await self._objects.delete_prefix(places.staging(order))
        await self._objects.delete_prefix(places.files(order))


def _require_usable(columns: list[str]) -> None:
    if len(columns) > COLUMNS_MAX or sum(map(len, columns)) > COLUMN_NAMES_MAX_CHARACTERS:
        raise SourceFault(
            "source_too_many_columns",
            f"The source's rows have {len(columns)} keys; at most {COLUMNS_MAX} are allowed, "
            f"{COLUMN_NAMES_MAX_CHARACTERS:,} characters in all.",
            "Answer only the fields that the file needs.",
        )


@contextmanager
def _staging_lost() -> Iterator[None]:
    """An upload or a staged object that is not there any more will not come back: the download starts again."""
    try:
        yield
    except (UploadMissing, ObjectMissing) as error:
        raise StagingError(str(error)) from error

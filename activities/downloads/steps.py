"""The steps of a download, each safe to repeat: record, probe, fetch a range, assemble, discard, finish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from temporalio import activity

from activities.downloads import catalogue
from activities.downloads.assembly import Assembly
from activities.downloads.source import Source
from activities.downloads.stager import Stager
from domain.downloads import csv, places
from domain.downloads.pages import Page, PageReader, columns_of
from domain.downloads.plan import rows_of_page, rows_of_range
from domain.downloads.request import DownloadOrder
from domain.downloads.staging import StagingError
from domain.downloads.status import FetchProgress, StoredFile
from domain.downloads.steps import AssembleOrder, FetchOrder, FinishOrder, Probe, RangeDone
from domain.faults import SourceFault
from infra.database import Database
from infra.http import GuardedClient
from infra.objects import ObjectMissing, ObjectStore, UploadMissing
from infra.sealing import Sealer
from infra.settings import DownloadSettings

HEARTBEAT_SECONDS = 1.0
COLUMNS_MAX = 2_000
COLUMN_NAMES_MAX_CHARACTERS = 100_000


class DownloadSteps:
    """The activities of the download room, with the clients they work with."""

    def __init__(
        self,
        database: Database,
        objects: ObjectStore,
        http: GuardedClient,
        sealer: Sealer,
        settings: DownloadSettings,
    ) -> None:
        self._database = database
        self._objects = objects
        self._http = http
        self._sealer = sealer
        self._settings = settings

    @activity.defn(name="download_record")
    async def record(self, order: DownloadOrder) -> None:
        """Enter the download into the catalogue."""
        await catalogue.record(self._database, order)

    @activity.defn(name="download_probe")
    async def probe(self, order: DownloadOrder) -> Probe:
        """Ask for one row to learn the total, and for the first page to learn the columns; open the upload."""
        source = self._source(order)
        total, columns = await source.read(0, 1, columns_of)
        if total > 1:
            total, columns = await source.read(0, order.page_size, columns_of)
        _require_usable(columns)
        # An attempt that died after it opened an upload left it behind.
        await self._wipe(order)
        upload_id = await self._objects.begin_upload(
            places.data(order), content_type=csv.CONTENT_TYPE, metadata={"task": order.task_id}
        )
        return Probe(total=total, columns=columns, upload_id=upload_id)

    @activity.defn(name="download_fetch_range")
    async def fetch_range(self, fetch: FetchOrder) -> RangeDone:
        """Stage every page of a range, going on from what an earlier attempt secured."""
        order, probe, pages = fetch.order, fetch.probe, fetch.pages
        with _staging_lost():
            stager = await Stager.resume(self._objects, order, probe.upload_id, pages)
            if pages.index == 0 and stager.fresh:
                stager.open_with(csv.head(probe.columns))
            async with _heartbeats(stager):
                async for page in self._pages(fetch, stager.next_page):
                    await stager.add(csv.lines(page.rows), len(page.rows))
                ledger = await stager.finish()
        expected = rows_of_range(pages, probe.total, order.page_size)
        if ledger.rows != expected:
            raise StagingError(f"range {pages.index} staged {ledger.rows} rows, not {expected}")
        return RangeDone(index=pages.index, rows=ledger.rows, bytes=stager.staged_bytes)

    @activity.defn(name="download_assemble")
    async def assemble(self, assemble: AssembleOrder) -> StoredFile:
        """Make the staged ranges one object, check it, and write its manifest last."""
        async with _heartbeats(None):
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
        await catalogue.finish(self._database, finish)

    def _source(self, order: DownloadOrder) -> Source:
        return Source(self._http, self._settings, self._sealer.open(order.source_url))

    async def _wipe(self, order: DownloadOrder) -> None:
        for upload in await self._objects.list_uploads(places.files(order)):
            await self._objects.abort(upload.key, upload.upload_id)
        await self._objects.delete_prefix(places.staging(order))
        await self._objects.delete_prefix(places.files(order))

    async def _pages(self, fetch: FetchOrder, first: int) -> AsyncIterator[Page]:
        """The pages of a range in order; while one is worked on, the next is on its way."""
        source, reader = self._source(fetch.order), PageReader(fetch.probe.columns)

        def ask(number: int) -> asyncio.Task[Page]:
            def parse(body: bytes) -> Page:
                return _checked(reader.read(body), number, fetch)

            return asyncio.create_task(source.read(number, fetch.order.page_size, parse))

        upcoming = ask(first) if first < fetch.pages.end else None
        try:
            for number in range(first + 1, fetch.pages.end + 1):
                page = await upcoming if upcoming else None
                upcoming = ask(number) if number < fetch.pages.end else None
                if page is not None:
                    yield page
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, SourceFault):
                    await upcoming


def _checked(page: Page, number: int, fetch: FetchOrder) -> Page:
    """A page is right when it tells the same total as before and holds exactly the rows that the total says."""
    total, page_size = fetch.probe.total, fetch.order.page_size
    if page.total != total:
        raise SourceFault(
            "source_total_changed",
            f"Page {number} told a total of {page.total}, the first page {total}.",
            "Start the download again, with filters that no new row can match (e.g. a closed period).",
            transient=True,
        )
    expected = rows_of_page(number, total, page_size)
    if len(page.rows) != expected:
        raise SourceFault(
            "source_page_size",
            f"Page {number} holds {len(page.rows)} rows; total {total} and page_size {page_size} ask for {expected}.",
            "Make the source honour `page` (from 0) and `page_size`, in a stable order.",
            transient=True,
        )
    return page


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


@asynccontextmanager
async def _heartbeats(stager: Stager | None) -> AsyncIterator[None]:
    """Say every second that we live and how far we are, while the body runs."""

    async def beat() -> None:
        while True:
            activity.heartbeat(FetchProgress(rows=stager.rows if stager else 0))
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

"""The steps of a download, called one by one, and a store at whose calls the caller dies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from temporalio.testing import ActivityEnvironment

from activities.downloads.activities import DownloadActivities
from domain.downloads import names, plan
from domain.downloads.activity_models import (
    AssembleInput,
    FetchRangeInput,
    ProbedSourcesOrWaitOrFile,
    ProbeInput,
    SourcesProbe,
)
from domain.downloads.models import DownloadSpec
from domain.downloads.plan import PageRange
from domain.downloads.staging import RangeLedger
from infra.objects import ObjectStore
from services.services import Services

PAGE_SIZE = 1_000


class Crash(BaseException):
    """The process is gone, as far as the step is concerned: nothing catches this."""


class CrashingStore:
    """A store that lets the caller die before or after one of its calls."""

    CALLS: tuple[str, ...] = ("put", "put_part", "delete", "get", "complete_upload", "head", "delete_prefix")

    def __init__(self, store: ObjectStore, at: int) -> None:
        # A call that is named otherwise now would let the caller live, and a test pass in which nothing crashed.
        assert [name for name in self.CALLS if not hasattr(store, name)] == []
        self._store = store
        self._left = at
        self.crashed = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self.CALLS:
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self._tick()
            result = await method(*args, **options)
            self._tick()
            return result

        return call

    def _tick(self) -> None:
        if not self.crashed and self._left == 0:
            self.crashed = True
            raise Crash
        self._left -= 1


class CrashAfterCompletion(CrashingStore):
    """A store whose caller dies between the completion of the upload and the manifest."""

    CALLS = ("complete_upload",)

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store, at=1)


def make_activities(held: Services, store: Any = None) -> DownloadActivities:
    return DownloadActivities(replace(held, objects=store) if store else held)


def build_spec(held: Services, url: str) -> DownloadSpec:
    return DownloadSpec(
        task_id="dl_test",
        project_id="prj_test",
        source_url=held.sealer.seal(url),
        file_name="x.csv",
        page_size=PAGE_SIZE,
    )


def build_fetch(
    spec: DownloadSpec, sources: SourcesProbe, pages: PageRange, ranges: int = 1, slice_seconds: float = 60.0
) -> FetchRangeInput:
    return FetchRangeInput(spec=spec, probe=sources.tables[0], pages=pages, ranges=ranges, slice_seconds=slice_seconds)


async def fetch_all(
    doing: DownloadActivities, spec: DownloadSpec, sources: SourcesProbe, ranges: list[PageRange]
) -> None:
    for pages in ranges:
        await ActivityEnvironment().run(doing.fetch_range, build_fetch(spec, sources, pages, len(ranges)))


async def probe(doing: DownloadActivities, ask: ProbeInput) -> SourcesProbe:
    looked: ProbedSourcesOrWaitOrFile = await ActivityEnvironment().run(
        doing.probe_and_begin_uploads_or_make_small_file, ask
    )
    assert looked.sources is not None
    return looked.sources


async def assemble(doing: DownloadActivities, spec: DownloadSpec, sources: SourcesProbe, ranges: int) -> None:
    extent = sources.tables[0].extent
    firsts = [pages.first for pages in plan.plan_ranges(extent.total, extent.page_size, ranges)]
    whole = AssembleInput(spec=spec, sources=sources, ranges=[ranges], pages=[firsts])
    await ActivityEnvironment().run(doing.join_ranges_or_plan_books, whole)


async def probe_source(held: Services, spec: DownloadSpec) -> SourcesProbe:
    return await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))


async def read_ledger(held: Services, spec: DownloadSpec) -> RangeLedger:
    return RangeLedger.model_validate_json(await held.objects.get(names.build_range_ledger_key(spec, 0)))

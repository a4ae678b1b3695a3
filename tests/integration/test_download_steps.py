"""The steps of a download one by one, on the real store and source, broken off at every point where they can be."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.downloads.stager import RangeStager
from domain.downloads import names, plan, staging
from domain.downloads.activity_models import (
    FetchRangeResult,
    ProbedSourcesOrWaitOrFile,
    ProbeInput,
    RecordEndInput,
)
from domain.downloads.models import DownloadResult, DownloadSpec, DownloadState
from domain.downloads.plan import PageRange
from domain.downloads.staging import RangeLedger, StagedPartsInvalid, StagedRowsTooOld
from domain.faults import FaultRecord
from infra.objects import ObjectMissing
from infra.settings import DownloadSettings, Settings
from services import services
from services.services import Services
from sims.source import Source, running_source
from stores.downloads import catalogue
from tests.support.download_steps import (
    PAGE_SIZE,
    Crash,
    CrashAfterCompletion,
    CrashingStore,
    assemble,
    build_fetch,
    build_spec,
    fetch_all,
    make_activities,
    probe,
    probe_source,
    read_ledger,
)
from tests.support.downloads import expected_rows, parse_csv
from tests.support.waiting import eventually

SEED = 9


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    """The sample source."""
    async with running_source() as running:
        yield running


@pytest.fixture
async def held(settings: Settings, source: Source) -> AsyncIterator[Services]:
    """The clients, with the guard open for the sample source; also small files are made step by step."""
    guard = settings.guard.model_copy(update={"allow": [source.base.removeprefix("http://")]})
    downloads = settings.downloads.model_copy(update={"small_file_max_bytes": 0})
    async with services.open_services(settings.model_copy(update={"guard": guard, "downloads": downloads})) as opened:
        yield opened


async def test_resume_goes_on_where_the_ledger_ends(
    held: Services, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range that broke off after a part goes on with the page after it, and asks for no earlier page again."""
    # A machine that takes long for a part would secure pages in between, and the calls would be others.
    monkeypatch.setattr("activities.downloads.stager.SECURE_EVERY_SECONDS", math.inf)
    rows = 260_000  # about 30 MB: three parts
    spec = build_spec(held, source.url(rows=rows, seed=SEED))
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    pages = PageRange(index=0, first=0, end=plan.count_pages(rows, PAGE_SIZE))
    fetch = build_fetch(spec, sources, pages, slice_seconds=math.inf)

    store = CrashingStore(held.objects, at=6)  # within the second part's upload
    with pytest.raises(Crash):
        await ActivityEnvironment().run(make_activities(held, store).fetch_range, fetch)
    ledger = RangeLedger.model_validate_json(await held.objects.get(names.build_range_ledger_key(spec, 0)))
    before = dict(source.requests(page_size=PAGE_SIZE))
    await ActivityEnvironment().run(make_activities(held).fetch_range, fetch)
    await assemble(make_activities(held), spec, sources, 1)

    asked_again = {page for page, count in source.requests(page_size=PAGE_SIZE).items() if count > before.get(page, 0)}
    assert len(ledger.parts) == 1
    assert ledger.next_page > 0
    # The last page is full: only the one behind it shows that it is the last.
    assert asked_again == set(range(ledger.next_page, plan.count_pages(rows, PAGE_SIZE) + 1))
    assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(rows))


@pytest.mark.long
async def test_every_crash_point_is_survived(held: Services, source: Source) -> None:
    """Die before and after every call of the store, in fetching and in assembly: the second attempt ends right."""
    rows, count = 9_000, 3
    ranges = plan.plan_ranges(rows, PAGE_SIZE, count)
    crash_points = 0
    while True:
        spec = build_spec(held, source.url(rows=rows, seed=SEED))
        store = CrashingStore(held.objects, at=crash_points)
        sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
        for _ in range(2):
            try:
                await fetch_all(make_activities(held, store), spec, sources, ranges)
                await assemble(make_activities(held, store), spec, sources, count)
                break
            except Crash:
                continue
        assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(rows)), (
            crash_points
        )
        assert [listed.key for listed in await held.objects.list("")] == [
            names.build_file_key(spec),
            names.build_manifest_key(spec),
        ]
        assert await held.objects.list_open_uploads("") == []
        if not store.crashed:
            break
        await ActivityEnvironment().run(make_activities(held).delete_unfinished, spec)
        crash_points += 1

    assert crash_points > 20


def allow_small_files(held: Services) -> Services:
    downloads = held.settings.downloads.model_copy(
        update={"small_file_max_bytes": DownloadSettings().small_file_max_bytes}
    )
    return replace(held, settings=held.settings.model_copy(update={"downloads": downloads}))


async def test_every_crash_point_of_a_small_file_is_survived(held: Services, source: Source) -> None:
    """Die before and after every call of the store: the second attempt makes the file, and leaves nothing else."""
    rows, crash_points, crashed = 3_000, 0, True
    while crashed:
        spec = build_spec(held, source.url(rows=rows, seed=SEED))
        store = CrashingStore(held.objects, at=crash_points)
        looked: ProbedSourcesOrWaitOrFile | None = None
        while looked is None:
            with suppress(Crash):
                doing = make_activities(allow_small_files(held), store)
                looked = await ActivityEnvironment().run(
                    doing.probe_and_begin_uploads_or_make_small_file, ProbeInput(spec=spec, times_processed=1)
                )
        assert looked.file is not None
        assert looked.file.rows == rows
        assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(rows))
        assert [listed.key for listed in await held.objects.list("")] == [
            names.build_file_key(spec),
            names.build_manifest_key(spec),
        ]
        assert await held.objects.list_open_uploads("") == []
        crashed, crash_points = store.crashed, crash_points + 1

    assert crash_points > 8


async def test_what_was_read_of_a_small_file_is_staged_where_it_takes_too_long(held: Services, source: Source) -> None:
    """A fetcher goes on behind the pages that were read, and makes the same file."""
    spec = build_spec(held, source.url(rows=3_000, seed=SEED)).model_copy(update={"slice_seconds": 0})
    doing = make_activities(allow_small_files(held))
    looked: ProbedSourcesOrWaitOrFile = await ActivityEnvironment().run(
        doing.probe_and_begin_uploads_or_make_small_file, ProbeInput(spec=spec, times_processed=1)
    )
    assert looked.sources is not None
    assert looked.file is None
    ledger = RangeLedger.model_validate_json(await held.objects.get(names.build_range_ledger_key(spec, 0)))
    await fetch_all(doing, spec, looked.sources, [PageRange(index=0, first=0, end=3)])
    await assemble(doing, spec, looked.sources, 1)

    assert (ledger.next_page, ledger.rows) == (1, 1_000)
    assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(3_000))


@pytest.mark.long
async def test_a_slow_source_is_secured_in_between(
    held: Services, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that do not yet make a part are secured after a while, so that a crash costs seconds, not the range."""
    monkeypatch.setattr("activities.downloads.stager.SECURE_EVERY_SECONDS", 0.05)
    spec = build_spec(held, source.url(rows=40_000, seed=SEED, delay_ms=60))
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    fetch = build_fetch(spec, sources, PageRange(index=0, first=0, end=40))

    running = asyncio.create_task(ActivityEnvironment().run(make_activities(held).fetch_range, fetch))
    await eventually(lambda: has_staged(held, spec, pages=3))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    ledger = RangeLedger.model_validate_json(await held.objects.get(names.build_range_ledger_key(spec, 0)))
    await ActivityEnvironment().run(make_activities(held).fetch_range, fetch)
    await assemble(make_activities(held), spec, sources, 1)

    assert ledger.tail is not None
    assert ledger.next_page > 3
    assert source.requests(page_size=PAGE_SIZE)[1] == 1
    assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(40_000))


async def has_staged(held: Services, spec: DownloadSpec, *, pages: int) -> bool:
    """Return whether the ledger of the first range is past a page."""
    try:
        ledger = RangeLedger.model_validate_json(await held.objects.get(names.build_range_ledger_key(spec, 0)))
    except ObjectMissing:
        return False
    return ledger.next_page > pages


@pytest.mark.long
async def test_a_part_that_somebody_replaced_never_gets_into_the_file(held: Services, source: Source) -> None:
    """What a worker writes that was thought dead is not taken for the ledger's part: the file is right, or is none."""
    rows = 130_000
    spec = build_spec(held, source.url(rows=rows, seed=SEED))
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    await fetch_all(make_activities(held), spec, sources, plan.plan_ranges(rows, PAGE_SIZE, 1))
    number = staging.compute_part_number_in_range_block(0, 0, 1)
    await held.objects.put_part(
        names.build_file_key(spec), sources.tables[0].upload_id, number, b"x" * staging.PART_BYTES
    )

    with suppress(StagedPartsInvalid):
        await assemble(make_activities(held), spec, sources, 1)

    if await held.objects.head(names.build_manifest_key(spec)):
        assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(rows))


@pytest.mark.long
async def test_an_object_that_is_not_its_parts_is_noticed(held: Services, source: Source) -> None:
    """Where the ETag is no digest of the parts, the bytes are compared; one that differs makes no file."""
    rows = 130_000
    spec = build_spec(held, source.url(rows=rows, seed=SEED))
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    await fetch_all(make_activities(held), spec, sources, plan.plan_ranges(rows, PAGE_SIZE, 1))
    with pytest.raises(Crash):
        await assemble(make_activities(held, CrashAfterCompletion(held.objects)), spec, sources, 1)
    data = await held.objects.get(names.build_file_key(spec))

    await held.objects.put(names.build_file_key(spec), data[:-1] + b"?")
    with pytest.raises(StagedPartsInvalid):
        await assemble(make_activities(held), spec, sources, 1)
    assert await held.objects.head(names.build_manifest_key(spec)) is None
    # The same bytes under another ETag, as a store with encryption by a key service shows them.
    await held.objects.put(names.build_file_key(spec), data)
    await assemble(make_activities(held), spec, sources, 1)
    assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(rows))


async def test_slices_stage_the_same_file(held: Services, source: Source) -> None:
    """A range that is handed back after every page makes the same file, and asks for no page twice."""
    spec = build_spec(held, source.url(rows=12_000, seed=SEED))
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    reports: list[FetchRangeResult] = []
    while not reports or not reports[-1].done:
        fetch = build_fetch(spec, sources, PageRange(index=0, first=0, end=12), slice_seconds=0)
        reports.append(await ActivityEnvironment().run(make_activities(held).fetch_range, fetch))
    await assemble(make_activities(held), spec, sources, 1)

    assert [report.rows for report in reports] == [1_000 * n for n in range(1, 13)]
    assert parse_csv(await held.objects.get(names.build_file_key(spec))) == expected_rows(SEED, range(12_000))


async def test_an_attempt_after_the_window_starts_again(held: Services, source: Source) -> None:
    """A worker that comes back too late must not mix what it staged with rows of another day."""
    spec = build_spec(held, source.url(rows=3_000, seed=SEED)).model_copy(update={"resume_window_seconds": 0})
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    pages = PageRange(index=0, first=0, end=3)
    await ActivityEnvironment().run(
        make_activities(held).fetch_range, build_fetch(spec, sources, pages, slice_seconds=0)
    )
    again = ActivityEnvironment()
    again.info = replace(again.info, attempt=2)
    patient = build_fetch(spec, sources, pages).model_copy(update={"checks_staging_age": False})

    with pytest.raises(StagedRowsTooOld):
        await ActivityEnvironment().run(make_activities(held).fetch_range, build_fetch(spec, sources, pages))
    with pytest.raises(StagedRowsTooOld):
        await again.run(make_activities(held).fetch_range, patient)
    assert (await ActivityEnvironment().run(make_activities(held).fetch_range, patient)).done


async def test_an_attempt_before_anything_was_staged_is_no_late_one(held: Services, source: Source) -> None:
    """However long a range had to queue: where nothing is staged, nothing can be mixed."""
    spec = build_spec(held, source.url(rows=3_000, seed=SEED)).model_copy(update={"resume_window_seconds": 0})
    sources = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    again = ActivityEnvironment()
    again.info = replace(again.info, attempt=2)

    report = await again.run(
        make_activities(held).fetch_range, build_fetch(spec, sources, PageRange(index=0, first=0, end=3))
    )

    assert report.done


async def test_a_probe_keeps_what_is_recent_and_wipes_what_is_not(held: Services, source: Source) -> None:
    """Inside the window and with the same total a new processing goes on; otherwise it begins with an empty store."""
    spec = build_spec(held, source.url(rows=3_000, seed=SEED))
    first = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1))
    fetch = build_fetch(spec, first, PageRange(index=0, first=0, end=3), slice_seconds=0)
    await ActivityEnvironment().run(make_activities(held).fetch_range, fetch)

    same = await probe(make_activities(held), ProbeInput(spec=spec, times_processed=1, earlier=first))
    grown = build_spec(held, source.url(rows=3_001, seed=SEED))
    other = await probe(make_activities(held), ProbeInput(spec=grown, times_processed=1, earlier=first))

    assert (same.resumed, same.tables) == (True, first.tables)
    assert not other.resumed
    assert other.tables[0].upload_id != first.tables[0].upload_id
    assert await held.objects.list("") == []
    assert [upload.upload_id for upload in await held.objects.list_open_uploads("")] == [other.tables[0].upload_id]


async def test_a_slice_leaves_nothing_for_the_garbage_collector(
    held: Services, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds megabytes of pages, and full collections are seldom in a process that makes few objects."""
    stagers: list[weakref.ref[RangeStager]] = []

    def make_stager(*arguments: Any) -> RangeStager:
        stager = RangeStager(*arguments)
        stagers.append(weakref.ref(stager))
        return stager

    monkeypatch.setattr("activities.downloads.activities.RangeStager", make_stager)
    spec = build_spec(held, source.url(rows=40_000, seed=SEED, delay_ms=20))
    doing, environment = make_activities(held), ActivityEnvironment()
    sources = await probe(doing, ProbeInput(spec=spec, times_processed=1))
    fetch = build_fetch(spec, sources, PageRange(index=0, first=0, end=40), slice_seconds=0.2)
    gc.collect()
    gc.disable()
    try:
        report = await environment.run(doing.fetch_range, fetch)
        # A thread that has just worked for it may hold it for another moment.
        await eventually(lambda: all(each() is None for each in stagers), timeout=60)
    finally:
        gc.enable()

    assert not report.done
    assert len(stagers) == 1


async def test_a_tail_does_not_grow_for_ever(held: Services, source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a source so slow that each slice has one page only, parts are made as under any other."""
    minimum, pages = 300_000, 15  # a page has about 115 KB
    monkeypatch.setattr(staging, "PART_MIN_BYTES", minimum)
    monkeypatch.setattr(staging, "PART_BYTES", minimum)
    monkeypatch.setattr(staging, "CUT_AT_BYTES", 2 * minimum)
    monkeypatch.setattr(staging, "PAGE_END_DISTANCE_BYTES", minimum // 10)
    spec = build_spec(held, source.url(rows=pages * PAGE_SIZE, seed=SEED))
    fetch = build_fetch(spec, await probe_source(held, spec), PageRange(index=0, first=0, end=pages), slice_seconds=0.0)
    await ActivityEnvironment().run(make_activities(held).fetch_range, fetch.model_copy(update={"slice_seconds": 60.0}))
    at_once = await read_ledger(held, spec)
    await ActivityEnvironment().run(make_activities(held).delete_unfinished, spec)
    fetch = fetch.model_copy(update={"probe": (await probe_source(held, spec)).tables[0]})
    tails, done = [], False
    while not done:
        done = (await ActivityEnvironment().run(make_activities(held).fetch_range, fetch)).done
        ledger = await read_ledger(held, spec)
        tails.append(ledger.tail.bytes if ledger.tail else 0)

    assert len(tails) == pages
    assert max(tails) < 3 * minimum
    assert len(ledger.parts) == len(at_once.parts) == pages // 3
    assert [(part.bytes, part.sha256, part.rows) for part in ledger.parts] == [
        (part.bytes, part.sha256, part.rows) for part in at_once.parts
    ]


async def test_a_late_attempt_of_a_probe_leaves_what_has_ended(held: Services) -> None:
    """Its worker was frozen while another one finished: the row stays as that wrote it."""
    spec, fault = build_spec(held, "http://unused.example"), FaultRecord(code="c", message="m")
    await catalogue.record_processing_start(held.database, spec, 1)
    for outcome, after in (
        (DownloadResult(state=DownloadState.FAILED, fault=fault), DownloadState.RUNNING),
        (DownloadResult(state=DownloadState.SUCCEEDED), DownloadState.SUCCEEDED),
    ):
        end = RecordEndInput(spec=spec, outcome=outcome, times_processed=1, fetchers=1)
        await catalogue.record_result_and_notify(held.database, end)
        await catalogue.record_processing_start(held.database, spec, 1)
        row = await catalogue.find_download(held.database, spec.project_id, spec.task_id)
        assert row is not None
        assert row.state == after

"""The life of a download beyond the straight way: reruns, retries, cancelling, time-outs, odd sources."""

from __future__ import annotations

import asyncio
import itertools
import json
from datetime import timedelta

import pytest
from temporalio.client import WorkflowHandle

from domain.downloads import names
from domain.downloads.activity_models import DownloadInput
from domain.downloads.models import (
    DownloadPhase,
    DownloadResult,
    DownloadSpec,
    DownloadState,
    DownloadStatus,
    NewColumnPolicy,
)
from sims import rows as sample
from sims.source import is_gap
from stores.downloads import catalogue
from tests.support.downloads import Downloads, expected_rows, parse_csv, to_csv_text
from tests.support.pace import measure_pace
from tests.support.selecting import mark_long_except
from tests.support.waiting import PATIENCE_SECONDS, eventually
from workflows.downloads.download import DownloadWorkflow

SEED = 8
PAGE_SIZE = 100

Handle = WorkflowHandle[DownloadWorkflow, DownloadResult]


@pytest.fixture
def exports(shared_downloads: Downloads) -> Downloads:
    """API, worker and source of this file's tests; a project of the test's own."""
    return shared_downloads


_numbers = itertools.count()


async def start(exports: Downloads, url: str, **changes: object) -> tuple[DownloadSpec, Handle]:
    spec = DownloadSpec(
        task_id=f"dl_{next(_numbers)}",
        project_id=exports.project_id,
        source_url=exports.services.sealer.seal(url),
        file_name="x.csv",
        page_size=PAGE_SIZE,
        rerun_pause_seconds=0.05,
        resume_window_seconds=30,
    ).model_copy(update=changes)
    handle = await exports.services.engine.start_workflow(
        DownloadWorkflow.run,
        DownloadInput(spec=spec),
        id=names.build_download_workflow_id(spec.project_id, spec.task_id),
        task_queue=names.QUEUE,
        task_timeout=timedelta(seconds=2),
    )
    return spec, handle


async def has_phase(handle: Handle, phase: DownloadPhase) -> DownloadStatus:
    async def look() -> DownloadStatus | None:
        status = await handle.query(DownloadWorkflow.status)
        return status if status.phase is phase else None

    status = await eventually(look)
    assert status
    return status


async def read_rows(exports: Downloads, outcome: DownloadResult) -> list[list[str]]:
    assert outcome.file is not None, outcome
    return parse_csv(await exports.services.objects.get(outcome.file.key))


@pytest.mark.parametrize("slice_seconds", [0.02, 10.0])
async def test_cancelling_really_stops(exports: Downloads, slice_seconds: float) -> None:
    """No upload, chunk or file is left, and the source is not asked any more, however often ranges are handed back."""
    _, handle = await start(exports, exports.source.url(rows=500_000, delay_ms=20), slice_seconds=slice_seconds)
    await has_phase(handle, DownloadPhase.FETCHING)
    await eventually(lambda: exports.source.requests(page_size=PAGE_SIZE))

    await handle.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await handle.result()
    asked = dict(exports.source.requests(page_size=PAGE_SIZE))

    assert outcome.state is DownloadState.CANCELLED
    assert await exports.leftovers() == []
    await eventually(exports.is_empty)
    assert dict(exports.source.requests(page_size=PAGE_SIZE)) == asked


@pytest.mark.long
async def test_workers_that_were_stopped_for_longer_than_the_window_start_again(downloads: Downloads) -> None:
    """An orderly stop returns ranges; a worker that goes on after the window probes the source again. It stops its
    worker, so nothing of it is shared."""
    exports = downloads
    url = exports.source.url(rows=20_000, seed=SEED, delay_ms=20)
    _, handle = await start(exports, url, slice_seconds=0.5, resume_window_seconds=4)
    await eventually(lambda: len(exports.source.requests(page_size=PAGE_SIZE)) > 40)

    await exports.stop_worker()
    seen = dict(exports.source.requests(page_size=PAGE_SIZE))
    await asyncio.sleep(6)
    async with exports.run_other_worker():
        outcome = await handle.result()

    assert await read_rows(exports, outcome) == expected_rows(SEED, range(20_000))
    # On a machine that is overloaded, the window may end once more between two slices.
    assert (await asyncio.wait_for(count_processings(exports, handle), PATIENCE_SECONDS)) >= 2
    asked = exports.source.requests(page_size=PAGE_SIZE)
    assert all(asked[page] >= 2 for page in list(seen)[:20])


async def count_processings(exports: Downloads, handle: Handle) -> int:
    async with exports.run_other_worker():
        return (await handle.query(DownloadWorkflow.status)).times_processed


async def test_a_total_of_nothing_with_rows_is_a_fault(exports: Downloads) -> None:
    """Rows are never dropped because of a wrong total."""
    rows = await exports.services.objects.put(
        f"inline/{exports.project_id}/rows.json", b'{"total": 0, "data": [{"a": 1}]}'
    )
    _, handle = await start(exports, "http://unused.example", inline_key=rows.key, resume_window_seconds=1)

    outcome = await handle.result()

    assert outcome.fault is not None
    assert (outcome.fault.code, outcome.state) == ("source_bad_total", DownloadState.FAILED)


async def test_inline_rows_that_are_gone_are_said_to_be(exports: Downloads) -> None:
    """A retry a day later has nothing to go on from, and says so at once."""
    _, handle = await start(exports, "http://unused.example", inline_key="inline/gone.json", resume_window_seconds=1)

    outcome = await handle.result()

    assert outcome.fault is not None
    assert outcome.fault.code == "inline_rows_gone"


async def test_a_key_with_a_zero_character_is_named_without_it(exports: Downloads) -> None:
    """No table stores such a text; the row of the download has its warning all the same."""
    page = b'{"total": 1, "data": [{"a\\u0000": 1, "a\\u0000": 2}]}'
    rows = await exports.services.objects.put(f"inline/{exports.project_id}/zero.json", page)
    spec, handle = await start(exports, "http://unused.example", inline_key=rows.key)

    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await handle.result()
    row = await catalogue.find_download(exports.services.database, spec.project_id, spec.task_id)

    assert row is not None
    assert row.file is not None
    assert (outcome.state, row.state) == (DownloadState.SUCCEEDED, DownloadState.SUCCEEDED)
    assert any("`a\ufffd` twice" in warning for warning in row.file["warnings"])


@pytest.mark.parametrize("delay_ms", [0, 30, 60, 90, 120, 150])
async def test_cancelling_at_any_moment_leaves_nothing(exports: Downloads, delay_ms: int) -> None:
    """Also while the source is looked at, before and after the upload is opened."""
    _, handle = await start(exports, exports.source.url(rows=500_000, delay_ms=40))
    await asyncio.sleep(delay_ms / 1000)

    await handle.cancel()
    outcome = await handle.result()

    assert outcome.state is DownloadState.CANCELLED
    assert await exports.leftovers() == []


async def test_a_failure_that_may_pass_is_processed_again(exports: Downloads) -> None:
    """A source that is away for longer than a page's tries costs a processing, which goes on from what is staged."""
    url = exports.source.url(rows=2_000, seed=SEED, away_after=9, away_for=9)

    _, handle = await start(exports, url)
    outcome = await handle.result()

    assert await read_rows(exports, outcome) == expected_rows(SEED, range(2_000))
    assert (await handle.query(DownloadWorkflow.status)).times_processed == 2
    asked = exports.source.requests(page_size=PAGE_SIZE)
    assert [asked[page] for page in range(1, 9)] == [1, 1, 1, 1, 1, 1, 7, 1]


async def test_a_failed_download_is_retried_from_what_is_staged(exports: Downloads) -> None:
    """Inside the window a user's retry asks for the total again, and for no page that was staged."""
    url = exports.source.url(rows=2_000, seed=SEED, faults="5xx", rate=1, only_page=7, fail_first=6)
    _, handle = await start(exports, url, max_task_retries=0)
    failed = await has_phase(handle, DownloadPhase.DONE)
    totals_asked = exports.source.requests(page_size=1)[0]

    await handle.signal(DownloadWorkflow.retry)
    outcome = await handle.result()

    assert failed.state is DownloadState.FAILED
    assert await read_rows(exports, outcome) == expected_rows(SEED, range(2_000))
    assert exports.source.requests(page_size=1)[0] == totals_asked + 1
    asked = exports.source.requests(page_size=PAGE_SIZE)
    assert [asked[page] for page in range(1, 9)] == [1, 1, 1, 1, 1, 1, 7, 1]


async def test_a_total_that_changes_is_told_and_cancelling_wipes_what_waits(exports: Downloads) -> None:
    """A page of another total fails the download; cancelling it then only takes away what waits for a retry."""
    url = exports.source.url(rows=2_000, seed=SEED, faults="total", rate=1, only_page=7)
    _, handle = await start(exports, url, max_task_retries=0)
    failed = await has_phase(handle, DownloadPhase.DONE)

    assert failed.fault is not None
    assert failed.fault.code == "source_total_changed"
    await handle.cancel()
    assert (await handle.result()).state is DownloadState.FAILED
    assert await exports.leftovers() == []


async def test_staging_of_a_failed_download_goes_when_the_window_ends(exports: Downloads) -> None:
    """It is there while a retry may use it, and not a moment longer."""
    url = exports.source.url(rows=2_000, faults="short", rate=1)
    _, handle = await start(exports, url, max_task_retries=0, resume_window_seconds=round(6 * measure_pace()))
    await has_phase(handle, DownloadPhase.DONE)

    assert await exports.leftovers() != []
    outcome = await handle.result()

    assert (outcome.state, await exports.leftovers()) == (DownloadState.FAILED, [])


@pytest.mark.parametrize("slice_seconds", [0.02, 10.0])
async def test_a_download_that_takes_too_long_fails(exports: Downloads, slice_seconds: float) -> None:
    """Its time is over whatever it is doing, and the reason is in the fault."""
    url = exports.source.url(rows=500_000, delay_ms=50)

    _, handle = await start(exports, url, max_exec_seconds=2, resume_window_seconds=0, slice_seconds=slice_seconds)
    async with asyncio.timeout(PATIENCE_SECONDS):
        outcome = await handle.result()

    assert outcome.state is DownloadState.FAILED
    assert outcome.fault is not None
    assert outcome.fault.code == "max_exec_time"
    assert await exports.leftovers() == []


@pytest.mark.parametrize("variation", [{}, {"envelope": 1}, {"no_total": 1}, {"envelope": 1, "no_total": 1}])
async def test_variations_of_the_protocol(exports: Downloads, variation: dict[str, int]) -> None:
    """An envelope, and a missing total, make the same file."""
    _, handle = await start(exports, exports.source.url(rows=1_050, seed=SEED, **variation))

    assert await read_rows(exports, await handle.result()) == expected_rows(SEED, range(1_050))


@pytest.mark.parametrize("total", [{}, {"no_total": 1}])
async def test_gaps_in_mid_stream_are_no_end_where_they_are_allowed(exports: Downloads, total: dict[str, int]) -> None:
    """A source that filters after paging is read to its end, and the rows that it has are counted."""
    url = exports.source.url(rows=1_050, seed=SEED, gaps=1, **total)
    kept = [n for n in range(1_050) if not is_gap(n, 1_050)]

    _, handle = await start(exports, url, force_continue=True)
    outcome = await handle.result()

    assert await read_rows(exports, outcome) == expected_rows(SEED, kept)
    assert outcome.file is not None
    assert outcome.file.rows == len(kept)


async def test_a_late_key_is_an_error_that_names_it(exports: Downloads) -> None:
    """A key that no row of the first page has is never dropped in silence."""
    url = exports.source.url(rows=1_000, seed=SEED, late_from=555)
    _, handle = await start(exports, url, resume_window_seconds=1)
    outcome = await handle.result()

    assert outcome.fault is not None
    assert outcome.fault.code == "source_new_column"
    assert "`late` appears on page 5 at data[55]" in outcome.fault.message


@pytest.mark.parametrize("rows", mark_long_except([1_000, 45_000], [1_000]))
async def test_a_late_key_becomes_a_column_where_columns_are_open(exports: Downloads, rows: int) -> None:
    """One more column, empty on the rows before, by one fetcher and by several."""
    late_from = rows * 2 // 3
    url = exports.source.url(rows=rows, seed=SEED, late_from=late_from)

    _, handle = await start(exports, url, columns=NewColumnPolicy.OPEN)
    heads, *lines = await read_rows(exports, await handle.result())

    assert heads == [*sample.row(SEED, 0), "late"]
    assert lines == [
        [*map(to_csv_text, sample.row(SEED, n).values()), str(n) if n >= late_from else ""] for n in range(rows)
    ]


@pytest.mark.long
async def test_a_long_download_continues_as_new(exports: Downloads) -> None:
    """A history that grows too long is left behind; the file is the same, and nothing is fetched twice."""
    url = exports.source.url(rows=22_500, seed=SEED)

    # Each slice's order holds them, so that a hundred slices make as long a history as a thousand others.
    headers = exports.services.sealer.seal(json.dumps({f"X-Long-{number}": "x" * 7_000 for number in range(6)}))
    _, handle = await start(exports, url, slice_seconds=0.0, source_headers=headers)
    outcome = await handle.result()
    first = await exports.services.engine.get_workflow_handle(
        handle.id, run_id=handle.first_execution_run_id
    ).describe()

    assert await read_rows(exports, outcome) == expected_rows(SEED, range(22_500))
    assert first.status is not None
    assert first.status.name == "CONTINUED_AS_NEW"
    assert max(count for page, count in exports.source.requests(page_size=PAGE_SIZE).items() if page) <= 2

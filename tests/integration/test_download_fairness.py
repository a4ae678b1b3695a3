"""A source that is slow, and one that asks to wait, do not hold up the download of a healthy one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from infra.settings import Settings
from tests.support.downloads import Downloads, running_downloads
from tests.support.pace import measure_pace
from tests.support.waiting import eventually
from tests.worlds.downloads.playing import raise_limits

PLACES = 4
BUSY, SLOW = 6, 3
"""More downloads than fetchers have places; the slow ones alone leave one."""
BUSY_PAGE, RETRY_AFTER_SECONDS = 2, 60
SLOW_PAGE_MS = 2_000
ROWS, PAGE_SIZE = 3_000, 100
DELAY_SECONDS = 8.0
"""How much longer than alone the healthy one may take, on a free core; a kept place would cost it the whole wait."""

pytestmark = pytest.mark.stack


@pytest.fixture
async def downloads(settings: Settings) -> AsyncIterator[Downloads]:
    """API, a worker with few places for fetchers, and a source."""
    worker = settings.worker.model_copy(update={"fetch_slots": PLACES})
    async with running_downloads(raise_limits(settings).model_copy(update={"worker": worker})) as running:
        yield running


async def as_another_project(downloads: Downloads) -> Downloads:
    """The same processes for another business system."""
    project_id, key = await downloads.api_client.make_project()
    return replace(downloads, project_id=project_id, key=key)


async def measure_healthy_export(downloads: Downloads, seed: int) -> float:
    """How long a download takes from a source that answers at once."""
    began = time.monotonic()
    status = await downloads.run(downloads.source.url(rows=ROWS, seed=seed), page_size=PAGE_SIZE)
    assert (status["state"], status["rows"]) == ("succeeded", ROWS)
    return time.monotonic() - began


@asynccontextmanager
async def count_running(downloads: Downloads) -> AsyncIterator[list[str]]:
    """Downloads from a source that asks to wait in the middle, and from a slow one; they are cancelled at the end."""
    # Without a total, one fetcher alone reads a source, page by page.
    source, endless = downloads.source, {"rows": 1_000_000, "no_total": 1}
    busy = source.url(tag="busy", faults="429", only_page=BUSY_PAGE, retry_after=str(RETRY_AFTER_SECONDS), **endless)
    slow = source.url(tag="slow", delay_ms=SLOW_PAGE_MS, **endless)
    waiting = [await downloads.start(busy, page_size=PAGE_SIZE) for _ in range(BUSY)]
    working = [await downloads.start(slow, page_size=PAGE_SIZE) for _ in range(SLOW)]
    try:
        await eventually(lambda: source.requests(tag="busy", page_size=PAGE_SIZE).get(BUSY_PAGE, 0) >= PLACES)
        await eventually(lambda: source.requests(tag="slow", page_size=PAGE_SIZE).get(1, 0) >= SLOW - 1)
        yield waiting
    finally:
        for task_id in (*waiting, *working):
            await downloads.api_client.ask("POST", f"/v1/downloads/{task_id}/cancel", key=downloads.key)
        await asyncio.gather(*map(downloads.wait_for_end, (*waiting, *working)))


@pytest.mark.long
async def test_a_fetcher_that_waits_holds_up_nobody(downloads: Downloads) -> None:
    """Beside more downloads that wait or are slow than there are places, a healthy one takes as long as alone."""
    healthy = await as_another_project(downloads)
    alone = await measure_healthy_export(healthy, seed=1)
    async with count_running(downloads) as waiting:
        beside = await measure_healthy_export(healthy, seed=2)
        assert beside < alone + DELAY_SECONDS * measure_pace(), (alone, beside)
        # All of them come to wait at the same page, which was asked for once by each, and say so.
        await eventually(lambda: _tell_that_they_wait(downloads, waiting), RETRY_AFTER_SECONDS / 2)

    assert downloads.source.requests(tag="busy", page_size=PAGE_SIZE)[BUSY_PAGE] == BUSY


async def _tell_that_they_wait(downloads: Downloads, waiting: list[str]) -> bool:
    told = [await downloads.status(task_id) for task_id in waiting]
    assert {(status["state"], status["rows"]) for status in told} == {("running", BUSY_PAGE * PAGE_SIZE)}
    assert {(status["trouble"] or {}).get("code") for status in told} == {"source_status"}
    return True


async def test_fetchers_that_wait_for_slow_pages_hold_up_no_other_project(downloads: Downloads) -> None:
    """More of them than places hang on a page for a minute; another project's export begins within seconds."""
    source, modest = downloads.source, await as_another_project(downloads)
    alone = await measure_healthy_export(modest, seed=3)
    url = source.url(tag="hung", rows=1_000_000, no_total=1, faults="slow", only_page=1, slow_ms=60_000)
    hung = [await downloads.start(url, page_size=PAGE_SIZE) for _ in range(BUSY)]
    try:
        await eventually(lambda: source.requests(tag="hung", page_size=PAGE_SIZE).get(1, 0) >= PLACES)
        beside = await measure_healthy_export(modest, seed=4)
    finally:
        for task_id in hung:
            await downloads.api_client.ask("POST", f"/v1/downloads/{task_id}/cancel", key=downloads.key)
        await asyncio.gather(*map(downloads.wait_for_end, hung))
    assert beside < alone + 2 * DELAY_SECONDS * measure_pace(), (alone, beside)

"""Whatever is killed in the middle of an export, the delivered file is the source's, row by row."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import zipfile
from typing import Any

import aiohttp
import pytest
from python_calamine import CalamineWorkbook
from temporalio.client import WorkflowHandle

from cli.house import House
from domain.downloads import plan
from infra import temporal
from sims import rows as sample
from tests.exports import expected, parsed
from tests.faults.client import client
from tests.faults.engine import find
from tests.stack import eventually

ROWS = 120_000
PAGE_SIZE = 250
# Slow enough that even a test that is hindered for seconds kills in the middle.
DELAY_MS = 60
VICTIMS = ("worker-1", "worker-2", "api-1", "engine", "database", "store")


@pytest.mark.parametrize("victim", VICTIMS)
async def test_kill_changes_nothing(running: House, victim: str, request: pytest.FixtureRequest) -> None:
    """SIGKILL at a random point of the fetching: the export ends, and the file is whole."""
    seed = request.config.getoption("randomly_seed")
    moment = random.Random(f"{seed}/{victim}").randrange(1, ROWS // PAGE_SIZE // 2)
    source_url = f"{running.source}/rows?rows={ROWS}&seed=3&delay_ms={DELAY_MS}&tag={victim}"

    async with client(running) as caller:
        task_id = await caller.start(source_url, page_size=PAGE_SIZE)
        await eventually(lambda: _has_asked(running, victim, pages=moment))
        running.stack.kill(victim)
        assert not await _has_asked(running, victim, pages=ROWS // PAGE_SIZE), f"it was over too soon (seed {seed})"
        status = await caller.ended(task_id)

        assert (status["state"], status["rows"]) == ("succeeded", ROWS), f"seed {seed}: {status}"
        assert parsed(await caller.file(task_id)) == expected(3, range(ROWS)), f"seed {seed}"
    await running.stack.ready(victim)


async def test_finished_ranges_are_not_fetched_again(running: House) -> None:
    """Both workers are killed when some ranges are staged and some are not: the staged ones ask for no page again."""
    # Slow answers here and there let the ranges end at different times.
    query = f"rows={ROWS}&seed=4&tag=ranges&faults=slow&rate=0.04&slow_ms=700"
    engine = await temporal.connect(running.stack.environment(running.settings))

    async with client(running) as caller:
        task_id = await caller.start(f"{running.source}/rows?{query}", page_size=PAGE_SIZE)
        workflow = await find(engine, task_id)
        staged = await eventually(lambda: _staged_ranges(workflow))
        before = await _requests(running, "ranges")
        for name in ("worker-1", "worker-2"):
            running.stack.kill(name)
        status = await caller.ended(task_id)
        assert status["state"] == "succeeded", status
        assert parsed(await caller.file(task_id)) == expected(4, range(ROWS))

    asked = await _requests(running, "ranges")
    ranges = plan.ranges(ROWS, PAGE_SIZE, plan.fetchers(ROWS, PAGE_SIZE))  # too light for more ranges than fetchers
    assert 0 < len(staged) < len(ranges)
    # Page 0 is asked for once more, to learn the columns.
    pages = [page for index in staged for page in range(ranges[index].first or 1, ranges[index].end or 0)]
    again = {page for page in pages if asked[page] > before[page]}
    assert again == set()


async def _staged_ranges(workflow: WorkflowHandle[Any, Any]) -> list[int]:
    """The ranges whose fetching is complete, as the history says."""
    done = []
    async for event in workflow.fetch_history_events():
        completed = event.activity_task_completed_event_attributes
        for payload in completed.result.payloads:
            result = json.loads(payload.data) if payload.data else None
            # A slice that was handed back reports too: its range is not complete.
            if result and result.get("done") and "number" in result:
                done.append(result["number"])
    return done


async def _has_asked(running: House, tag: str, *, pages: int) -> bool:
    """Whether so many pages were asked for, as the source says: what a status tells may be seconds old."""
    return len(await _requests(running, tag)) >= pages


async def _requests(running: House, tag: str) -> dict[int, int]:
    async with aiohttp.ClientSession(running.source) as session:
        answer = await session.get(f"/stats?tag={tag}")
        pages = (await answer.json())["pages"]
    return {page["page"]: page["requests"] for page in pages if page["page_size"] == PAGE_SIZE}


@pytest.mark.parametrize(("page_size", "phase", "after"), [(1_000, "rendering", 0), (500, "fetching", 150_000)])
async def test_kill_while_books_are_made(running: House, page_size: int, phase: str, after: int) -> None:
    """Both workers die over books, of staged rows or of those just fetched: the archive has every row once."""
    rows = 300_000
    async with client(running) as caller:
        task_id = await caller.start(f"{running.source}/rows?rows={rows}&seed=6", page_size=page_size, type="excel")
        await caller.until(task_id, lambda status: status["phase"] == phase and status["rows"] >= after)
        for name in ("worker-1", "worker-2"):
            running.stack.kill(name)
        status = await caller.ended(task_id)

        assert (status["state"], status["rows"]) == ("succeeded", rows), status
        content = await caller.file(task_id)
    assert len(content) == status["bytes"]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        books = [CalamineWorkbook.from_filelike(io.BytesIO(archive.read(name))) for name in archive.namelist()]
    assert len(books) == status["files"] > 1
    ids = [row[0] for book in books for row in book.get_sheet_by_index(0).to_python()[1:]]
    assert ids == [sample.row(6, n)["id"] for n in range(rows)]


async def test_stopped_worker_is_replaced(running: House) -> None:
    """A worker that hangs without dying loses its work to the other; when it wakes, it spoils nothing."""
    async with client(running) as caller:
        source_url = f"{running.source}/rows?rows={ROWS}&seed=5&delay_ms={DELAY_MS}&tag=hang"
        task_id = await caller.start(source_url, page_size=PAGE_SIZE)
        await eventually(lambda: _has_asked(running, "hang", pages=ROWS // PAGE_SIZE // 4))
        hung = running.stack.pids()["worker-1"]
        os.kill(hung, signal.SIGSTOP)
        try:
            status = await caller.ended(task_id)
        finally:
            os.kill(hung, signal.SIGCONT)

        assert status["state"] == "succeeded", status
        assert parsed(await caller.file(task_id)) == expected(5, range(ROWS))

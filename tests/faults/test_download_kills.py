"""Whatever is killed in the middle of an export, the delivered file is the source's, row by row."""

from __future__ import annotations

import io
import json
import random
import zipfile
from functools import partial
from typing import Any

import aiohttp
import pytest
from python_calamine import CalamineWorkbook
from temporalio.client import WorkflowHandle

from domain.downloads import plan
from sims import rows as sample
from tests.support.caller import running_caller
from tests.support.deployment import Deployment
from tests.support.downloads import expected_rows, parse_csv
from tests.support.engine import busy_processes, find_download
from tests.support.kills import Killer
from tests.support.selecting import mark_long_except
from tests.support.waiting import eventually

ROWS, PAGE_SIZE = 42_000, 100
PAGES = ROWS // PAGE_SIZE
# Slow enough that even a test that is hindered for seconds kills in the middle.
DELAY_MS = 60
VICTIMS = ("worker-1", "api-1", "engine", "database", "store")
WORKERS = ("worker-1", "worker-2")
BOOK_ROWS = 30_000


@pytest.mark.parametrize("victim", mark_long_except(VICTIMS, ("worker-1", "store")))
async def test_kill_changes_nothing(deployment: Deployment, killer: Killer, chance: random.Random, victim: str) -> None:
    """SIGKILL at a random point of the fetching: the export ends, and the file is whole."""
    async with running_caller(deployment) as caller:
        for turn in range(3):
            tag, moment = f"{victim}-{turn}", chance.randrange(1, PAGES // 2)
            source_url = f"{deployment.source}/rows?rows={ROWS}&seed=3&delay_ms={DELAY_MS}&tag={tag}"
            task_id = await caller.start(source_url, page_size=PAGE_SIZE)

            async def exists(tag: str = tag, moment: int = moment) -> bool:
                return await _count_requested_pages(deployment, tag) >= moment

            async def is_under_way(tag: str = tag) -> bool:
                return await _count_requested_pages(deployment, tag) < PAGES

            if await killer.try_kill(victim, begun=exists, under_way=is_under_way):
                break
        status = await caller.wait_for_end(task_id)
        rows = parse_csv(await caller.file(task_id))

    wanted = expected_rows(3, range(ROWS))
    killer.close(lost=max(0, len(wanted) - len(rows)), doubled=len(rows) - len({row[0] for row in rows}))
    assert killer.record.kills == 1, "each kill found the export at its end"
    assert (status["state"], status["rows"]) == ("succeeded", ROWS), status
    assert rows == wanted


@pytest.mark.long
async def test_finished_ranges_are_not_fetched_again(deployment: Deployment, killer: Killer) -> None:
    """Both workers are killed when some ranges are staged and some are not: the staged ones ask for no page again."""
    # Slow answers here and there let the ranges end at different times.
    query = f"rows={ROWS}&seed=4&faults=slow&rate=0.04&slow_ms=700"
    engine = await deployment.engine()
    ranges = plan.plan_ranges(
        ROWS, PAGE_SIZE, plan.choose_fetcher_count(ROWS, PAGE_SIZE)
    )  # too light for more ranges than fetchers

    async with running_caller(deployment) as caller:
        for turn in range(3):
            tag = f"ranges-{turn}"
            task_id = await caller.start(f"{deployment.source}/rows?{query}&tag={tag}", page_size=PAGE_SIZE)
            workflow = await find_download(engine, task_id)
            staged = await eventually(partial(_list_staged_ranges, workflow))
            before = await _list_requests(deployment, tag)

            async def some_are_not_staged(workflow: WorkflowHandle[Any, Any] = workflow) -> bool:
                return len(await _list_staged_ranges(workflow)) < len(ranges)

            hit = await killer.try_kill(*WORKERS, begun=lambda: True, under_way=some_are_not_staged)
            status = await caller.wait_for_end(task_id)
            if hit:
                break
        rows = parse_csv(await caller.file(task_id))
        assert hit, "all ranges were staged, each time"
        assert status["state"] == "succeeded", status
        assert rows == expected_rows(4, range(ROWS))

    asked = await _list_requests(deployment, tag)
    assert 0 < len(staged) < len(ranges)
    # Page 0 is asked for once more, to learn the columns.
    pages = [page for index in staged for page in range(ranges[index].first or 1, ranges[index].end or 0)]
    again = {page for page in pages if asked[page] > before[page]}
    killer.close(lost=0, doubled=len(again))
    assert again == set()


async def _list_staged_ranges(workflow: WorkflowHandle[Any, Any]) -> list[int]:
    """List the ranges whose fetching is complete, as the history says."""
    done = []
    async for event in workflow.fetch_history_events():
        completed = event.activity_task_completed_event_attributes
        for payload in completed.result.payloads:
            result = json.loads(payload.data) if payload.data else None
            # A slice that was handed back reports too: its range is not complete.
            if result and result.get("done") and "number" in result:
                done.append(result["number"])
    return done


async def _count_requested_pages(deployment: Deployment, tag: str) -> int:
    """Count the pages that were requested, by the source: a status may be seconds old."""
    return len(await _list_requests(deployment, tag))


async def _list_requests(deployment: Deployment, tag: str) -> dict[int, int]:
    async with aiohttp.ClientSession(deployment.source) as session:
        answer = await session.get(f"/stats?tag={tag}")
        pages = (await answer.json())["pages"]
    return {page["page"]: page["requests"] for page in pages if page["page_size"] == PAGE_SIZE}


@pytest.mark.parametrize(("page_size", "phase", "after"), [(1_000, "rendering", 0), (500, "fetching", 15_000)])
@pytest.mark.long
async def test_kill_while_books_are_made(
    deployment: Deployment, killer: Killer, page_size: int, phase: str, after: int
) -> None:
    """Both workers die over books, of staged rows or of those just fetched: the archive has every row once."""
    async with running_caller(deployment) as caller:
        for turn in range(3):
            url = f"{deployment.source}/rows?rows={BOOK_ROWS}&seed=6&delay_ms=40&tag=books-{turn}"
            task_id = await caller.start(url, page_size=page_size, type="excel")
            status = await caller.until(task_id, lambda status: status["phase"] == phase and status["rows"] >= after)

            async def exists(task_id: str = task_id) -> bool:
                answer = await caller.call("GET", f"/v1/downloads/{task_id}", 200)
                return bool((await answer.json())["phase"] == phase)

            if await killer.try_kill(*WORKERS, begun=lambda: True, under_way=exists):
                break
        status = await caller.wait_for_end(task_id)
        content = await caller.file(task_id)
    assert killer.record.kills == len(WORKERS), f"each kill found the export past its {phase}"
    assert (status["state"], status["rows"]) == ("succeeded", BOOK_ROWS), status
    assert len(content) == status["bytes"]
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        books = [CalamineWorkbook.from_filelike(io.BytesIO(archive.read(name))) for name in archive.namelist()]
    assert len(books) == status["files"] > 1
    ids = [row[0] for book in books for row in book.get_sheet_by_index(0).to_python()[1:]]
    killer.close(lost=BOOK_ROWS - len(set(ids)), doubled=len(ids) - len(set(ids)))
    assert ids == [sample.row(6, n)["id"] for n in range(BOOK_ROWS)]


@pytest.mark.long
async def test_a_worker_that_hangs_is_replaced(deployment: Deployment, killer: Killer) -> None:
    """A worker that hangs without dying loses its ranges to the other; when it wakes, it spoils nothing."""
    engine = await deployment.engine()
    async with running_caller(deployment) as caller:
        for turn in range(3):
            tag = f"hang-{turn}"
            source_url = f"{deployment.source}/rows?rows={ROWS}&seed=5&delay_ms={DELAY_MS}&tag={tag}"
            task_id = await caller.start(source_url, page_size=PAGE_SIZE)
            workflow = await find_download(engine, task_id)

            async def is_fetching(tag: str = tag) -> bool:
                return await _count_requested_pages(deployment, tag) >= PAGES // 4

            async def has_ranges(
                tag: str = tag, workflow: WorkflowHandle[Any, Any] = workflow, pid: int = deployment.pids["worker-1"]
            ) -> bool:
                return pid in await busy_processes(workflow) and await _count_requested_pages(deployment, tag) < PAGES

            await eventually(is_fetching)
            async with killer.hang("worker-1", under_way=has_ranges) as hit:
                status = await caller.wait_for_end(task_id)
            if hit:
                break
        rows = parse_csv(await caller.file(task_id))

    wanted = expected_rows(5, range(ROWS))
    killer.close(lost=max(0, len(wanted) - len(rows)), doubled=len(rows) - len({row[0] for row in rows}))
    assert killer.record.hangs == 1, "the worker that was stopped never had a range"
    assert status["state"] == "succeeded", status
    assert rows == wanted

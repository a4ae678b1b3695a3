"""Many downloads at once, and large ones, while parts are killed."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from python_calamine import CalamineWorkbook
from yarl import URL

from infra.objects import ObjectStore
from sims import rows as sample
from tests.support.caller import Caller, running_caller
from tests.support.deployment import Deployment
from tests.support.downloads import expected_rows, parse_csv, to_csv_text
from tests.support.kills import Killer
from tests.support.waiting import eventually

PROJECTS, DOWNLOADS_EACH, GOING_ON = 20, 5, 4
ROWS = 1_000
VICTIMS = ("worker-1", "worker-2", "api-1", "engine", "database", "store")
KILLS, KILL_EVERY_SECONDS = 7, 3.0
PART_BYTES = 16 * 1024 * 1024


@dataclass
class DownloadTally:
    """What is asked for while parts are killed."""

    open: set[str] = field(default_factory=set)
    """The tasks that have not ended."""
    is_over: bool = False
    """Whether all kills are made."""


@pytest.mark.long
async def test_a_hundred_downloads_of_twenty_projects_all_end_right(
    deployment: Deployment, killer: Killer, chance: random.Random
) -> None:
    """With a kill every few seconds nothing is lost, doubled or left over."""
    work = DownloadTally()
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(running_caller(deployment)) for _ in range(PROJECTS)]
        async with asyncio.TaskGroup() as group:
            group.create_task(_kill_all(killer, work, chance))
            downloading = [
                group.create_task(_download_all(deployment, caller, n, work)) for n, caller in enumerate(callers)
            ]
        files = {seed: data for task in downloading for seed, data in task.result().items()}

    wrong = {seed: _compare(seed, data) for seed, data in files.items()}
    keys = await _list_stored_keys(deployment, {caller.project_id for caller in callers})
    killer.close(
        lost=sum(lost for lost, _ in wrong.values()),
        doubled=sum(doubled for _, doubled in wrong.values()) + len(keys) - 2 * len(files),
    )
    assert len(files) >= PROJECTS * DOWNLOADS_EACH
    assert {seed: each for seed, each in wrong.items() if each != (0, 0)} == {}
    assert len(keys) == 2 * len(files)
    assert {key.partition("/")[0] for key in keys} == {"files"}


def _compare(seed: int, data: bytes) -> tuple[int, int]:
    """Count the source's rows that a file lacks or has differently, and those that it has more than once."""
    if _choose_kind(seed) == "csv":
        rows: list[tuple[object, ...]] = [tuple(row) for row in parse_csv(data)]
        wanted: list[tuple[object, ...]] = [tuple(row) for row in expected_rows(seed, range(ROWS))]
    else:
        sheet = CalamineWorkbook.from_filelike(io.BytesIO(data)).get_sheet_by_index(0).to_python()
        rows = [(row[0],) for row in sheet[1:]]
        wanted = [(sample.row(seed, row)["id"],) for row in range(ROWS)]
    doubled = len(rows) - len(set(rows))
    return (0 if rows == wanted else max(1, len(set(wanted) - set(rows)))), doubled


async def _list_stored_keys(deployment: Deployment, projects: set[str]) -> list[str]:
    """List what lies in the store of these projects, uploads that are still open included."""
    await deployment.ready("store")
    store = ObjectStore(deployment.settings.objects)
    try:
        keys = [each.key for each in await store.list("")] + [each.key for each in await store.list_open_uploads("")]
    finally:
        await store.close()
    return [key for key in keys if key.split("/")[1] in projects]


async def _download_all(deployment: Deployment, caller: Caller, project: int, work: DownloadTally) -> dict[int, bytes]:
    """Ask for downloads, all at once; some projects then ask for one after the other until all kills are made."""
    seeds = itertools.count(project, PROJECTS)
    task_ids = {}
    for _ in range(DOWNLOADS_EACH):
        seed = next(seeds)
        task_ids[seed] = await _start(deployment, caller, seed, work)
    files = {seed: await _finish(caller, task_id, work) for seed, task_id in task_ids.items()}
    while project < GOING_ON and not work.is_over:
        seed = next(seeds)
        files[seed] = await _finish(caller, await _start(deployment, caller, seed, work), work)
    return files


async def _start(deployment: Deployment, caller: Caller, seed: int, work: DownloadTally) -> str:
    url = f"{deployment.source}/rows?rows={ROWS}&seed={seed}&delay_ms=30"
    # A request whose answer was lost is repeated, and must not start a second download.
    task_id = await caller.start(url, page_size=100, key=f"many/{seed}", type=_choose_kind(seed))
    work.open.add(task_id)
    return task_id


async def _finish(caller: Caller, task_id: str, work: DownloadTally) -> bytes:
    status = await caller.wait_for_end(task_id)
    work.open.discard(task_id)
    assert (status["state"], status["rows"]) == ("succeeded", ROWS), status
    return await caller.file(task_id)


async def _kill_all(killer: Killer, work: DownloadTally, chance: random.Random) -> None:
    """Kill each part once, and some again."""
    try:
        victims = (*VICTIMS, *chance.choices(VICTIMS, k=KILLS - len(VICTIMS)))
        await killer.kill_each(victims, every_seconds=KILL_EVERY_SECONDS, under_way=lambda: bool(work.open))
    finally:
        work.is_over = True


def _choose_kind(seed: int) -> str:
    """Some of the files are books."""
    return "excel" if seed % 3 == 2 else "csv"


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_gigabyte_survives_the_kill_of_worker_and_engine(
    deployment: Deployment, killer: Killer, tmp_path: Path
) -> None:
    """1 GB through the public API, resumed across `kill -9` of both, equals its source cell by cell."""
    rows = 8_500_000
    async with running_caller(deployment) as caller:
        task_id = await caller.start(f"{deployment.source}/rows?rows={rows}&seed=1", page_size=1000)
        for victim, share in (("worker-1", 0.2), ("engine", 0.4), ("worker-2", 0.6), ("store", 0.8)):
            await caller.until(task_id, lambda status, at=share: status["rows"] >= at * rows, patience_seconds=600)  # type: ignore[misc]
            await killer.kill(victim, under_way=lambda: caller.is_fetching(task_id))
        status = await caller.wait_for_end(task_id, patience_seconds=600)
        assert (status["state"], status["rows"]) == ("succeeded", rows), status
        assert status["bytes"] > 1_000_000_000
        path = tmp_path / "large.csv"
        answer = await caller.call("GET", f"/v1/downloads/{task_id}/file", 302)
        async with (
            aiohttp.ClientSession() as session,
            session.get(URL(answer.headers["Location"], encoded=True)) as file,
        ):
            await asyncio.to_thread(path.write_bytes, b"")
            with path.open("ab") as out:
                async for piece in _read_pieces(file):
                    await asyncio.to_thread(out.write, piece)

    count, first_difference = await asyncio.to_thread(_compare_file, path, rows)
    killer.close(lost=max(0, rows - count), doubled=max(0, count - rows))
    assert killer.record.kills == 4
    assert path.stat().st_size == status["bytes"]
    assert (count, first_difference) == (rows, None)


async def _read_pieces(file: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    assert file.status == 200
    async for piece in file.content.iter_chunked(PART_BYTES):
        yield piece


def _compare_file(path: Path, rows: int) -> tuple[int, int | None]:
    """Count the rows of a file, and name the first that is not the source's."""
    count, first_difference = 0, None
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        for count, cells in enumerate(lines, start=1):
            if first_difference is None and (
                count > rows or cells != [to_csv_text(value) for value in sample.row(1, count - 1).values()]
            ):
                first_difference = count - 1
    return count, first_difference


@pytest.mark.long
async def test_another_projects_thousand_do_not_delay_a_single_one(deployment: Deployment) -> None:
    """While one project's fetchers queue, another's small export takes its turn at once."""
    async with running_caller(deployment) as greedy, running_caller(deployment) as modest:
        slow = f"{deployment.source}/rows?rows=1000000&delay_ms=100"
        task_ids = [await greedy.start(f"{slow}&seed={n}", page_size=100) for n in range(DOWNLOADS_EACH)]
        await eventually(lambda: greedy.is_fetching(task_ids[0]))

        began = asyncio.get_running_loop().time()
        status = await modest.wait_for_end(
            await modest.start(f"{deployment.source}/rows?rows=1000&seed=1", page_size=100)
        )
        seconds = asyncio.get_running_loop().time() - began
        for task_id in task_ids:
            await greedy.call("POST", f"/v1/downloads/{task_id}/cancel", 202)

    assert status["state"] == "succeeded"
    # At most a slice of ten seconds is waited for, while each range of the others takes minutes.
    assert seconds < 60

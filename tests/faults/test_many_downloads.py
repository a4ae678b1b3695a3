"""Many downloads at once, and large ones, while parts are killed."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from python_calamine import CalamineWorkbook
from yarl import URL

from cli.house import House
from infra.objects import ObjectStore
from sims import rows as sample
from tests.exports import as_text, expected, parsed
from tests.faults.client import Client, client
from tests.stack import eventually

PROJECTS, DOWNLOADS_EACH = 20, 10
ROWS = 1_000
VICTIMS = ("worker-1", "worker-2", "api-1", "engine", "database", "store")
# So many that they last as long as the downloads, and an end, as on a busy machine each costs more than its pause.
KILLS, KILL_EVERY_SECONDS = 12, 4.0
PART_BYTES = 16 * 1024 * 1024


async def test_two_hundred_downloads_of_twenty_projects_all_end_right(
    running: House, request: pytest.FixtureRequest
) -> None:
    """With a kill every few seconds nothing is lost, doubled or left over."""
    chance = random.Random(f"{request.config.getoption('randomly_seed')}/many")
    async with AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(client(running)) for _ in range(PROJECTS)]
        wreaking = asyncio.create_task(_wreak(running, chance))
        try:
            files = await asyncio.gather(*(_download_all(running, caller, n) for n, caller in enumerate(callers)))
        finally:
            wreaking.cancel()

    for n, downloaded in enumerate(files):
        for number, data in enumerate(downloaded):
            seed = n * DOWNLOADS_EACH + number
            if _kind(number) == "csv":
                assert parsed(data) == expected(seed, range(ROWS)), f"download {number} of project {n}"
            else:
                ids = [
                    row[0] for row in CalamineWorkbook.from_filelike(io.BytesIO(data)).get_sheet_by_index(0).to_python()
                ]
                assert ids[1:] == [sample.row(seed, row)["id"] for row in range(ROWS)], f"{number} of project {n}"
    await running.stack.ready("store")
    store = ObjectStore(running.settings.objects)
    try:
        projects = {caller.project_id for caller in callers}
        keys = [each.key for each in await store.list("")] + [each.key for each in await store.list_uploads("")]
        ours = [key for key in keys if key.split("/")[1] in projects]
        assert len(ours) == 2 * PROJECTS * DOWNLOADS_EACH
        assert {key.partition("/")[0] for key in ours} == {"files"}
    finally:
        await store.close()


async def _download_all(running: House, caller: Client, project: int) -> list[bytes]:
    seeds = range(project * DOWNLOADS_EACH, (project + 1) * DOWNLOADS_EACH)
    urls = [f"{running.source}/rows?rows={ROWS}&seed={seed}&delay_ms=30" for seed in seeds]
    # A request whose answer was lost is repeated, and must not start a second download.
    task_ids = await asyncio.gather(
        *(caller.start(url, page_size=100, key=f"{project}/{n}", type=_kind(n)) for n, url in enumerate(urls))
    )
    for task_id in task_ids:
        status = await caller.ended(task_id)
        assert (status["state"], status["rows"]) == ("succeeded", ROWS), status
    return [await caller.file(task_id) for task_id in task_ids]


def _kind(number: int) -> str:
    """Some of the files are books."""
    return "excel" if number % 3 == 2 else "csv"


async def _wreak(running: House, chance: random.Random) -> None:
    """Kill a part every few seconds, and the next only when the last one serves again."""
    for _ in range(KILLS):
        await asyncio.sleep(KILL_EVERY_SECONDS)
        victim = chance.choice(VICTIMS)
        running.stack.kill(victim)
        await running.stack.ready(victim)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_gigabyte_survives_the_kill_of_worker_and_engine(running: House, tmp_path: Path) -> None:
    """1 GB through the public API, resumed across `kill -9` of both, equals its source cell by cell."""
    rows = 8_500_000
    async with client(running) as caller:
        task_id = await caller.start(f"{running.source}/rows?rows={rows}&seed=1", page_size=1000)
        for victim, share in (("worker-1", 0.2), ("engine", 0.4), ("worker-2", 0.6), ("store", 0.8)):
            await caller.until(task_id, lambda status, at=share: status["rows"] >= at * rows, patience_seconds=600)  # type: ignore[misc]
            running.stack.kill(victim)
        status = await caller.ended(task_id, patience_seconds=600)
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
                async for piece in _pieces(file):
                    await asyncio.to_thread(out.write, piece)

    assert path.stat().st_size == status["bytes"]
    assert await asyncio.to_thread(_first_difference, path, rows) is None


async def _pieces(file: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    assert file.status == 200
    async for piece in file.content.iter_chunked(PART_BYTES):
        yield piece


def _first_difference(path: Path, rows: int) -> int | None:
    """The first row that is not the source's."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        next(lines)
        count = 0
        for n, cells in enumerate(lines):
            if cells != [as_text(value) for value in sample.row(1, n).values()]:
                return n
            count += 1
    return None if count == rows else count


async def test_another_projects_thousand_do_not_delay_a_single_one(running: House) -> None:
    """While one project's fetchers queue, another's small export takes its turn at once."""
    async with client(running) as greedy, client(running) as modest:
        slow = f"{running.source}/rows?rows=1000000&delay_ms=100"
        task_ids = [await greedy.start(f"{slow}&seed={n}", page_size=100) for n in range(DOWNLOADS_EACH)]
        await eventually(lambda: greedy.is_fetching(task_ids[0]))

        began = asyncio.get_running_loop().time()
        status = await modest.ended(await modest.start(f"{running.source}/rows?rows=1000&seed=1", page_size=100))
        seconds = asyncio.get_running_loop().time() - began
        for task_id in task_ids:
            await greedy.call("POST", f"/v1/downloads/{task_id}/cancel", 202)

    assert status["state"] == "succeeded"
    # At most a slice of ten seconds is waited for, while each range of the others takes minutes.
    assert seconds < 60

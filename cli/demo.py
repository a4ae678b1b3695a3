"""The demo: one export through the whole house, its file compared with the source row by row."""

from __future__ import annotations

import asyncio
import csv
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.house import House, house
from infra.settings import Settings
from sims import rows as sample

ROWS = 200_000
PAGE_SIZE = 250
SEED = 20_260_101
POLL_SECONDS = 0.2
READ_BYTES = 1024 * 1024

Show = Callable[[dict[str, Any]], None]


class DemoFailed(Exception):
    """The demo did not get the file that it expected."""


async def run(settings: Settings, rows: int) -> int:
    """Start everything, export, check, stop everything."""
    console = Console()
    began = time.perf_counter()
    async with house(settings) as running:
        console.print(f"Everything is up after {time.perf_counter() - began:.1f} s; Temporal Web UI: {running.ui}")
        folder = settings.data_dir / "demo"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        async with aiohttp.ClientSession(base_url=running.api) as session:
            key = await _new_key(session, running)
            session.headers["Authorization"] = f"Bearer {key}"
            answer, seconds = await _export(session, running, rows, console)
            path = await _save(session, answer, folder)
        checked = await asyncio.to_thread(_check, path, rows)
        console.print(f"Checked {checked:,} rows against the source: every cell is right.")
        console.print(f"File:    {path} ({path.stat().st_size:,} bytes)")
        console.print(f"Speed:   {rows / seconds:,.0f} rows/s, {seconds:.2f} s from request to file")
        console.print(f"API:     {running.api}/docs")
        console.print(f"Web UI:  {running.ui}/namespaces/default/workflows")
    return 0


async def _new_key(session: aiohttp.ClientSession, running: House) -> str:
    headers = {"Authorization": f"Bearer {running.admin_key}"}
    async with session.post("/v1/projects", json={"name": "demo"}, headers=headers) as answer:
        key: str = (await _ok(answer))["key"]["api_key"]
        return key


async def _export(
    session: aiohttp.ClientSession, running: House, rows: int, console: Console
) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    request = {
        "source_url": f"{running.source}/rows?rows={rows}&seed={SEED}",
        "type": "csv",
        "file_name": "demo",
        "page_size": PAGE_SIZE,
    }
    async with session.post("/v1/downloads", json=request) as answer:
        task_id = (await _ok(answer))["task_id"]
    with _progress(console, rows) as show:
        async for status in _statuses(session, task_id):
            show(status)
    if status["state"] != "succeeded":
        raise DemoFailed(f"the export {status['state']}: {status['fault']}")
    return status, time.perf_counter() - began


async def _statuses(session: aiohttp.ClientSession, task_id: str) -> AsyncIterator[dict[str, Any]]:
    """Ask until the state is final."""
    while True:
        async with session.get(f"/v1/downloads/{task_id}") as answer:
            status = await _ok(answer)
        yield status
        if status["state"] not in ("pending", "running"):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _save(session: aiohttp.ClientSession, status: dict[str, Any], folder: Path) -> Path:
    path: Path = folder / status["file_name"]
    async with session.get(f"/v1/downloads/{status['task_id']}/file", allow_redirects=False) as answer:
        link = answer.headers["Location"]
    # The link carries its own signature; our key is none of the store's business.
    async with aiohttp.ClientSession() as plain, plain.get(link) as answer:
        answer.raise_for_status()
        with path.open("wb") as out:
            async for piece in answer.content.iter_chunked(READ_BYTES):
                out.write(piece)
    return path


def _check(path: Path, rows: int) -> int:
    """Compare every cell with the row that the source computes, written the way CSV writes it."""
    count = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        if next(lines) != list(sample.row(SEED, 0)):
            raise DemoFailed(f"the heads of {path} are wrong")
        for number, cells in enumerate(lines):
            expected = [_as_text(value) for value in sample.row(SEED, number).values()]
            if cells != expected:
                raise DemoFailed(f"row {number} of {path} is {cells}, not {expected}")
            count += 1
    if count != rows:
        raise DemoFailed(f"{path} has {count} rows, not {rows}")
    return count


def _as_text(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)


@contextmanager
def _progress(console: Console, rows: int) -> Iterator[Show]:
    """Bars on a terminal, plain lines elsewhere."""
    if not console.is_terminal:
        yield _line_printer(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task("waiting", total=rows)

        def show(status: dict[str, Any]) -> None:
            bars.update(bar, completed=status["rows"], description=status["phase"])

        yield show


def _line_printer(console: Console) -> Show:
    last = ""

    def show(status: dict[str, Any]) -> None:
        nonlocal last
        line = f"{status['phase']}: {status['rows']:,} of {status['total'] or 0:,} rows"
        if line != last:
            console.print(line)
            last = line

    return show


async def _ok(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    body: dict[str, Any] = await answer.json()
    if answer.status >= 400:
        raise DemoFailed(f"{answer.method} {answer.url.path} answered {answer.status}: {body.get('detail')}")
    return body

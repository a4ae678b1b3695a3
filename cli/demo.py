"""The demo: one export through the whole house, its file compared with the source row by row."""

from __future__ import annotations

import asyncio
import csv
import shutil
import time
from pathlib import Path

from rich.console import Console

from cli import export
from cli.export_progress import shown
from dev.house import House, house
from haulage import Client, Download, DownloadFailed, DownloadRequest, FileType
from infra.settings import Settings
from sims import rows as sample

PAGE_SIZE = 250
SEED = 20_260_101


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
        path, seconds = await _export(running, rows, folder)
        checked = await asyncio.to_thread(_check, path, rows)
        console.print(f"Checked {checked:,} rows against the source: every cell is right.")
        console.print(f"File:    {path} ({path.stat().st_size:,} bytes)")
        console.print(f"Speed:   {rows / seconds:,.0f} rows/s, {seconds:.2f} s from request to file")
        console.print(f"API:     {running.api}/docs")
        console.print(f"Web UI:  {running.ui}/namespaces/default/workflows")
    return 0


async def _export(running: House, rows: int, folder: Path) -> tuple[Path, float]:
    """The file on this machine, and how long the house took to make it."""
    request = DownloadRequest(
        source_url=f"{running.source}/rows?rows={rows}&seed={SEED}",
        type=FileType.CSV,
        file_name="demo",
        page_size=PAGE_SIZE,
    )
    key = await export.new_key(running.api, running.admin_key, "demo")
    async with Client(running.api, key) as client:
        with shown() as show:
            download = await client.create(request)
            async for download in client.watch(download.task_id):  # noqa: B020 (each is the last word so far)
                show.download(download)
            saved = await client.save(download, folder / download.file_name, progress=show.bytes)
    return saved.path, _seconds(download)


def _seconds(download: Download) -> float:
    """By the house's own clock: whoever watches hears of the end a little later."""
    if download.finished_at is None:
        raise DownloadFailed(download)
    return (download.finished_at - download.created_at).total_seconds()


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

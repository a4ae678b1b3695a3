"""`haulage up` and `haulage demo`: a local installation, and one export by it that is checked row by row."""

from __future__ import annotations

import asyncio
import csv
import shutil
import time
from pathlib import Path

from rich.console import Console

from cli import export
from cli.process import stop_signal
from cli.progress import show_progress
from dev.local import LocalInstallation, run_installation
from haulage import Client, Download, DownloadFailed, DownloadRequest, FileType
from infra.settings import Settings
from sims import rows as sample

PAGE_SIZE = 250
SEED = 20_260_101


class DemoFailed(Exception):
    """The exported file differs from the source."""


async def run_until_stopped(settings: Settings) -> None:
    """Start a local installation, print its addresses, and wait for SIGTERM or SIGINT."""
    console = Console(highlight=False, soft_wrap=True)
    stop = stop_signal()
    started = time.perf_counter()
    async with run_installation(settings, console.print) as running:
        console.print(f"Ready after {time.perf_counter() - started:.1f} s. Ctrl-C stops everything.")
        console.print(f"  Console          {running.api}/console  (sign in with the admin key)")
        console.print(f"  API              {running.api}  (reference: {running.api}/docs)")
        console.print(f"  Temporal Web UI  {running.ui}")
        console.print(f"  Sample source    {running.source}/rows?rows=1000")
        console.print(f"  Data             {settings.data_dir}")
        console.print(f"  Admin key        {running.admin_key}")
        await stop.wait()
        console.print("Stopping.")


async def run_demo(settings: Settings, rows: int) -> int:
    """Start a local installation, export the sample source, check the file, and stop the installation."""
    console = Console()
    started = time.perf_counter()
    async with run_installation(settings, console.print) as running:
        console.print(f"Everything is up after {time.perf_counter() - started:.1f} s; Temporal Web UI: {running.ui}")
        folder = settings.data_dir / "demo"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path, seconds = await _export(running, rows, folder)
        checked = await asyncio.to_thread(_check_file, path, rows)
        console.print(f"Checked {checked:,} rows against the source: every cell is right.")
        console.print(f"File:    {path} ({path.stat().st_size:,} bytes)")
        console.print(f"Speed:   {rows / seconds:,.0f} rows/s, {seconds:.2f} s from request to file")
        console.print(f"API:     {running.api}/docs")
        console.print(f"Web UI:  {running.ui}/namespaces/default/workflows")
    return 0


async def _export(running: LocalInstallation, rows: int, folder: Path) -> tuple[Path, float]:
    """Return the exported file, and how many seconds the export took."""
    request = DownloadRequest(
        source_url=f"{running.source}/rows?rows={rows}&seed={SEED}",
        type=FileType.CSV,
        file_name="demo",
        page_size=PAGE_SIZE,
    )
    key = await export.create_key(running.api, running.admin_key, "demo")
    async with Client(running.api, key) as client:
        with show_progress() as progress:
            download = await client.create(request)
            async for download in client.watch(download.task_id):  # noqa: B020 (each replaces the one before)
                progress.show_download(download)
            saved = await client.save(download, folder / download.file_name, progress=progress.show_bytes)
    return saved.path, _measure_seconds(download)


def _measure_seconds(download: Download) -> float:
    """Return the duration by the clock of the server; a client learns of the end a little later."""
    if download.finished_at is None:
        raise DownloadFailed(download)
    return (download.finished_at - download.created_at).total_seconds()


def _check_file(path: Path, rows: int) -> int:
    """Compare every cell with the sample source; return the number of rows.

    Raises:
        DemoFailed: A cell or the number of rows differs.
    """
    count = 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        if next(lines) != list(sample.row(SEED, 0)):
            raise DemoFailed(f"the column names of {path} are wrong")
        for number, cells in enumerate(lines):
            expected = [_format_cell(value) for value in sample.row(SEED, number).values()]
            if cells != expected:
                raise DemoFailed(f"row {number} of {path} is {cells}, not {expected}")
            count += 1
    if count != rows:
        raise DemoFailed(f"{path} has {count} rows, not {rows}")
    return count


def _format_cell(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return str(value)

"""The whole demo: a local installation of its own, all parts at once, and one table at the end."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from demo.addresses import AddressesPart
from demo.downloads import BOOK, DownloadsPart, draw_book
from demo.orders import OrdersPart
from demo.part import Demo, Part, PartDisplay
from demo.tasks import TasksPart
from demo.transfers import TransfersPart
from dev.embedded.run_file import lock_data_dir
from dev.local import LocalInstallation, run_installation
from dev.stand_ins import PORTS
from domain.faults import Invalid
from haulage.projects import create_project
from infra.settings import Settings

PARTS: tuple[type[Part], ...] = (DownloadsPart, TransfersPart, OrdersPart, AddressesPart, TasksPart)
"""The parts in the order of the table."""
PICTURE = "progress.svg"
DOWNLOADS = DownloadsPart.system


@dataclass
class Result:
    """What became of a part."""

    system: str
    seconds: float = 0.0
    done: str = ""
    checked: str = ""
    error: str = ""
    progress: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the beginning, and the share that was done then."""


async def run(
    settings: Settings, systems: Sequence[str], show_progress: Callable[[], AbstractContextManager[PartDisplay]]
) -> int:
    """Run the demo of some systems, or of all; return the exit code."""
    parts = choose_parts(systems)
    console = Console(highlight=False, soft_wrap=False)
    folder = settings.data_dir / "demo"
    await empty_folder(folder)
    started = time.perf_counter()
    console.print(f"Starting everything, with data of its own in {folder / 'data'}.")
    own = settings.model_copy(update={"data_dir": folder / "data"})
    try:
        results = await _run_in_installation(own, folder, parts, show_progress, console)
    except asyncio.CancelledError:
        console.print("The demo was stopped; nothing runs any more.")
        raise
    (folder / PICTURE).write_text(draw_progress(results))
    console.print(build_table(results))
    if (folder / DOWNLOADS / BOOK).exists():
        with console.status("Drawing the workbook"):
            console.print(await asyncio.to_thread(draw_book, folder / DOWNLOADS), soft_wrap=True)
    for result in results:
        if result.error:
            console.print(f"{result.system}: {result.error}", style="red", markup=False)
    if not any(result.error for result in results):
        console.print(f"All checks passed, {time.perf_counter() - started:.0f} s in all, start and stop included.")
    console.print(f"Files and pictures are in {folder}. To look at all of it again:")
    console.print(f"  .venv/bin/haulage up --data-dir {folder / 'data'}", soft_wrap=True)
    return 1 if any(result.error for result in results) else 0


async def _run_in_installation(
    settings: Settings,
    folder: Path,
    parts: Sequence[Part],
    show_progress: Callable[[], AbstractContextManager[PartDisplay]],
    console: Console,
) -> list[Result]:
    """Start everything, run the parts, and stop everything."""
    started = time.perf_counter()
    async with AsyncExitStack() as held:
        with console.status("Starting engine, database, object store, API, workers and stand-ins"):
            running = await held.enter_async_context(run_installation(settings, console.print, tuple(PORTS)))
        console.print(f"Everything is up after {time.perf_counter() - started:.1f} s.")
        session = await held.enter_async_context(aiohttp.ClientSession())
        demo = await build_demo(running, session, folder)
        with show_progress() as progress:
            return await run_parts(demo, parts, progress)


async def empty_folder(folder: Path) -> None:
    """Remove what the last demo left, and end what still runs of it if it was killed.

    Raises:
        Conflict: An installation runs there.
    """
    if (folder / "data").exists():
        with lock_data_dir(folder / "data") as run_file:
            await run_file.end_leftover_processes_and_clear_recorded_parts()
    shutil.rmtree(folder, ignore_errors=True)


def choose_parts(systems: Sequence[str]) -> list[Part]:
    """Return new parts of these systems, or of all.

    Raises:
        Invalid: There is no such system.
    """
    parts = [kind() for kind in PARTS]
    known = [part.system for part in parts]
    if unknown := sorted(set(systems) - set(known)):
        raise Invalid("unknown_system", f"No such system: {', '.join(unknown)}.", f"Choose from {', '.join(known)}.")
    return [part for part in parts if not systems or part.system in systems]


async def build_demo(running: LocalInstallation, session: aiohttp.ClientSession, folder: Path) -> Demo:
    """Create the demo's project, and return what every part is given."""
    key = await create_project(running.api, running.admin_key, "demo")
    stand_in_folder = running.settings.data_dir / "stand-ins"
    return Demo(running.api, key, running.admin_key, running.stand_ins, stand_in_folder, folder, session)


async def run_parts(demo: Demo, parts: Sequence[Part], progress: PartDisplay) -> list[Result]:
    """Run all parts at once; a part that fails disturbs no other."""
    return list(await asyncio.gather(*(_run_part(demo, part, progress) for part in parts)))


async def _run_part(demo: Demo, part: Part, progress: PartDisplay) -> Result:
    own = replace(demo, folder=demo.folder / part.system)
    own.folder.mkdir(parents=True, exist_ok=True)
    result, started = Result(part.system), time.perf_counter()

    def show(done: int, total: int | None, text: str) -> None:
        result.progress.append((time.perf_counter() - started, done / total if total else 0.0))
        progress.show(part.system, done, total, text)

    try:
        await part.prepare(own)
        result.done = await part.run(own, show)
        result.seconds = time.perf_counter() - started
        progress.show(part.system, 1, 1, "done, checking the outcome")
        result.checked = await part.check(own)
        progress.show(part.system, 1, 1, "checked")
    except Exception as error:  # noqa: BLE001 (whatever stops a part is its result)
        result.seconds = result.seconds or time.perf_counter() - started
        result.error = str(error) or type(error).__name__
        progress.show(part.system, 1, 1, "failed")
    return result


def build_table(results: Sequence[Result]) -> Table:
    """Return the table of all parts."""
    table = Table("system", "what was done", "what was checked", "seconds")
    for result in results:
        checked = "[red]failed, see below" if result.error else result.checked
        table.add_row(result.system, result.done, checked, f"{result.seconds:.1f}")
    return table


def draw_progress(results: Sequence[Result]) -> str:
    """Return an SVG picture: the share that each system had done, by time."""
    width, height, left = 720, 60, 110
    longest = max((seconds for result in results for seconds, _ in result.progress), default=0.0) or 1.0
    lines = []
    for place, result in enumerate(results):
        top = 30 + place * (height + 20)
        points = " ".join(
            f"{left + seconds / longest * (width - left - 20):.1f},{top + height * (1 - share):.1f}"
            for seconds, share in result.progress
        )
        lines.append(f'<text x="10" y="{top + height / 2}">{escape(result.system)}</text>')
        lines.append(f'<line x1="{left}" x2="{width - 20}" y1="{top + height}" y2="{top + height}" stroke="#c5ccd6"/>')
        lines.append(f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="2"/>')
    bottom = 30 + len(results) * (height + 20)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 20}" font-family="sans-serif" '
        f'font-size="14"><rect width="100%" height="100%" fill="white"/>{"".join(lines)}'
        f'<text x="{left}" y="{bottom + 5}" fill="#59636e">share of the work that is done, by time</text>'
        f'<text x="{width - 20}" y="{bottom + 5}" text-anchor="end">{longest:.1f} seconds</text></svg>\n'
    )

"""`haulage demo` as it is typed: bars on a terminal, plain lines elsewhere, a table, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shutil
import sys
from pathlib import Path

import pytest

from cli.progress import show_progress
from cli.up import EXAMPLES
from demo.downloads import BOOK, draw_book
from demo.part import Demo, Show
from demo.running import PARTS, PICTURE, Result, build_table, choose_parts, draw_progress, empty_folder, run_parts
from dev.embedded.run_file import lock_data_dir
from domain.faults import Conflict
from systems import SYSTEMS

ROOT = Path(__file__).parents[2]
SECONDS = 300.0


async def type_demo(data_dir: Path, *systems: str, terminal: bool) -> tuple[int | None, str]:
    """Type it; return the exit code, and everything that it printed."""
    ours, theirs = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "demo", *systems, "--data-dir", str(data_dir)),
        cwd=ROOT,
        env={**clean, "TERM": "xterm", "COLUMNS": "160"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=theirs if terminal else asyncio.subprocess.PIPE,
        stderr=theirs if terminal else asyncio.subprocess.STDOUT,
    )
    os.close(theirs)
    if terminal:
        printed = await asyncio.wait_for(asyncio.to_thread(_read_terminal, ours), SECONDS)
        await process.wait()
    else:
        printed, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    os.close(ours)
    return process.returncode, printed.decode(errors="replace")


def _read_terminal(descriptor: int) -> bytes:
    printed = b""
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux says so that the other end is closed
            return printed
        if not piece:
            return printed
        printed += piece


@pytest.mark.long
async def test_bars_on_a_terminal(tmp_path: Path) -> None:
    """Bars move while the work is under way; a table tells the end, and files and a picture are left."""
    code, printed = await type_demo(tmp_path, "downloads", terminal=True)

    assert code == 0, printed
    assert "\x1b[" in printed
    assert "━" in printed
    assert len(set(re.findall(r"([\d,]+) of 220,000 rows", printed))) > 1
    assert "what was checked" in printed
    left = tmp_path / "demo"
    files = {path.name for path in (left / "downloads").iterdir()}
    assert files - {"orders.pdf"} == {"orders.csv", BOOK}
    assert "<polyline" in (left / PICTURE).read_text()
    if "orders.pdf" in files:
        assert (left / "downloads" / "orders.pdf").read_bytes().startswith(b"%PDF")
    assert ("as LibreOffice shows it" in printed) is ("orders.pdf" in files)
    assert ("orders.pdf" in files) is (shutil.which("soffice") is not None)


async def test_without_libreoffice_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how else to look at the workbook."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert draw_book(tmp_path).startswith("LibreOffice is not installed")


async def test_an_unknown_system_is_refused(tmp_path: Path) -> None:
    """In a sentence that names those that there are; nothing is started."""
    code, printed = await type_demo(tmp_path, "emails", terminal=False)

    assert (code, "Choose from" in printed, (tmp_path / "demo").exists()) == (2, True, False), printed


async def test_a_running_installation_is_not_removed(tmp_path: Path) -> None:
    """The demo empties its folder, but never below one that runs there."""
    data_dir = tmp_path / "demo" / "data"
    data_dir.mkdir(parents=True)
    with lock_data_dir(data_dir), pytest.raises(Conflict):
        await empty_folder(tmp_path / "demo")
    assert data_dir.exists()

    await empty_folder(tmp_path / "demo")

    assert not data_dir.exists()


async def test_a_part_that_fails_disturbs_no_other(tmp_path: Path, capfd: object) -> None:
    """Its row says so, and the other's says what was checked; without a terminal progress is plain lines."""

    class Good:
        system = "good"

        async def prepare(self, demo: Demo) -> None:
            del demo

        async def run(self, demo: Demo, show: Show) -> str:
            for done in range(11):
                show(done, 10, f"{done} of 10")
            return "counted"

        async def check(self, demo: Demo) -> str:
            return "the count"

    class Bad(Good):
        system = "bad"

        async def check(self, demo: Demo) -> str:
            raise RuntimeError("nine is missing")

    demo = Demo("", "", "", {}, tmp_path, tmp_path, None)  # type: ignore[arg-type]
    with show_progress() as progress:
        good, bad = await run_parts(demo, [Good(), Bad()], progress)

    assert (good.done, good.checked, good.error) == ("counted", "the count", "")
    assert (bad.done, bad.error) == ("counted", "nine is missing")
    assert build_table([good, bad]).row_count == 2


def test_every_system_has_a_part() -> None:
    """In the demo, and a line to paste."""
    shown = [part.system for part in choose_parts([])]

    assert shown == [each.system for each in EXAMPLES]
    assert set(shown) <= set(SYSTEMS)
    assert len(PARTS) == len(set(shown))


def test_the_picture_has_a_line_for_each_system() -> None:
    """From its beginning to its end."""
    picture = draw_progress([Result("a", progress=[(0.0, 0.0), (2.0, 1.0)]), Result("b", progress=[(1.0, 1.0)])])

    assert picture.count("<polyline") == 2
    assert "2.0 seconds" in picture

"""A `haulage up` with all stand-ins, as a newcomer starts it, for the tests of each module of this folder."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from demo.part import Demo
from dev.stand_ins import PORTS

ROOT = Path(__file__).parents[2]
START_SECONDS = 300.0


@dataclass(frozen=True)
class Up:
    """A running `haulage up`."""

    folder: Path
    """What a newcomer calls the folder of the repository: `.venv/bin/haulage` and `.haulage` are in it."""
    printed: str

    @property
    def data_dir(self) -> Path:
        """Where it keeps everything."""
        return self.folder / ".haulage"

    def find(self, name: str) -> str:
        """Return what it printed behind a name."""
        found = re.search(rf"^  {re.escape(name)} +(\S+)", self.printed, re.MULTILINE)
        assert found, f"{name} is not in {self.printed}"
        return found[1]

    def demo(self, session: aiohttp.ClientSession, folder: Path) -> Demo:
        """Return what a part of the demo is given."""
        stand_ins = {name: self.find(name).rstrip("/") for name in PORTS}
        return Demo(
            api=self.find("API"),
            key=self.find("Project key"),
            admin_key=self.find("Admin key"),
            stand_ins=stand_ins,
            stand_in_folder=self.data_dir / "stand-ins",
            folder=folder,
            session=session,
        )


@pytest.fixture(scope="module")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Up]:
    """Start it in a folder that looks like a clone, and stop it with Ctrl-C.

    Each module has its own: the parts of the demo leave modules that differ, and a page shows them equal.
    """
    folder = tmp_path_factory.mktemp("clone")
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, arguments in (("haulage", "-m cli "), ("python", "")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {arguments}"$@"\n')
        program.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    process = await asyncio.create_subprocess_exec(
        programs / "haulage", "up", cwd=folder, env=clean, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        yield Up(folder, await asyncio.wait_for(_read_start(process), START_SECONDS))
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def _read_start(process: asyncio.subprocess.Process) -> str:
    """Return what it prints until the last line of its start."""
    assert process.stdout is not None
    printed = ""
    while not printed.endswith("\n\n"):
        line = (await process.stdout.readline()).decode()
        assert line, f"it ended after {printed}"
        printed += line
    return printed


@pytest.fixture
async def demo(up: Up, tmp_path: Path) -> AsyncIterator[Demo]:
    """What a part of the demo is given."""
    async with aiohttp.ClientSession() as session:
        yield up.demo(session, tmp_path)

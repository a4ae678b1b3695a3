"""Ctrl-C before everything is ready: one sentence, an exit code, and nothing that runs on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.embedded.run_file import read_run_state
from tests.demo.conftest import ROOT
from tests.support.selecting import mark_long_except
from tests.support.waiting import POLL_SECONDS

SECONDS = 300.0


def has_begun(data_dir: Path) -> bool:
    """Whether a component was started."""
    return bool(read_run_state(data_dir / "run.json").parts)


def has_component(data_dir: Path) -> bool:
    """Whether a component serves, while others start."""
    return any(part.ready_seconds for part in read_run_state(data_dir / "run.json").parts.values())


def has_api(data_dir: Path) -> bool:
    """Whether API processes were forked."""
    return "api-1" in read_run_state(data_dir / "run.json").parts


@pytest.mark.parametrize("moment", mark_long_except([has_begun, has_component, has_api], [has_api]))
async def test_a_start_ends_in_one_sentence(tmp_path: Path, moment: Callable[[Path], bool]) -> None:
    """At whatever moment; and the next start finds a folder that it can use."""
    data_dir = tmp_path / "data"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAULAGE_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "up", "--no-stand-ins", "--data-dir", str(data_dir)),
        cwd=ROOT,
        env=clean,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS):
        while not moment(data_dir):  # noqa: ASYNC110 (another process writes it)
            await asyncio.sleep(POLL_SECONDS)
    process.send_signal(signal.SIGINT)
    printed, _ = await asyncio.wait_for(process.communicate(), SECONDS)

    assert (process.returncode, printed.decode().splitlines()[-1:]) == (
        130,
        ["Stopped before everything was ready; nothing runs any more."],
    )
    assert b"Traceback" not in printed
    assert read_run_state(data_dir / "run.json").parts == {}

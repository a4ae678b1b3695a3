"""Programs that do tasks: they end with all that they have started, and leave nothing open."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli import tasks
from dev.embedded.processes import read_process_identity
from tests.support.task_queue import make_held_task
from tests.support.waiting import eventually


async def test_a_program_ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """A task that another worker holds by now was done on by what the killed program had started."""
    started = tmp_path / "pid"
    program = ["sh", "-c", f"sleep 60 & echo $! > {started}; wait"]
    running = asyncio.ensure_future(tasks.build_program_handler(program)(make_held_task(1)))
    await eventually(lambda: started.exists() and started.read_text().strip())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: read_process_identity(int(started.read_text())) is None)


async def test_a_program_that_is_cancelled_while_it_is_started_ends_with_all_that_it_has_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The start alone was cancelled: on a busy machine a program had started others by then, which went on."""
    started, cancelled, start = tmp_path / "pid", asyncio.Event(), asyncio.create_subprocess_exec

    async def start_slowly(*arguments: str, **options: Any) -> asyncio.subprocess.Process:
        child = await start(*arguments, **options)
        await cancelled.wait()
        return child

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_slowly)
    program = ["sh", "-c", f"sleep 60 & echo $! > {started}; wait"]
    running = asyncio.ensure_future(tasks.build_program_handler(program)(make_held_task(1)))
    await eventually(lambda: started.exists() and started.read_text().strip())
    running.cancel()
    await asyncio.sleep(0)
    cancelled.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: read_process_identity(int(started.read_text())) is None, timeout=20)


async def test_a_program_whose_work_goes_on_after_its_end_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A task of a program that left a process with its standard error was held for ever, or lost that work."""
    monkeypatch.setattr(tasks, "LEFT_SECONDS", 0.2)
    started = tmp_path / "pid"
    program = ["sh", "-c", f"sleep 60 & echo $! > {started}"]
    async with asyncio.timeout(20):
        with pytest.raises(tasks.ProgramFailed, match=r"exited with 0, but what it started .* 0\.2 s later, and was"):
            await tasks.build_program_handler(program)(make_held_task(1))
    await eventually(lambda: read_process_identity(int(started.read_text())) is None)


async def test_what_a_program_starts_in_another_group_is_neither_waited_for_nor_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said to be killed, and each such task left a pipe open."""
    monkeypatch.setattr(tasks, "LEFT_SECONDS", 0.2)
    monkeypatch.setattr(tasks, "KILLED_SECONDS", 0.2)
    started = tmp_path / "pid"
    script = f"import os, time; os.setsid(); open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    program = ["sh", "-c", f'"$@" & while [ ! -s {started} ]; do sleep 0.05; done', "sh", sys.executable, "-c", script]
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    async with asyncio.timeout(20):
        await tasks.build_program_handler(program)(make_held_task(1))
    assert "what it started in another group still has its standard error" in capsys.readouterr().err
    await eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= open_before)
    os.kill(int(started.read_text()), signal.SIGKILL)


async def test_a_task_without_room_for_its_content_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt on a full disk left both ends of a pipe open."""

    def refuse() -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="No space left"):
        await tasks.build_program_handler(["true"])(make_held_task(1))
    assert len(list(Path("/proc/self/fd").iterdir())) <= open_before


async def test_a_program_that_prints_much_needs_no_memory(capfd: pytest.CaptureFixture[str]) -> None:
    """Its errors are passed on as they come; the end of them is the reason of the failure."""
    program = [sys.executable, "-c", "import sys; sys.stderr.write('ü' * 300_000 + 'last'); sys.exit(3)"]
    with pytest.raises(tasks.ProgramFailed, match=r"exited with 3: ü{296}last$"):
        await tasks.build_program_handler(program)(make_held_task(1))
    assert len(capfd.readouterr().err) == 300_004

"""The supervisor, on shell scripts: starts, restarts, waits for the slow, gives up with the reason, stops in order."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from dev.embedded import processes
from dev.embedded import supervisor as supervisors
from dev.embedded.run_file import lock_data_dir
from dev.embedded.supervisor import NotReady, ProcessSpec, ProcessSupervisor, StartFailed, run_supervisor
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[ProcessSupervisor]:
    """A supervisor with nothing to do yet."""
    with lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            yield supervisor


def script(
    folder: Path,
    name: str,
    text: str,
    *,
    silence_seconds: float = PATIENCE_SECONDS,
    stop_timeout_seconds: float = PATIENCE_SECONDS,
) -> ProcessSpec:
    """A part that serves once it wrote its name with the ending `.ready`."""

    async def ready() -> None:
        if not (folder / f"{name}.ready").exists():
            raise NotReady(f"{name} wrote nothing")

    return ProcessSpec(
        name=name,
        argv=["/bin/sh", "-c", text],
        env={"PATH": os.defpath},
        folder=folder,
        ready=ready,
        silence_seconds=silence_seconds,
        stop_timeout_seconds=stop_timeout_seconds,
    )


async def test_a_part_that_dies_is_started_again(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    """After any kill it comes back, as another process."""
    await supervisor.start(script(tmp_path, "lamp", "touch lamp.ready; exec sleep 60"))
    first = supervisor.list_pids()["lamp"]
    supervisor.kill_and_let_restart("lamp")
    await supervisor.wait_until_ready("lamp")
    assert supervisor.list_pids()["lamp"] != first
    assert processes.read_process_identity(first) is None


async def test_a_part_that_has_served_is_started_again_whatever_its_preparation_raises(
    supervisor: ProcessSupervisor, tmp_path: Path
) -> None:
    """Such as for a file that a power failure left half written: it stayed down, and the command went on without it."""
    errors: list[Exception] = []

    async def prepare() -> None:
        if errors:
            raise errors.pop()

    await supervisor.start(replace(script(tmp_path, "lamp", "touch lamp.ready; exec sleep 60"), prepare=prepare))
    first = supervisor.list_pids()["lamp"]
    errors.append(ValueError("no number"))
    supervisor.kill_and_let_restart("lamp")
    await supervisor.wait_until_ready("lamp")
    assert not errors
    assert supervisor.list_pids()["lamp"] != first


async def test_a_log_is_made_short_while_its_process_runs(
    supervisor: ProcessSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was only made short at a start: one that runs for months filled the disk."""
    monkeypatch.setattr(processes, "LOG_MAX_BYTES", 1_000)
    monkeypatch.setattr(supervisors, "LOGS_LOOKED_AT_SECONDS", 0.05)
    text = "touch lamp.ready; while true; do echo a line of the lamp; sleep 0.001; done"
    async with run_supervisor(supervisor._run_file, tmp_path / "logs") as shortening:
        await shortening.start(script(tmp_path, "lamp", text))
        log, earlier = tmp_path / "logs" / "lamp.log", tmp_path / "logs" / "lamp.log.1"
        await eventually(lambda: earlier.exists() and 0 < log.stat().st_size < 1_000)
        first = earlier.stat().st_mtime_ns
        await eventually(lambda: earlier.stat().st_mtime_ns > first)
    assert set(log.read_text().splitlines()) <= {"a line of the lamp"}


async def test_a_part_that_cannot_start_says_why(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    """The exit code, the last lines of its log, and what to do; not a time-out."""
    with pytest.raises(StartFailed) as failed:
        await supervisor.start(script(tmp_path, "lamp", "echo no oil; exit 3"))
    assert failed.value.record.message == "lamp did not start: it ended with exit code 3."
    assert "Its last lines:\nno oil\n" in failed.value.record.hint
    assert f"All of its output is in {tmp_path / 'logs' / 'lamp.log'}." in failed.value.record.hint
    assert "start again" in failed.value.record.hint


async def test_what_was_started_with_a_part_that_fails_is_stopped(
    supervisor: ProcessSupervisor, tmp_path: Path
) -> None:
    """The group can be started again under the same names."""
    oil = script(tmp_path, "oil", "touch oil.ready; exec sleep 60")
    with pytest.raises(StartFailed):
        await supervisor.start(oil, script(tmp_path, "lamp", "exit 3"))
    assert not supervisor.list_pids()
    await supervisor.start(oil, script(tmp_path, "lamp", "touch lamp.ready; exec sleep 60"))
    assert supervisor.list_pids().keys() == {"oil", "lamp"}


async def test_two_running_parts_never_have_one_name(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    """A kill would hit one, and the pids would show the other. The one that runs is left alone."""
    lamp = script(tmp_path, "lamp", "touch lamp.ready; exec sleep 60")
    await supervisor.start(lamp)
    before = supervisor.list_pids()
    with pytest.raises(ValueError, match="lamp: running already"):
        await supervisor.start(lamp, script(tmp_path, "oil", "touch oil.ready; exec sleep 60"))
    assert supervisor.list_pids() == before
    await supervisor.stop_group(lamp)
    await supervisor.start(lamp)


async def test_a_silent_part_is_given_up(supervisor: ProcessSupervisor, tmp_path: Path) -> None:
    """It neither writes nor computes: it is killed, started again, and in the end given up with the last obstacle."""
    with pytest.raises(StartFailed, match=r"neither wrote a line nor used processor time; lamp wrote nothing"):
        await supervisor.start(script(tmp_path, "lamp", "echo $$ >> pids; exec sleep 60", silence_seconds=0.15))
    assert not supervisor.list_pids()
    started = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(started) == supervisors.FIRST_ATTEMPTS
    await eventually(lambda: not any(processes.read_process_identity(pid) for pid in started))


SLOW = """
echo start >> starts; rounds=0
while [ $rounds -lt 12 ]; do {work}; rounds=$((rounds+1)); done
touch lamp.ready; exec sleep 60
"""


@pytest.mark.parametrize(
    "work",
    [
        "echo $rounds; sleep 0.1",
        "until=$(($(date +%s%N) / 1000000 + 100)); while [ $(($(date +%s%N) / 1000000)) -lt $until ]; do :; done",
    ],
    ids=["it writes", "it computes"],
)
async def test_a_slow_part_is_never_killed(
    supervisor: ProcessSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """It takes many times as long as silence may, and is started once."""
    monkeypatch.setattr(processes, "IDLE_CPU_SECONDS", 0.02)
    monkeypatch.setattr(supervisors, "PROBE_PAUSE_SECONDS", 0.1)
    began = time.monotonic()
    await supervisor.start(script(tmp_path, "lamp", SLOW.replace("{work}", work), silence_seconds=0.6))
    assert time.monotonic() - began > 0.6
    assert (tmp_path / "starts").read_text() == "start\n"


async def test_a_busy_machine_gives_more_time(
    supervisor: ProcessSupervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten processes wait for each core: what shows no sign of life for two seconds may be waiting for its turn."""
    monkeypatch.setattr(processes, "measure_load_per_core_at_least_one", lambda: 1_000.0)
    text = "echo start >> starts; sleep 0.5; touch lamp.ready; exec sleep 60"
    await supervisor.start(script(tmp_path, "lamp", text, silence_seconds=0.01))
    assert (tmp_path / "starts").read_text() == "start\n"


async def test_what_takes_long_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is late, with what, and for how long; nothing once all serve."""
    monkeypatch.setattr(processes, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(processes, "EXPLAINED_SECONDS", math.inf)
    lines: list[str] = []
    with lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs", lines.append) as supervisor:
            quick = script(tmp_path, "quick", "touch quick.ready; exec sleep 60")
            slow = [
                script(tmp_path, name, f"until [ -e go ]; do sleep 0.05; done; touch {name}.ready; exec sleep 60")
                for name in ("api-1", "api-2")
            ]
            start = asyncio.create_task(supervisor.start(quick, *slow))
            await eventually(lambda: lines and re.fullmatch(r"api-1, api-2: still starting, \d+ s", lines[-1]))
            monkeypatch.setattr(processes, "EXPLAINED_SECONDS", 0.2)
            why = "; ".join(rf"{name}: still starting, \d+ s \({name} wrote nothing\)" for name in ("api-1", "api-2"))
            await eventually(lambda: re.fullmatch(why, lines[-1]))
            (tmp_path / "go").touch()
            await start
            assert supervisor.report.describe_slow_steps() == ""


async def test_what_started_last_stops_first(tmp_path: Path) -> None:
    """Workers let go of the database before it closes."""
    text = "trap 'echo {0} >> stops; exit 0' TERM; touch {0}.ready; while :; do sleep 0.01; done"
    with lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            await supervisor.start(script(tmp_path, "database", text.format("database")))
            await supervisor.start(script(tmp_path, "worker", text.format("worker")))
    assert (tmp_path / "stops").read_text().split() == ["worker", "database"]


async def test_what_has_not_started_yet_is_stopped(tmp_path: Path) -> None:
    """Nothing is left behind where the supervisor ends while a group starts."""
    with lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            waiting = [script(tmp_path, name, "until [ -e go ]; do sleep 0.05; done") for name in ("one", "two")]
            start = asyncio.create_task(supervisor.start(*waiting))
            await eventually(lambda: len(supervisor.list_pids()) == len(waiting))
            pids = list(supervisor.list_pids().values())
    await asyncio.wait({start})
    await eventually(lambda: not any(processes.read_process_identity(pid) for pid in pids))
    assert run_file.state.parts == {}


async def test_a_part_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    """A stop ends, with everything that the part had started."""
    text = "trap '' TERM; sleep 60 & echo $! > child; touch mule.ready; while :; do sleep 0.01; done"
    with lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            await supervisor.start(script(tmp_path, "mule", text, stop_timeout_seconds=0.1))
            pids = [supervisor.list_pids()["mule"], int((tmp_path / "child").read_text())]
    await eventually(lambda: not any(processes.read_process_identity(pid) for pid in pids))
    assert run_file.state.parts == {}

"""The supervisor, on shell scripts: starts, restarts, gives up with the reason, stops in order."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dev.embedded import NotReady, ProcessSpec, StartFailed, processes
from dev.embedded.supervisor import Supervisor, run_supervisor
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    """A supervisor with nothing to do yet."""
    with processes.lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            yield supervisor


def script(
    folder: Path,
    name: str,
    text: str,
    *,
    ready_timeout_seconds: float = PATIENCE_SECONDS,
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
        ready_timeout_seconds=ready_timeout_seconds,
        stop_timeout_seconds=stop_timeout_seconds,
    )


async def test_a_part_that_dies_is_started_again(supervisor: Supervisor, tmp_path: Path) -> None:
    """Whoever kills it, it comes back, as another process."""
    await supervisor.start(script(tmp_path, "lamp", "touch lamp.ready; exec sleep 60"))
    first = supervisor.list_pids()["lamp"]
    supervisor.kill("lamp")
    await supervisor.wait_until_ready("lamp")
    assert supervisor.list_pids()["lamp"] != first
    assert processes.read_identity(first) is None


async def test_a_part_that_cannot_start_says_why(supervisor: Supervisor, tmp_path: Path) -> None:
    """The exit code and the last lines of its log, not a time-out."""
    with pytest.raises(StartFailed, match=r"The component lamp did not start: it ended with exit code 3\.\nno oil"):
        await supervisor.start(script(tmp_path, "lamp", "echo no oil; exit 3"))


async def test_a_part_that_never_serves_is_given_up(supervisor: Supervisor, tmp_path: Path) -> None:
    """It runs, but does not answer: the reason is what the last question found."""
    with pytest.raises(StartFailed, match=r"did not serve within 0\.3 s; lamp wrote nothing"):
        await supervisor.start(script(tmp_path, "lamp", "exec sleep 60", ready_timeout_seconds=0.3))
    assert not supervisor.list_pids()


async def test_what_started_last_stops_first(tmp_path: Path) -> None:
    """Workers let go of the database before it closes."""
    text = "trap 'echo {0} >> stops; exit 0' TERM; touch {0}.ready; while :; do sleep 0.01; done"
    with processes.lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            await supervisor.start(script(tmp_path, "database", text.format("database")))
            await supervisor.start(script(tmp_path, "worker", text.format("worker")))
    assert (tmp_path / "stops").read_text().split() == ["worker", "database"]


async def test_a_part_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    """A stop ends, with everything that the part had started."""
    text = "trap '' TERM; sleep 60 & echo $! > child; touch mule.ready; while :; do sleep 0.01; done"
    with processes.lock_data_dir(tmp_path) as run_file:
        async with run_supervisor(run_file, tmp_path / "logs") as supervisor:
            await supervisor.start(script(tmp_path, "mule", text, stop_timeout_seconds=0.1))
            pids = [supervisor.list_pids()["mule"], int((tmp_path / "child").read_text())]
    await eventually(lambda: not any(processes.read_identity(pid) for pid in pids))
    assert run_file.state.parts == {}

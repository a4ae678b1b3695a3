"""The record of a run: whose processes these are, and who may end them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli import serving
from dev.embedded import processes
from dev.embedded.environment import (
    ENVIRONMENT_FILE,
    MARKER_VARIABLE,
    set_environment_of_running_installation,
    write_environment_file_while_running,
)
from dev.embedded.processes import ProcessLog, RecordedProcess
from dev.embedded.run_file import (
    RunFileContent,
    create_data_folder,
    lock_data_dir,
    record_supervisor,
    replace_private_file,
)
from dev.embedded.stack import run_stack
from dev.embedded.supervisor import ProcessSupervisor, StartFailed
from domain import faults
from infra.settings import Settings
from infra.stopping import REQUEST_SHUTDOWN_SECONDS
from tests.support.waiting import PATIENCE_SECONDS


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stays until it is ended."""
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        yield process
        process.kill()


def leave_behind(folder: Path, recorded: RecordedProcess) -> None:
    """A record as a killed supervisor leaves it."""
    (folder / "run.json").write_text(RunFileContent(parts={"database": recorded}).model_dump_json())


async def test_a_leftover_is_ended(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a parent-death signal the parts outlive a killed supervisor; the next one ends them."""
    monkeypatch.setattr("dev.embedded.run_file.GRACE_SECONDS", PATIENCE_SECONDS)
    leave_behind(tmp_path, RecordedProcess.from_pid(child.pid, signal.SIGTERM))
    with lock_data_dir(tmp_path) as run_file:
        await run_file.end_leftover_processes_and_clear_recorded_parts()
    assert child.wait(PATIENCE_SECONDS) == -signal.SIGTERM


async def test_a_process_that_got_the_pid_of_a_leftover_is_spared(
    tmp_path: Path, child: subprocess.Popen[bytes]
) -> None:
    """Pids are reused: the start time must match too."""
    leave_behind(tmp_path, RecordedProcess(pid=child.pid, identity="another boot/1"))
    with lock_data_dir(tmp_path) as run_file:
        await run_file.end_leftover_processes_and_clear_recorded_parts()
    assert child.poll() is None


def test_identities_tell_processes_apart(child: subprocess.Popen[bytes]) -> None:
    """The same for one process whenever asked, None for one that ended even before its parent took notice."""
    own = processes.read_process_identity(os.getpid())
    assert own == processes.read_process_identity(os.getpid()) != processes.read_process_identity(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert processes.read_process_identity(child.pid) is None


def test_a_held_folder_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """The second one learns who holds it, since when, and what to do."""
    with lock_data_dir(tmp_path) as run_file:
        record_supervisor(run_file)
        with pytest.raises(faults.Conflict) as refused, lock_data_dir(tmp_path):
            pass
    assert f"held by process {os.getpid()} since 2" in refused.value.record.message
    assert "HAULAGE_DATA_DIR" in refused.value.record.hint


def test_a_folder_that_is_removed_while_it_is_held_ends_cleanly(tmp_path: Path) -> None:
    """Someone removes all data beneath a running installation: its end raises nothing."""
    folder = create_data_folder(tmp_path / "data")
    with lock_data_dir(folder), write_environment_file_while_running(folder, {}):
        shutil.rmtree(folder)


def test_variables_reach_other_commands_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they hold: a value of two lines ended every command with a traceback."""
    variables = {"HAULAGE_A": "two\nlines, 'quoted'", "HAULAGE_B": "", "HAULAGE_C": "a b"}
    monkeypatch.delenv(MARKER_VARIABLE, raising=False)
    for name in variables:
        monkeypatch.setenv(name, "to be removed at the end")
    with lock_data_dir(tmp_path) as run_file, write_environment_file_while_running(tmp_path, variables):
        record_supervisor(run_file)
        assert (tmp_path / ENVIRONMENT_FILE).stat().st_mode & 0o777 == 0o600
        assert set_environment_of_running_installation(tmp_path)
        assert {name: os.environ[name] for name in variables} == variables
    assert not (tmp_path / ENVIRONMENT_FILE).exists()


async def test_variables_of_a_killed_supervisor_are_removed_before_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that were typed while it started got ports and secrets of the one before."""
    (tmp_path / ENVIRONMENT_FILE).write_text("HAULAGE_DATABASE__URL=stale\n")

    async def look_while_starting(*_: object) -> None:
        assert not (tmp_path / ENVIRONMENT_FILE).exists()
        raise StartFailed("database", "this test ends here")

    monkeypatch.setattr(ProcessSupervisor, "start", look_while_starting)
    with pytest.raises(StartFailed, match="this test ends here"):
        async with run_stack(tmp_path, ui=False):
            pass


def test_a_private_file_outlasts_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content is on the disk before its name, and its name before the function returns."""
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(stat.S_ISDIR(os.fstat(number).st_mode)))
    replace_private_file(tmp_path / "secrets.json", "{}")
    assert synced == [False, True]
    assert [path.name for path in tmp_path.iterdir()] == ["secrets.json"]


async def test_a_group_of_processes_whose_first_one_ends_by_itself_has_failed() -> None:
    """A service manager that starts again what has failed left the service down, as the exit code was 0."""
    assert await serving._run_processes_as_group(("--version",), "HAULAGE_TEST_PORT", 0, 1, 20.0) == 1


async def test_a_process_of_a_group_that_does_not_stop_is_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The group waited for it for ever, and was not started again."""
    start = asyncio.create_subprocess_exec
    scripts = iter(["sleep 1", "trap '' TERM; exec sleep 60"])

    async def start_script(*_: str, env: Mapping[str, str]) -> asyncio.subprocess.Process:
        return await start("sh", "-c", next(scripts), env=env)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_script)
    async with asyncio.timeout(20):
        assert await serving._run_processes_as_group((), "HAULAGE_TEST_PORT", 0, 2, 0.2) == 1
    assert "1 processes did not stop within 0.2 s, and are killed." in capsys.readouterr().err


async def test_processes_have_the_time_to_stop_that_they_may_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker killed between GSE's beginning and its answer has the file sent again; an API ended no holds."""
    patience: list[float] = []

    async def run_group(*arguments: Any) -> int:
        patience.append(arguments[-1])
        return 0

    monkeypatch.setattr(serving, "_run_processes_as_group", run_group)
    settings = Settings(_env_file=None, gse={"connect_timeout_seconds": 20, "answer_timeout_seconds": 70})
    await serving.serve_workers(settings, [], 2)
    await serving.serve_apis(settings, 2)
    assert patience[0] > settings.engine.graceful_shutdown_seconds + 20 + 70
    assert patience[1] > 2 * REQUEST_SHUTDOWN_SECONDS


def test_a_folder_is_free_again_after_its_holder(tmp_path: Path) -> None:
    """A lock goes with its holder."""
    with lock_data_dir(tmp_path):
        pass
    with lock_data_dir(tmp_path) as run_file:
        assert run_file.state.supervisor is None


@pytest.mark.parametrize("content", [b"", b'{"ports": {"api"', b"[1]", b"\xff\x00"])
def test_a_damaged_record_does_not_stop_a_start(tmp_path: Path, content: bytes) -> None:
    """A power cut may leave an empty file, and leaves no process. The user is told, and the file is written again."""
    (tmp_path / "run.json").write_bytes(content)
    with lock_data_dir(tmp_path) as run_file:
        assert run_file.state == RunFileContent()
        assert f"{tmp_path / 'run.json'} is damaged" in run_file.damage
    with lock_data_dir(tmp_path) as run_file:
        assert not run_file.damage


def test_a_record_that_cannot_be_written_does_not_stop_what_runs(tmp_path: Path) -> None:
    """On a full disk components can still be stopped."""
    with lock_data_dir(tmp_path) as run_file:
        (tmp_path / "run.new").mkdir()  # as good as a full disk: nothing can be written there
        run_file.save_process("database", None)


def test_a_log_that_cannot_be_shortened_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at all logs from time to time goes on with the next ones."""

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(processes, "LOG_MAX_BYTES", 3)
    monkeypatch.setattr("os.truncate", refuse)
    path = tmp_path / "api.log"
    path.write_text("long")
    ProcessLog(path).rotate_if_long()
    assert path.read_text() == "long"

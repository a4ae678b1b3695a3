"""The record of a run: whose processes these are, and who may end them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.embedded import processes
from dev.embedded.environment import write_environment_file_while_running
from dev.embedded.processes import RecordedProcess
from dev.embedded.run_file import RunFileContent, create_data_folder, lock_data_dir, record_supervisor
from domain import faults
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

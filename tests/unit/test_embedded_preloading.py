"""The preloader: imports once, is forked for every process, and starts nothing that a fork would break."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil
import pytest

from dev import local
from dev.embedded import fork_server, preloading, processes
from dev.embedded.preloading import Preloader, PreloaderEnded
from dev.embedded.run_file import lock_data_dir
from dev.embedded.stack import EmbeddedStack
from dev.embedded.supervisor import ProcessSpec, ProcessSupervisor, run_supervisor
from infra.settings import Settings
from infra.stopping import REQUEST_SHUTDOWN_SECONDS
from tests.support.waiting import PATIENCE_SECONDS, eventually


@dataclass(frozen=True)
class Running:
    """A running preloader."""

    preloader: Preloader
    supervisor: ProcessSupervisor
    folder: Path

    @property
    def root(self) -> psutil.Process:
        """Its first process."""
        return psutil.Process(self.supervisor.list_pids()["preloader"])

    def build(self, role: str, command: str) -> ProcessSpec:
        """Return a process that runs a command in a fork."""
        return local._build_forked_process(self.preloader, role, "fork", {"COLUMNS": "200", "TERM": "dumb"}, command)

    def read_output(self) -> str:
        """Return what the fork has written."""
        return (self.folder / "logs" / "fork.log").read_text()


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A preloader with everything imported."""
    folder = tmp_path_factory.mktemp("preloader")
    preloader = Preloader()
    with lock_data_dir(folder) as run_file:
        async with run_supervisor(run_file, folder / "logs") as supervisor:
            await supervisor.start(local._build_preloader_process(preloader))
            await eventually(lambda: not preloader.describe_missing_roles())
            yield Running(preloader, supervisor, folder)


async def test_what_is_forked_has_one_thread_and_no_connection(running: Running) -> None:
    """A fork would copy locks that another thread holds, and two processes would write into one connection."""
    assert running.root.num_threads() == 1
    assert running.root.net_connections("inet") == []


@pytest.mark.parametrize(
    ("role", "absent"),
    [
        pytest.param("common", {"api", "activities", "worker"}, marks=pytest.mark.long),
        ("api", {"activities", "worker"}),
        pytest.param("worker", {"api"}, marks=pytest.mark.long),
    ],
)
def test_a_role_imports_only_what_it_needs(role: str, absent: set[str]) -> None:
    """What only one system or one kind of process needs is not in the others, nor is what many never need."""
    modules = (*fork_server.COMMON, *fork_server.ROLES.get(role, ()))
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {*absent, "alembic", "pandas", "pyarrow", "xlsxwriter", "sims"} == set()


def test_api_processes_are_forked_before_the_modules_of_workers_are_imported() -> None:
    """They take longer from their fork until they serve: an installation is ready sooner."""
    assert [role for role, _ in fork_server._list_import_steps() if role] == ["common", "api", "worker"]


async def test_a_fork_runs_a_command(running: Running) -> None:
    """With output and exit code of its own."""
    await running.supervisor.run_until_it_ends(running.build("api", "--help"))
    assert "doctor" in running.read_output()


async def test_a_command_that_fails_says_so(running: Running) -> None:
    """As any process: by its exit code and its last lines."""
    with pytest.raises(Exception, match=r"fork did not start: it ended with exit code 2.(?s:.*)No such command 'fly'"):
        await running.supervisor.run_until_it_ends(running.build("worker", "fly"))


async def test_forks_end_with_the_preloader_which_comes_back(running: Running) -> None:
    """None is left behind, each is reported as killed, and the successor forks again."""
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        waiting = {"HAULAGE_DATABASE__URL": f"postgresql://waits:for@127.0.0.1:{port}/ever", "HAULAGE_API__PORT": "0"}
        env = {**processes.collect_inherited_variables(), **waiting}
        forked = await running.preloader.fork_command("api", ["api"], env, running.folder, running.folder / "one.log")
        before = [forked.pid, running.root.pid]
        running.supervisor.kill_and_let_restart("preloader")
        assert await asyncio.wait_for(forked.wait(), PATIENCE_SECONDS) == -signal.SIGKILL
    await eventually(lambda: not any(processes.read_process_identity(pid) for pid in before))
    await running.supervisor.wait_until_ready("preloader")
    again = await running.preloader.fork_command("worker", ["--help"], env, running.folder, running.folder / "two.log")
    assert await asyncio.wait_for(again.wait(), PATIENCE_SECONDS) == 0


async def test_no_preloader_is_a_refusal(tmp_path: Path) -> None:
    """The supervisor takes it like any refusal of the system, and tries again."""
    with pytest.raises(PreloaderEnded):
        await Preloader().fork_command("api", ["--help"], {}, tmp_path, tmp_path / "log")


FORKING = """
import asyncio, sys
from pathlib import Path
from dev.embedded import preloading
from dev.embedded.run_file import lock_data_dir

folder = Path(sys.argv[1])
forked = preloading.try_fork_preloader(folder)

from dev import local
from dev.embedded.preloading import Preloader
from dev.embedded.supervisor import run_supervisor


async def main():
    preloader = Preloader(forked)
    with lock_data_dir(folder) as run_file:
        async with run_supervisor(run_file, folder / "logs") as supervisor:
            help = local._build_forked_process(preloader, "api", "fork", {"COLUMNS": "200", "TERM": "dumb"}, "--help")
            await supervisor.start(local._build_preloader_process(preloader))
            first = supervisor.list_pids()["preloader"]
            await supervisor.run_until_it_ends(help)
            supervisor.kill_and_let_restart("preloader")
            await supervisor.wait_until_ready("preloader")
            second = supervisor.list_pids()["preloader"]
            await supervisor.run_until_it_ends(help)
            print(first == forked.pid, second == forked.pid)


asyncio.run(main())
"""


@pytest.mark.long
def test_a_command_forks_its_preloader(tmp_path: Path) -> None:
    """It is used like one that is started as a program, and when it is killed, such a one takes its place."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["True False"]), done.stderr
    assert (tmp_path / "logs" / "fork.log").read_text().count("Usage:") == 2


def test_a_folder_that_cannot_be_written_forks_nothing(tmp_path: Path) -> None:
    """The start goes on, and says what is wrong with the folder."""
    (tmp_path / "file").touch()
    assert preloading.try_fork_preloader(tmp_path / "file" / "data") is None


def test_forked_processes_have_the_time_to_stop_that_they_may_need() -> None:
    """Each was killed after 20 s: a worker between GSE's beginning and its answer, so that the file was sent again."""

    class Stack:
        def build_environment(self, *_: object) -> dict[str, str]:
            return {}

    stack, settings = cast("EmbeddedStack", Stack()), Settings(_env_file=None, gse={"answer_timeout_seconds": 70})
    worker = local._build_worker_process(stack, Preloader(), settings, "haulage", "worker-1", 0)
    api = local._build_api_process(stack, Preloader(), settings, "haulage", "api-1", 0)

    assert worker.stop_timeout_seconds > settings.engine.graceful_shutdown_seconds + 70
    assert api.stop_timeout_seconds > 2 * REQUEST_SHUTDOWN_SECONDS

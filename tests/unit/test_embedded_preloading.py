"""The preloader: imports once, is forked for every process, and starts nothing that a fork would break."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dev import local
from dev.embedded import ProcessSpec, data_folder, preloading, processes
from dev.embedded.preloading import Preloader, PreloaderEnded
from dev.embedded.supervisor import Supervisor, run_supervisor
from tests.support.waiting import PATIENCE_SECONDS, eventually


@dataclass(frozen=True)
class Running:
    """A running preloader."""

    preloader: Preloader
    supervisor: Supervisor
    folder: Path

    @property
    def root(self) -> psutil.Process:
        """Its first process."""
        return psutil.Process(self.supervisor.list_pids()["preloader"])

    @property
    def roles(self) -> dict[str, psutil.Process]:
        """The process of each role, by the name that `ps -o comm` shows."""
        return {child.name().removeprefix("haulage "): child for child in self.root.children()}

    def build(self, role: str, command: str) -> ProcessSpec:
        """Return a process that runs a command in a fork."""
        return local._build_fork(self.preloader, role, "fork", {"COLUMNS": "200", "TERM": "dumb"}, command)

    def read_output(self) -> str:
        """Return what the fork has written."""
        return (self.folder / "logs" / "fork.log").read_text()


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """A preloader with everything imported."""
    folder = tmp_path_factory.mktemp("preloader")
    preloader = Preloader()
    with data_folder.lock_data_dir(folder) as run_file:
        async with run_supervisor(run_file, folder / "logs") as supervisor:
            await supervisor.start(local._build_preloader(preloader))
            await eventually(lambda: not preloader.find_obstacle())
            yield Running(preloader, supervisor, folder)


async def test_what_is_forked_has_one_thread_and_no_connection(running: Running) -> None:
    """A fork would copy locks that another thread holds, and two processes would write into one connection."""
    found = [running.root, *running.roles.values()]
    assert set(running.roles) == set(preloading.ROLES)
    for process in found:
        assert process.num_threads() == 1
        assert process.net_connections("inet") == []


@pytest.mark.parametrize(
    ("role", "absent"),
    [("common", {"api", "activities", "worker"}), ("api", {"activities", "worker"}), ("worker", {"api"})],
)
def test_a_role_imports_only_what_it_needs(role: str, absent: set[str]) -> None:
    """What only one system or one kind of process needs is not in the others, nor is what many never need."""
    modules = (*preloading.COMMON, *preloading.ROLES.get(role, ()))
    code = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {*absent, "pandas", "pyarrow", "xlsxwriter", "sims"} == set()


async def test_a_fork_runs_a_command(running: Running) -> None:
    """With output and exit code of its own."""
    await running.supervisor.run_to_end(running.build("api", "--help"))
    assert "doctor" in running.read_output()


async def test_a_command_that_fails_says_so(running: Running) -> None:
    """As any process: by its exit code and its last lines."""
    with pytest.raises(Exception, match=r"fork did not start: it ended with exit code 2.(?s:.*)No such command 'fly'"):
        await running.supervisor.run_to_end(running.build("worker", "fly"))


async def test_forks_end_with_the_preloader_which_comes_back(running: Running) -> None:
    """None is left behind, each is reported as killed, and the successor forks again."""
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        waiting = {"HAULAGE_DATABASE__URL": f"postgresql://waits:for@127.0.0.1:{port}/ever", "HAULAGE_API__PORT": "0"}
        env = {**local._inherit_variables(), **waiting}
        forked = await running.preloader.fork("api", ["api"], env, running.folder, running.folder / "one.log")
        before = [forked.pid, running.root.pid, *(role.pid for role in running.roles.values())]
        running.supervisor.kill("preloader")
        assert await asyncio.wait_for(forked.wait(), PATIENCE_SECONDS) == -signal.SIGKILL
    await eventually(lambda: not any(processes.read_identity(pid) for pid in before))
    await running.supervisor.wait_until_ready("preloader")
    again = await running.preloader.fork("worker", ["--help"], env, running.folder, running.folder / "two.log")
    assert await asyncio.wait_for(again.wait(), PATIENCE_SECONDS) == 0


async def test_no_preloader_is_a_refusal(tmp_path: Path) -> None:
    """The supervisor takes it like any refusal of the system, and tries again."""
    with pytest.raises(PreloaderEnded):
        await Preloader().fork("api", ["--help"], {}, tmp_path, tmp_path / "log")

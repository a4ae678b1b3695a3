"""The preloader as the supervisor sees it: it is asked to fork, and tells which forks have ended."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dev.embedded import fork_server, processes
from dev.embedded.fork_server import COMMON_ROLE, ROLES
from dev.embedded.run_file import create_data_folder

NAME: Final = "preloader"
CLOSE_SECONDS: Final = 5.0


class PreloaderEnded(OSError):
    """The preloader ended before it forked; the supervisor starts it again."""


class ForkedProcess:
    """A process that the preloader forked, with the interface of a child of one's own."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Return the exit code once the process has ended; minus the signal if one ended it."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 (set before the event)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def record_exit(self, code: int) -> None:
        """Record the exit code."""
        self.returncode = code
        self._ended.set()


@dataclass(frozen=True)
class ForkedPreloader:
    """A preloader that was forked from this process, and the connection to it."""

    pid: int
    connection: socket.socket


class Preloader:
    """The running preloader, as far as this process sees it.

    Args:
        forked: The preloader that was forked from this process; without one it is started as a program.
    """

    def __init__(self, forked: ForkedPreloader | None = None) -> None:
        self._to_adopt = forked
        self._requests_to: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._loaded: set[str] = set()
        self._requests: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._forked: dict[int, ForkedProcess] = {}
        self._number = 0

    async def adopt_forked_preloader_once(self, _: Path) -> ForkedProcess | None:
        """Use the preloader that was forked from this process, once; return None if there is none to use."""
        forked, self._to_adopt = self._to_adopt, None
        if forked is None:
            return None
        process = ForkedProcess(forked.pid)
        reader, writer = await asyncio.open_connection(sock=forked.connection)

        async def read_messages_and_record_exit() -> None:
            await self._read_messages(reader)
            _, status = await asyncio.to_thread(os.waitpid, forked.pid, 0)
            process.record_exit(os.waitstatus_to_exitcode(status))

        self._store_writer_and_start_reading(writer, read_messages_and_record_exit())
        return process

    def use_started_process(self, process: asyncio.subprocess.Process) -> None:
        """Use this process, which was just started with pipes as its input and output."""
        assert process.stdin is not None  # noqa: S101 (it was started with pipes)
        assert process.stdout is not None  # noqa: S101
        self._store_writer_and_start_reading(process.stdin, self._read_messages(process.stdout))

    def _store_writer_and_start_reading(self, writer: asyncio.StreamWriter, reading: Coroutine[Any, Any, None]) -> None:
        self._requests_to = writer
        self._loaded.clear()
        self._reading = asyncio.create_task(reading, name="read the preloader")

    async def wait_until_closed(self) -> None:
        """Let go of the pipes of a preloader that has ended."""
        if self._reading:
            await asyncio.wait({self._reading}, timeout=CLOSE_SECONDS)

    def describe_missing_roles(self, roles: Collection[str] = (COMMON_ROLE, *ROLES)) -> str:
        """Return which of the roles have not imported yet; empty if all have. A fork waits until its role has."""
        missing = set(roles) - self._loaded
        return f"not imported yet: {', '.join(sorted(missing))}" if missing else ""

    async def fork_command(
        self, role: str, argv: Sequence[str], env: Mapping[str, str], folder: Path, output: Path
    ) -> ForkedProcess:
        """Run a `haulage` command in a fork of a role.

        Raises:
            PreloaderEnded: The preloader is not running.
        """
        if self._requests_to is None:
            raise PreloaderEnded("the preloader does not run")
        self._number += 1
        request = {"role": role, "number": self._number, "argv": list(argv), "env": dict(env)}
        request |= {"folder": str(folder), "output": str(output)}
        answer = self._requests[self._number] = asyncio.get_running_loop().create_future()
        self._requests_to.write(json.dumps(request).encode() + b"\n")
        forked: ForkedProcess = await answer
        return forked

    async def _read_messages(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self._record_loaded_forked_or_ended(json.loads(line))
        if self._requests_to is not None:
            self._requests_to.close()
            self._requests_to = None
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(PreloaderEnded("the preloader ended"))
        self._requests.clear()
        for forked in self._forked.values():
            # The kernel ends them with their parent; where it does not, nothing else would.
            with suppress(ProcessLookupError):
                os.kill(forked.pid, signal.SIGKILL)
            forked.record_exit(-signal.SIGKILL)
        self._forked.clear()

    def _record_loaded_forked_or_ended(self, message: Mapping[str, Any]) -> None:
        if role := message.get("loaded"):
            self._loaded.add(role)
        elif pid := message.get("pid"):
            forked = ForkedProcess(pid)
            self._forked[pid] = forked
            answer = self._requests.pop(message["number"])
            if not answer.done():
                answer.set_result(forked)
        else:
            self._forked.pop(message["ended"]).record_exit(message["code"])


def build_environment() -> dict[str, str]:
    """Return the environment of the preloader; what it forks gets one of its own."""
    # Libraries for matrices, which nothing here computes with, would start a thread for each core.
    return {**processes.collect_inherited_variables(), "OPENBLAS_NUM_THREADS": "1"}


def try_fork_preloader(data_dir: Path) -> ForkedPreloader | None:
    """Fork the preloader from this process, which must have one thread and no event loop yet.

    What this process has imported is neither imported nor kept twice. Returns None where the system refuses: the
    supervisor starts the preloader as a program then, or says what is wrong with the folder.
    """
    try:
        logs = create_data_folder(data_dir) / "logs"
        logs.mkdir(exist_ok=True)
        return _fork_preloader(logs / f"{NAME}.log")
    except OSError:
        return None


def _fork_preloader(log_path: Path) -> ForkedPreloader:
    output = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    env = build_environment()
    # Collections of either process would write into the pages that both share.
    gc.freeze()
    ours, its = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        fork_server.serve_after_fork(its, output, env, parent)
    os.close(output)
    its.close()
    return ForkedPreloader(pid, ours)

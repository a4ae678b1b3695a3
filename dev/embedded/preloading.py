"""The preloader: a process that imports what API and workers need once, and is forked for each of them.

It is a tree: the root imports what all roles need and forks itself for each role, which imports the rest and forks
itself for every process that is asked for. A fork copies one thread and every lock as it is, so nothing that is
imported may start a thread or open a connection: Temporal's runtime, pools and sessions are made by the processes.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

ENTRY: Final = ("cli.__main__", "app")
"""The command line, as module and name: what it imports by itself is not needed by every command."""
COMMON: Final = ("services.services", "workflows.systems", "cli.__main__")
ROLES: Final[Mapping[str, Sequence[str]]] = {"api": ("api.app",), "worker": ("cli.serving",)}
"""What a role imports beyond the common modules. Named, not imported: this module is below them."""
ROOT_ROLE: Final = "common"
CLOSE_SECONDS: Final = 5.0
_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_SET_NAME: Final = 15  # PR_SET_NAME


# --- In the supervisor.


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

    def set_ended(self, code: int) -> None:
        """Record the exit code."""
        self.returncode = code
        self._ended.set()


class Preloader:
    """The running preloader, as far as this process sees it."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._loaded: set[str] = set()
        self._requests: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._forked: dict[int, ForkedProcess] = {}
        self._number = 0

    def attach(self, process: asyncio.subprocess.Process) -> None:
        """Use this process, which was just started with pipes as its input and output."""
        self._process = process
        self._loaded.clear()
        self._reading = asyncio.create_task(self._read(process), name="read the preloader")

    async def close(self) -> None:
        """Let go of the pipes of a preloader that has ended."""
        if self._reading:
            await asyncio.wait({self._reading}, timeout=CLOSE_SECONDS)

    def find_obstacle(self, roles: Collection[str] = (ROOT_ROLE, *ROLES)) -> str:
        """Return which of the roles have not imported yet; empty if all have. A fork waits until its role has."""
        missing = set(roles) - self._loaded
        return f"not imported yet: {', '.join(sorted(missing))}" if missing else ""

    async def fork(
        self, role: str, argv: Sequence[str], env: Mapping[str, str], folder: Path, output: Path
    ) -> ForkedProcess:
        """Run a `haulage` command in a fork of a role.

        Raises:
            PreloaderEnded: The preloader is not running.
        """
        if self._process is None or self._process.stdin is None or self._process.returncode is not None:
            raise PreloaderEnded("the preloader does not run")
        self._number += 1
        request = {"role": role, "number": self._number, "argv": list(argv), "env": dict(env)}
        request |= {"folder": str(folder), "output": str(output)}
        answer = self._requests[self._number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        forked: ForkedProcess = await answer
        return forked

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101 (it was started with pipes)
        while line := await process.stdout.readline():
            self._take(json.loads(line))
        if process.stdin is not None:
            process.stdin.close()
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(PreloaderEnded("the preloader ended"))
        self._requests.clear()
        for forked in self._forked.values():
            # The kernel ends them with their parent; where it does not, nothing else would.
            with suppress(ProcessLookupError):
                os.kill(forked.pid, signal.SIGKILL)
            forked.set_ended(-signal.SIGKILL)
        self._forked.clear()

    def _take(self, message: Mapping[str, Any]) -> None:
        if role := message.get("loaded"):
            self._loaded.add(role)
        elif pid := message.get("pid"):
            forked = ForkedProcess(pid)
            self._forked[pid] = forked
            answer = self._requests.pop(message["number"])
            if not answer.done():
                answer.set_result(forked)
        else:
            self._forked.pop(message["ended"]).set_ended(message["code"])


# --- In the preloader.


@dataclass
class _Channel:
    """A stream of messages, one JSON object a line."""

    reading: int
    writing: int
    _buffer: bytes = b""

    def send(self, **message: object) -> None:
        os.write(self.writing, json.dumps(message).encode() + b"\n")

    def forward(self, line: bytes) -> None:
        os.write(self.writing, line + b"\n")

    def receive(self) -> list[bytes] | None:
        """Return the complete lines that have arrived; None at the end of the stream."""
        received = os.read(self.reading, 1 << 20)
        if not received:
            return None
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        return lines


def main() -> None:
    """Import, fork the roles, and fork processes on request, until the input ends."""
    upwards = _Channel(os.dup(0), os.dup(1))
    # What is imported must not write into the stream of messages.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _import(COMMON)
    roles: dict[str, _Channel] = {}
    for role, modules in ROLES.items():
        ours, its = socket.socketpair()
        if os.fork() == 0:
            for number in (upwards.reading, upwards.writing, *(each.reading for each in roles.values())):
                os.close(number)
            ours.close()
            _set_up_child(f"haulage {role}", signal.SIGKILL)
            _import(modules)
            number = its.detach()
            _serve(role, _Channel(number, number), {})
        its.close()
        number = ours.detach()
        roles[role] = _Channel(number, number)
    _serve(ROOT_ROLE, upwards, roles)


def _import(modules: Sequence[str]) -> None:
    gc.disable()
    for name in modules:
        importlib.import_module(name)
    # Frozen objects are not visited by collections, which would write into the pages that all forks share.
    gc.freeze()
    gc.enable()
    if threading.active_count() > 1:
        raise RuntimeError(f"a module started a thread: {', '.join(each.name for each in threading.enumerate())}")


def _serve(role: str, upwards: _Channel, roles: Mapping[str, _Channel]) -> NoReturn:
    """Fork on request and report ends, until the input ends; the root also passes messages between roles and parent."""
    wake_reading, wake_writing = os.pipe()
    os.set_blocking(wake_writing, False)
    signal.set_wakeup_fd(wake_writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    upwards.send(loaded=role)
    with selectors.DefaultSelector() as selector:
        selector.register(upwards.reading, selectors.EVENT_READ, upwards)
        selector.register(wake_reading, selectors.EVENT_READ, None)
        for channel in roles.values():
            selector.register(channel.reading, selectors.EVENT_READ, channel)
        own = {selector.fileno(), wake_reading, wake_writing, upwards.reading, upwards.writing}
        own |= {channel.reading for channel in roles.values()}
        while True:
            for key, _ in selector.select():
                channel = key.data
                if channel is None:
                    os.read(wake_reading, 4096)
                    _reap(upwards)
                    continue
                lines = channel.receive()
                if lines is None:
                    # The parent or a role has ended. The others end with this process.
                    os._exit(0)
                for line in lines:
                    if channel is not upwards:
                        upwards.forward(line)
                    elif (asked := json.loads(line)["role"]) in roles:
                        roles[asked].forward(line)
                    else:
                        _fork(json.loads(line), upwards, own)


def _reap(upwards: _Channel) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            upwards.send(ended=pid, code=os.waitstatus_to_exitcode(status))


def _fork(request: Mapping[str, Any], upwards: _Channel, own: Set[int]) -> None:
    """Fork; the child becomes the command, the parent reports its pid."""
    pid = os.fork()
    if pid:
        upwards.send(pid=pid, number=request["number"])
        return
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in own:
            os.close(number)
        _become(request)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (nothing above would print it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become(request: Mapping[str, Any]) -> None:
    """Run the command with its own session, output, folder and environment."""
    os.setsid()
    _set_up_child(f"haulage {request['argv'][0]}", signal.SIGKILL)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["haulage", *request["argv"]]
    module, name = ENTRY
    getattr(importlib.import_module(module), name)()


def _set_up_child(name: str, death_signal: signal.Signals) -> None:
    """Have the kernel end this process with its parent, where it can, and show a name in lists of processes."""
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    library.prctl(_SET_DEATH_SIGNAL, int(death_signal))
    library.prctl(_SET_NAME, name.encode())

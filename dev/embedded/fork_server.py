"""The process of the preloader: it imports once what API and workers need, and is forked for each of them.

It imports what every process needs, then what API and workers need beyond that, and between two modules it forks what
is asked for and needs no more. A fork copies one thread and every lock as it is, so nothing that is imported may start
a thread or open a connection: Temporal's runtime, pools and sessions are made by the processes.
"""

from __future__ import annotations

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
from collections import deque
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from infra import settings
from systems import SYSTEMS

ENTRY: Final = ("cli.__main__", "main")
"""The command line, as module and name: what it imports by itself is not needed by every command."""
COMMON: Final = (
    "services.services",
    "workflows.systems",
    *(f"stores.tables.{name}" for name in ("shared", *SYSTEMS)),
    *(f"workflows.{system}.handle" for system in SYSTEMS),
    "cli.__main__",
)
"""What every process needs, the one that prepares an installation included."""
ROLES: Final[Mapping[str, Sequence[str]]] = {
    "api": (*(f"api.{system}" for system in SYSTEMS), "api.app"),
    "worker": ("cli.serving",),
}
"""What a role imports beyond the common modules. Named, not imported: this module is below them.

In the order in which they are imported. An API process takes twice as long as a worker from its fork until it serves,
and does so while the modules of workers are imported.
"""
COMMON_ROLE: Final = "common"
_SET_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_SET_NAME: Final = 15  # PR_SET_NAME


@dataclass
class _JsonLineChannel:
    """A stream of messages, one JSON object a line."""

    reading: int
    writing: int
    _buffer: bytes = b""

    def send(self, **message: object) -> None:
        os.write(self.writing, json.dumps(message).encode() + b"\n")

    def receive_complete_lines(self) -> list[bytes] | None:
        """Return the complete lines that have arrived; None at the end of the stream."""
        received = os.read(self.reading, 1 << 20)
        if not received:
            return None
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        return lines


def serve_after_fork(connection: socket.socket, output: int, env: Mapping[str, str], parent: int) -> NoReturn:
    """Become the preloader in a process that was just forked from a command.

    Args:
        connection: Where requests come from.
        output: The file descriptor of its log.
        env: Its whole environment.
        parent: The process that forked it, and with which it ends.
    """
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        _set_death_signal_and_process_name("haulage", signal.SIGKILL)
        for number in (1, 2):
            os.dup2(output, number)
        os.close(output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(env)
        if os.getppid() == parent:
            number = connection.detach()
            _import_and_fork_until_input_ends(_JsonLineChannel(number, number))
    except BaseException:  # noqa: BLE001 (nothing above may run: it is the parent's)
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def main() -> None:
    """Run the preloader with pipes as its input and output."""
    upwards = _JsonLineChannel(os.dup(0), os.dup(1))
    # What is imported must not write into the stream of messages.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _import_and_fork_until_input_ends(upwards)


def _import_and_fork_until_input_ends(channel: _JsonLineChannel) -> NoReturn:
    """Import, fork on request and report ends, until the input ends."""
    gc.disable()
    wake_reading, wake_writing = os.pipe()
    os.set_blocking(wake_writing, False)
    signal.set_wakeup_fd(wake_writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = _ForkServer(channel, deque(_list_import_steps()))
    with selectors.DefaultSelector() as selector:
        selector.register(channel.reading, selectors.EVENT_READ, channel)
        selector.register(wake_reading, selectors.EVENT_READ, None)
        server.own = {selector.fileno(), wake_reading, wake_writing, channel.reading, channel.writing}
        while True:
            events = selector.select(0 if server.steps else None)
            for key, _ in events:
                if key.data is None:
                    os.read(wake_reading, 4096)
                    _report_ended_children(channel)
                elif (lines := channel.receive_complete_lines()) is None:
                    # The parent has ended. The forks end with this process.
                    os._exit(0)
                else:
                    server.requests += map(json.loads, lines)
            if not events:
                server.import_next_module()
            server.fork_for_requests_with_loaded_role()


def _list_import_steps() -> list[tuple[str, str]]:
    """Return what to import in order, each with the role that is complete with it, or an empty text."""
    steps = []
    for role, modules in {COMMON_ROLE: COMMON, **ROLES}.items():
        steps += [("", name) for name in modules[:-1]] + [(role, modules[-1])]
    return steps


@dataclass
class _ForkServer:
    """What is left to import, and the requests that wait for it."""

    channel: _JsonLineChannel
    steps: deque[tuple[str, str]]
    requests: list[dict[str, Any]] = field(default_factory=list)
    loaded: set[str] = field(default_factory=set)
    own: Set[int] = frozenset()
    """File descriptors that a fork closes."""

    def import_next_module(self) -> None:
        """Import the next module; tell the parent if it completes a role."""
        completed, name = self.steps.popleft()
        importlib.import_module(name)
        if not completed:
            return
        # The mapper prepares tables at the first statement, in each process that has not done so.
        importlib.import_module("sqlalchemy.orm").configure_mappers()
        # Frozen objects are not visited by collections, which would write into the pages that all forks share.
        gc.freeze()
        if threading.active_count() > 1:
            names = ", ".join(each.name for each in threading.enumerate())
            raise RuntimeError(f"a module started a thread: {names}")
        self.loaded.add(completed)
        self.channel.send(loaded=completed)

    def fork_for_requests_with_loaded_role(self) -> None:
        """Fork for the requests whose role is complete."""
        ready = [request for request in self.requests if request["role"] in self.loaded]
        self.requests = [request for request in self.requests if request["role"] not in self.loaded]
        for request in ready:
            _fork_and_run_command(request, self.channel, self.own)


def _report_ended_children(channel: _JsonLineChannel) -> None:
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            channel.send(ended=pid, code=os.waitstatus_to_exitcode(status))


def _fork_and_run_command(
    request: Mapping[str, Any], channel: _JsonLineChannel, descriptors_to_close: Set[int]
) -> None:
    """Fork; the child becomes the command, the parent reports its pid."""
    pid = os.fork()
    if pid:
        channel.send(pid=pid, number=request["number"])
        return
    code = 1
    try:
        gc.enable()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in descriptors_to_close:
            os.close(number)
        _run_requested_command(request)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 (nothing above would print it)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _run_requested_command(request: Mapping[str, Any]) -> None:
    """Run the command with its own session, output, folder and environment."""
    os.setsid()
    _set_death_signal_and_process_name(f"haulage {request['argv'][0]}", signal.SIGKILL)
    output = os.open(request["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    settings.load_settings_from_environment.cache_clear()
    sys.argv = ["haulage", *request["argv"]]
    module, name = ENTRY
    getattr(importlib.import_module(module), name)()


def _set_death_signal_and_process_name(name: str, death_signal: signal.Signals) -> None:
    """Have the kernel end this process with its parent, where it can, and show a name in lists of processes."""
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    library.prctl(_SET_DEATH_SIGNAL, int(death_signal))
    library.prctl(_SET_NAME, name.encode())

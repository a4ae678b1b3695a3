"""Inside: run this program in network, mount and process namespaces of its own, so that nothing outlives it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

import psutil

from lab.tools import FOLDER
from lab.topology import NETWORK_BITS, ROOT

MARK = "HAULAGE_LAB_OUTER_NETWORK"
"""Holds the file descriptor of the machine's network, within the lab's namespaces."""
LINK = "haulage-lab"
"""The machine's interface into the lab; the kernel removes it with the lab."""
MACHINE = "10.99.0.253"
STOP_SECONDS = 60.0
_PID_FILE = FOLDER / "pid"


def enter_own_namespaces(module: str, arguments: Sequence[str]) -> None:
    """Return if this process is within the lab's namespaces; else run the module there instead of this process.

    Exits with a sentence where this user may not make namespaces, or a lab runs already.
    """
    if MARK in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # noqa: S607
        return
    if os.geteuid() != 0:
        sys.exit("The lab makes network namespaces: run it as root.")
    if find_lab() is not None:
        sys.exit("A lab of this folder runs already: `make lab-down` ends it.")
    descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    _PID_FILE.write_text(str(os.getpid()))
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.chdir(ROOT)
    environment = {**os.environ, MARK: str(descriptor)}
    os.execvpe("unshare", [*own, sys.executable, "-m", module, *arguments], environment)  # noqa: S606, S607


def find_lab() -> psutil.Process | None:
    """Return the process of the lab of this folder, or None if none runs."""
    try:
        launcher = psutil.Process(int(_PID_FILE.read_text()))
        return next(iter(launcher.children())) if launcher.name() == "unshare" else None
    except (OSError, ValueError, psutil.NoSuchProcess, StopIteration):
        return None


def stop_lab() -> None:
    """End the lab of this folder, and wait until it is gone."""
    if (lab := find_lab()) is None:
        return
    lab.terminate()
    try:
        lab.wait(STOP_SECONDS)
    except psutil.TimeoutExpired:
        # It is the first process of its namespace: all others end with it.
        lab.kill()
        lab.wait()


def run_on_host(host: str, command: Sequence[str]) -> int:
    """Run a command on a host of the running lab, with this terminal; return its exit code."""
    lab = find_lab()
    found = lab.children(recursive=True) if lab is not None else []
    firsts = [each for each in found if _is_first_process_of(each, host)]
    if not firsts:
        sys.exit(f"No lab of this folder runs a host {host!r}. `make lab` starts one.")
    target = ["--target", str(firsts[0].pid), "--net", "--mount", "--pid", "--uts", "--ipc"]
    return subprocess.run(["nsenter", *target, "--", *command], check=False).returncode  # noqa: S607


def _is_first_process_of(process: psutil.Process, host: str) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.name() == "bash" and process.environ().get("HOST_NAME") == host
    return False


async def connect_machine(bridge: str) -> None:
    """Give the machine outside an interface into the lab, so that its browser reaches the hosts."""
    descriptor = int(os.environ[MARK])
    outer = f"/proc/self/fd/{descriptor}"
    commands = [
        ["ip", "link", "add", "machine", "type", "veth", "peer", "name", LINK],
        ["ip", "link", "set", "machine", "master", bridge, "up"],
        ["ip", "link", "set", LINK, "netns", outer],
        ["nsenter", f"--net={outer}", "ip", "address", "add", f"{MACHINE}/{NETWORK_BITS}", "dev", LINK],
        ["nsenter", f"--net={outer}", "ip", "link", "set", LINK, "up"],
    ]
    for command in commands:
        process = await asyncio.create_subprocess_exec(*command, pass_fds=[descriptor])
        if await process.wait():
            raise OSError(f"{' '.join(command)} failed")

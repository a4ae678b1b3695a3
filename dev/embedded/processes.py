"""Processes as the operating system knows them: who a pid really is, and how a child dies with its parent."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path

from domain import faults

PROC = Path("/proc")
BOOT_ID = PROC / "sys/kernel/random/boot_id"
NOBODY = 65534


def identity(pid: int) -> str | None:
    """What tells a process from a later one with the same pid: when it was started. None when it is gone."""
    if not BOOT_ID.exists():
        return _identity_by_ps(pid)
    try:
        stat = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold anything; behind it come the state and, as 18th and 20th, threads and start time.
    state, *fields = stat.rpartition(")")[2].split()
    threads, started = int(fields[16]), fields[18]
    # While other threads are still ending, a dead main thread does not mean closed sockets.
    gone = state in "ZX" and threads <= 1
    return None if gone else f"{BOOT_ID.read_text().strip()}/{started}"


def command(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    answer = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return answer.stdout.strip()


def _identity_by_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)  # noqa: S607
    return answer.stdout.strip() or None


def dying_with_parent(argv: list[str], sent: signal.Signals) -> list[str]:
    """The command, sent a signal by the kernel when its parent dies; unchanged where the kernel cannot.

    The parent is the thread that starts the child: it must live as long as the child shall.
    """
    if setpriv := _setpriv():
        return [setpriv, "--pdeathsig", _name(sent), "--", *argv]
    return argv


def unprivileged(argv: list[str], death_signal: signal.Signals) -> list[str]:
    """The command as nobody, for programs that refuse to run as root; unchanged when we are not root.

    CAP_DAC_OVERRIDE lets it reach programs and data below folders that only root may enter. access(2) would ignore
    it without no_setuid_fixup, and initdb asks access(2). A change of credentials clears the parent-death signal, so it
    is set here again.
    """
    if os.geteuid() != 0:
        return argv
    setpriv = _setpriv()
    if setpriv is None:
        raise faults.Missing(
            "program_missing",
            "PostgreSQL does not run as root, and the program `setpriv` was not found.",
            "Install util-linux, or use another user.",
        )
    only = "-all,+dac_override"
    return [
        setpriv,
        f"--reuid={NOBODY}",
        f"--regid={NOBODY}",
        "--clear-groups",
        f"--inh-caps={only}",
        f"--ambient-caps={only}",
        f"--bounding-set={only}",
        "--securebits=+no_setuid_fixup",
        f"--pdeathsig={_name(death_signal)}",
        "--",
        *argv,
    ]


def _name(sent: signal.Signals) -> str:
    return sent.name.removeprefix("SIG")


@cache
def _setpriv() -> str | None:
    """`setpriv` of util-linux; BusyBox has one of that name that knows no parent-death signal."""
    found = shutil.which("setpriv")
    if found is None:
        return None
    works = subprocess.run([found, "--pdeathsig", "KILL", "--", found, "--version"], capture_output=True, check=False)
    return found if works.returncode == 0 else None

"""Tools: the programs that the lab runs: Debian's, those of the wheels, and Temporal's server, built from source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from dev.embedded import components
from domain.faults import Missing
from lab.topology import DEPLOY, ROOT

FOLDER = ROOT / ".haulage-lab"
"""All that the lab writes; `tools` below it is kept between runs."""
PACKAGES = {
    "/usr/lib/postgresql/15/bin/postgres": "postgresql-15",
    "/usr/sbin/haproxy": "haproxy",
    "/usr/sbin/keepalived": "keepalived",
    "/usr/bin/prometheus": "prometheus",
    "/usr/bin/arping": "iputils-arping",
    "/usr/sbin/iptables": "iptables",
    "/usr/sbin/ip": "iproute2",
    "/usr/bin/gcc": "gcc",
}
"""The Debian package of each program."""
_COMMANDS = {"server": "temporal-server", "tools/sql": "temporal-sql-tool"}
"""Temporal's commands, and the names that their programs have in its packages."""


def read_temporal_version() -> str:
    """Return the version of Temporal's server that the compose file starts."""
    found = re.search(r"temporalio/server:(\S+)", (DEPLOY / "compose.yaml").read_text())
    if found is None:
        raise LookupError("deploy/compose.yaml names no image of Temporal's server.")
    return found[1]


def list_missing_packages() -> list[str]:
    """Return the Debian packages that are missing."""
    return [package for program, package in PACKAGES.items() if not Path(program).exists()]


def prepare_tools() -> Path:
    """Return the folder of all programs that are not Debian's; build Temporal's where they are missing.

    Raises:
        Missing: A program has to be installed first; the text says how.
    """
    if missing := list_missing_packages():
        packages = " ".join(missing)
        raise Missing(
            "program_missing", f"The lab needs {packages}.", f"apt-get install --no-install-recommends {packages}"
        )
    version = read_temporal_version()
    folder = FOLDER / "tools" / version
    folder.mkdir(parents=True, exist_ok=True)
    for command, name in _COMMANDS.items():
        if not (folder / name).exists():
            _build_temporal_program(command, name, version, folder)
    build_clock(folder)
    for program in (components.find_temporal_program(), components.find_seaweedfs_program()):
        _link_or_copy(program, folder / program.name)
    return folder


def build_clock(folder: Path) -> Path:
    """Build the library that moves the clock of a process; return it."""
    library = folder / "clock.so"
    source = Path(__file__).parent / "clock.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)  # noqa: S607
    return library


def _build_temporal_program(command: str, name: str, version: str, folder: Path) -> None:
    """Build one of Temporal's programs, in minutes the first time; its sources come from the Go module proxy."""
    if shutil.which("go") is None:
        raise Missing("program_missing", "The lab builds Temporal's server with Go 1.26.", "https://go.dev/doc/install")
    print(f"Building {name} {version}; the first time takes ten minutes on two cores.", flush=True)
    environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    module = f"go.temporal.io/server/cmd/{command}@v{version}"
    subprocess.run(["nice", "go", "install", module], check=True, env=environment, cwd=folder)  # noqa: S607
    (folder / Path(command).name).rename(folder / name)


def _link_or_copy(source: Path, target: Path) -> None:
    """Make a program of a wheel appear in the folder: users that may not read our home may read that."""
    if target.exists() and target.stat().st_size == source.stat().st_size:
        return
    target.unlink(missing_ok=True)
    try:
        target.hardlink_to(source.resolve())
    except OSError:
        shutil.copy2(source, target)

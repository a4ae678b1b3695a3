"""Environments: one for each peer, with the versions of its lock file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
HOME = ROOT / ".venv" / "peers"
INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")
# As `make lock` does it.
COMPILING = (
    "--quiet",
    "--upgrade",
    "--universal",
    "--python-version=3.11",
    "--generate-hashes",
    "--no-header",
    "--no-annotate",
    "--no-emit-index-url",
)


class PeerFailed(Exception):
    """A peer ended with an error."""


def install_peer(system: str, peer: str) -> Path:
    """Return the Python of a peer's environment; install it unless it has the versions of the lock file."""
    lock = _path(system, peer, "lock")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    home = HOME / system / peer
    stamp, python = home / "installed", home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"Installing the peer {peer} …")
        shutil.rmtree(home, ignore_errors=True)
        _call(sys.executable, "-m", "venv", str(home))
        uv = Path(sys.executable).with_name("uv")
        quick = [str(uv), "pip", "install", "--quiet", "--python", str(python)]
        slow = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        _call(*(quick if uv.exists() else slow), "--require-hashes", "--requirement", str(lock))
        # Written last, so that an interrupted install is done again.
        stamp.write_text(digest)
    return python


async def run_peer(system: str, peer: str, *arguments: str, stdin: bytes = b"") -> str:
    """Run a peer to its end and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *_command(system, peer, *arguments),
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate(stdin)
    if process.returncode:
        raise PeerFailed(f"{peer} ended with {process.returncode}:\n{errors.decode(errors='replace')[-4_000:]}")
    return output.decode()


@asynccontextmanager
async def serve_peer(system: str, peer: str, *arguments: str) -> AsyncIterator[tuple[int, dict[str, str]]]:
    """Run a peer that serves while the body runs; yield its process id and its first line, which is JSON."""
    process = await asyncio.create_subprocess_exec(
        *_command(system, peer, *arguments),
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout  # noqa: S101 - it was requirements for
        first_line: dict[str, str] = json.loads(await process.stdout.readline() or "{}")
        if not first_line:
            raise PeerFailed(f"{peer} ended before it served; its error is printed above")
        yield process.pid, first_line
    finally:
        await process.communicate(b"")


def _command(system: str, peer: str, *arguments: str) -> list[str]:
    return [str(install_peer(system, peer)), "-m", f"bench.peers.{system}.{peer}", *arguments]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def renew_lock(system: str, peer: str) -> None:
    """Write the lock file of a peer with the newest versions of the packages in its `.in` file."""
    requirements, lock = str(_path(system, peer, "in")), str(_path(system, peer, "lock"))
    _call(sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "uv")
    _call(sys.executable, "-m", "uv", "pip", "compile", *COMPILING, requirements, "-o", lock)


def _path(system: str, peer: str, ending: str) -> Path:
    return FOLDER / system / f"{peer}.{ending}"


def _call(*command: str) -> None:
    subprocess.run(command, check=True)

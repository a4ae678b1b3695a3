"""The peers' environments: one for each, with the versions of its lock file, away from ours and from each other's."""

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


def installed(room: str, peer: str) -> Path:
    """The Python of a peer's environment, made now unless it is there as its lock file says."""
    lock = _path(room, peer, "lock")
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    home = HOME / room / peer
    stamp, python = home / "installed", home / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != digest:
        print(f"Installing the peer {peer} …")
        shutil.rmtree(home, ignore_errors=True)
        _call(sys.executable, "-m", "venv", str(home))
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        _call(*pip, "--require-hashes", "--requirement", str(lock))
        # Written last, so that an interrupted install is done again.
        stamp.write_text(digest)
    return python


async def run(room: str, peer: str, *arguments: str, stdin: bytes = b"") -> str:
    """Run a peer to its end; returns what it printed."""
    process = await asyncio.create_subprocess_exec(
        *_command(room, peer, *arguments),
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
async def running(room: str, peer: str, *arguments: str) -> AsyncIterator[tuple[int, dict[str, str]]]:
    """A peer that serves until its standard input ends; yields its process id and the JSON line that it says first."""
    process = await asyncio.create_subprocess_exec(
        *_command(room, peer, *arguments),
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout  # noqa: S101 - it was asked for
        said: dict[str, str] = json.loads(await process.stdout.readline() or "{}")
        if not said:
            raise PeerFailed(f"{peer} ended before it served; what went wrong stands above")
        yield process.pid, said
    finally:
        await process.communicate(b"")


def _command(room: str, peer: str, *arguments: str) -> list[str]:
    return [str(installed(room, peer)), "-m", f"bench.peers.{room}.{peer}", *arguments]


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def renew(room: str, peer: str) -> None:
    """Write a peer's lock file anew, with the newest versions of what its `.in` file asks for."""
    asked, lock = str(_path(room, peer, "in")), str(_path(room, peer, "lock"))
    _call(sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "uv")
    _call(sys.executable, "-m", "uv", "pip", "compile", *COMPILING, asked, "-o", lock)


def _path(room: str, peer: str, ending: str) -> Path:
    return FOLDER / room / f"{peer}.{ending}"


def _call(*command: str) -> None:
    subprocess.run(command, check=True)

"""`python -m tests.release.clients [PYTHON …]`: the clients, built and installed alone, on each Python.

Without arguments, on every Python that is claimed; it fails where one of them is not found here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLAIMED = ("3.11", "3.12", "3.13", "3.14")
"""By docs/reference/compatibility.md; CI tries each."""
USE = '''import asyncio
import sys
from importlib import metadata

import haulage
from haulage import Client


async def main() -> None:
    """Open a client, and ask a server that is not there."""
    async with Client("http://127.0.0.1:1", "key", patience_seconds=0) as client:
        try:
            await client.read("dl_1")
        except haulage.ApiUnreachable as error:
            print(sys.version.split()[0], metadata.version("haulage"), error)


asyncio.run(main())
'''


def check_clients(python: str, package: Path, folder: Path) -> str:
    """Install a wheel or sdist for a Python, use it, and check a program that uses it; return what it said.

    Raises:
        subprocess.CalledProcessError: One of these fails.
    """
    program, venv = folder / "program.py", folder / "venv"
    program.write_text(USE)
    installed = venv / "bin" / "python"
    _run("-m", "uv", "venv", "--quiet", "--python", python, str(venv), cwd=folder)
    _run("-m", "uv", "pip", "install", "--quiet", "--python", str(installed), str(package), cwd=folder)
    said = subprocess.run([installed, program], cwd=folder, check=True, capture_output=True, text=True).stdout
    _run("-m", "mypy", "--strict", "--python-executable", str(installed), str(program), cwd=folder)
    return said.strip()


def main(arguments: Sequence[str]) -> int:
    """Check wheel and sdist on each Python; return 1 if one that is claimed was not found, and none was named."""
    by_version = {} if arguments else {version: _find_python(version) for version in CLAIMED}
    found = [*arguments, *filter(None, by_version.values())]
    missing = [version for version, path in by_version.items() if not path]
    with tempfile.TemporaryDirectory(prefix="haulage-clients-") as folder:
        built = Path(folder) / "dist"
        _run("-m", "hatchling", "build", "--directory", str(built), cwd=ROOT)
        for package in sorted(built.iterdir()):
            for number, python in enumerate(found):
                own = Path(folder) / f"{package.suffix}-{number}"
                own.mkdir()
                sys.stdout.write(f"{package.name}: {check_clients(python, package, own)}\n")
    if missing:
        sys.stdout.write(f"Claimed, not found here and not tried: Python {', '.join(missing)}. Name the ones to try.\n")
    return int(bool(missing))


def _find_python(version: str) -> str | None:
    """Return the interpreter of a version, unless it is only a name that starts none."""
    path = shutil.which(f"python{version}")
    if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
        return path
    return None


def _run(*arguments: str, cwd: Path) -> None:
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stdout.write(done.stdout + done.stderr)
        done.check_returncode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

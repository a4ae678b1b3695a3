"""What API and worker processes have loaded once they serve."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]

# A process of ours leaves by `os._exit`; before that it writes down what it has loaded.
NOTING = """
import os, sys
leave = os._exit

def note(code):
    with open(os.environ["LOADED_MODULES"], "w") as out:
        out.write(" ".join(sys.modules))
    leave(code)

os._exit = note
"""


async def list_loaded(folder: Path, environment: Mapping[str, str], ready: str, *command: str) -> set[str]:
    """The first parts of the modules that a process has loaded when it is stopped as soon as it is ready."""
    (folder / "sitecustomize.py").write_text(NOTING)
    notes = folder / "modules"
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli", *command),
        cwd=ROOT,
        env={**environment, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "LOADED_MODULES": str(notes)},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    told = b""
    async for line in process.stderr:
        told += line
        if line.startswith(b"{") and json.loads(line)["event"] == ready:
            process.terminate()
    assert await process.wait() == 0, told.decode()
    assert b"Traceback" not in told, told.decode()
    assert f'"event":"{ready}"'.encode() in told.replace(b'": "', b'":"'), told.decode()
    return {name.partition(".")[0] for name in notes.read_text().split()}


@pytest.mark.long
async def test_the_api_loads_neither_arrow_nor_activities(environment: dict[str, str], tmp_path: Path) -> None:
    """It draws previews of templates with Arrow, and loads that with the first of them."""
    ready = {**environment, "HAULAGE_API__PORT": "0"}

    modules = await list_loaded(tmp_path, ready, "api_ready", "api")

    assert {"api", "stores", "workflows"} <= modules
    assert modules & {"activities", "pandas", "pyarrow", "xlsxwriter", "opentelemetry"} == set()


@pytest.mark.long
async def test_a_worker_loads_nothing_of_the_api(environment: dict[str, str], tmp_path: Path) -> None:
    """Its doors are task queues."""
    ready = {**environment, "HAULAGE_WORKER__METRICS_PORT": "0"}

    modules = await list_loaded(tmp_path, ready, "worker_ready", "worker")

    assert {"activities", "stores", "workflows"} <= modules
    assert modules & {"api", "opentelemetry"} == set()

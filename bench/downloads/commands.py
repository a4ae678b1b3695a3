"""Whole commands: `haulage export` beside the script, from the shell's call to the end of the process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp

from bench.downloads import proof
from bench.downloads.contenders import PAGE_SIZE, SYSTEM, ExportFailed, HaulageExport, list_files
from bench.peers import environments
from bench.report import Figure
from dev.local import LocalInstallation

ROWS = 10_000
RUNS = 5
PEER, MODULE = "pandas script", "pandas_script"
REACH = 1.0


async def measure_commands(running: LocalInstallation, seed: int) -> Figure:
    """Run both in turn, interpreters and imports included; the server runs already."""
    url = f"{running.source}/rows?rows={ROWS}&seed={seed}"
    content = proof.ExportContent(ROWS, seed)
    ours, script = [], []
    async with aiohttp.ClientSession(base_url=running.api) as session:
        await HaulageExport.register(running, session)
        key = session.headers["Authorization"].removeprefix("Bearer ")
    variables = {**os.environ, "HAULAGE_API_URL": running.api, "HAULAGE_API_KEY": key}
    haulage = str(Path(sys.executable).with_name("haulage"))
    for _ in range(RUNS):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "rows.csv"
            ours.append(await _measure([haulage, "export", url, "--out", str(path)], variables))
            await asyncio.to_thread(proof.require_equal, [path], content)
        with TemporaryDirectory() as folder:
            began = time.perf_counter()
            await environments.run_peer(SYSTEM, MODULE, url, str(PAGE_SIZE), folder)
            script.append(time.perf_counter() - began)
            await asyncio.to_thread(proof.require_equal, list_files(Path(folder)), content)
    ratio = median(script) / median(ours)
    how = (
        f"both as whole commands, interpreter and imports included, server running; medians of {RUNS} in turn: "
        f"{median(script):.2f} s by {median(ours):.2f} s"
    )
    return Figure(f"haulage export ÷ {PEER}, {ROWS:,} rows", ratio, "×", how, f"≥ {REACH:g}", ratio >= REACH)


async def _measure(command: Sequence[str], variables: Mapping[str, str]) -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, env=variables, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    if process.returncode:
        raise ExportFailed(f"{command[0]} ended with {process.returncode}: {errors.decode(errors='replace')}")
    return time.perf_counter() - began

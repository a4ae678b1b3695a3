"""Foundation: what a newcomer waits for, from a fresh clone: the installation, the start, and what an idle one uses."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from bench import ping
from bench.ping import PingCost
from bench.report import RATIO, Figure, publish, read_committed
from dev.embedded import fork_server
from dev.embedded.components import DATABASE, ENGINE, STORE
from dev.embedded.run_file import read_run_state
from dev.local import list_api_names

ROOT: Final = Path(__file__).parent.parent
STARTS: Final = 5
IMPORTS: Final = 3
COMPONENTS: Final = (ENGINE, DATABASE, STORE)
OWN: Final = "ours"
SETTLE_SECONDS: Final = 20.0
SMALL: Final = os.environ.get("SIZE") == "small"
IDLE_SECONDS: Final = 20.0 if SMALL else 60.0
PING_ROUNDS, PINGS = (3, 4_000) if SMALL else (5, 20_000)
START_TIMEOUT_SECONDS: Final = 600.0
PRIORITY: Final = -15
"""Other programs of a shared machine are not what is measured; without the right to it, they are."""

BUSY_LOOPS: Final = 20
BUSY_LOOP: Final = "while True: pass"
ONE_CORE: Final = ("taskset", "--cpu-list", "0")
STARTED_AGAIN: Final = b"is started again"
"""In a line of `haulage up` about a process that was killed or ended before it served."""

INSTALL_REACH_SECONDS: Final = 45.0
DEMO_REACH_SECONDS: Final = 60.0
READY_REACH: Final = 2.5
CPU_REACH: Final = 1.5
IDLE_CPU_REACH: Final = 0.05
IDLE_MEMORY_REACH_MB: Final = 700.0


@dataclass(frozen=True)
class Start:
    """One start: seconds until it was ready, those of each component, and processor seconds of Haulage's processes."""

    seconds: float
    components: Mapping[str, float]
    own_cpu_seconds: float

    @property
    def ratio(self) -> float:
        """Seconds until ready over those of the slowest component."""
        return self.seconds / max(self.components.values())


@dataclass(frozen=True)
class HardStart:
    """One start where little processor is to be had: seconds, and how often a process was started again."""

    name: str
    seconds: float
    started_again: int

    def build_figure(self) -> Figure:
        """Return its row: a process that is slow must not be killed for it."""
        how = f"one start without stand-ins; {self.started_again} processes were started again"
        return Figure(self.name, self.seconds, "s", how, "no process started again", self.started_again == 0)


@dataclass(frozen=True)
class Idle:
    """What an installation without work uses: cores and megabytes (PSS), by component and for Haulage itself."""

    cores: Mapping[str, float]
    megabytes: Mapping[str, float]


async def measure() -> None:
    """Install a clone with an empty cache, start it several times, leave it alone for a while, publish."""
    with suppress(psutil.AccessDenied):
        psutil.Process().nice(PRIORITY)
    with tempfile.TemporaryDirectory(prefix="haulage-foundation-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # noqa: ASYNC221, S607
        installed = await _measure_installation(clone)
        demo = await _measure_demo(clone)
        starts = [await _measure_start(clone, clone / ".haulage") for _ in range(STARTS)]
        hard_starts = [await _measure_start_beside_load(clone), await _measure_start_on_one_core(clone)]
        imported = statistics.median([_measure_import(clone) for _ in range(IMPORTS)])
        async with _running(clone, clone / ".haulage", "--no-stand-ins") as process:
            idle = await _measure_idle(process, clone / ".haulage")
            pings = await _measure_pings(clone / ".haulage")
    record = "foundation-small" if SMALL else "foundation"
    before = read_committed(record)
    figures = [
        *_build_demo_figures(installed, demo),
        *_build_start_figures(starts, imported, before),
        *(start.build_figure() for start in hard_starts),
        *_build_idle_figures(idle),
        pings.build_figure(),
    ]
    publish(record, figures)


def _build_demo_figures(installed: float, demo: float) -> list[Figure]:
    return [
        Figure(
            "first work of `make demo`",
            installed,
            "s",
            "from `make demo SYSTEM=downloads` in a fresh clone, with an empty cache, to its first line; "
            f"{_describe_load()}",
            f"≤ {INSTALL_REACH_SECONDS:g}",
            installed <= INSTALL_REACH_SECONDS,
        ),
        Figure(
            "`make demo` after installation",
            demo,
            "s",
            f"all five systems with their checks, from the command to its end; {_describe_load()}",
            f"≤ {DEMO_REACH_SECONDS:g}",
            demo <= DEMO_REACH_SECONDS,
        ),
    ]


def _build_start_figures(starts: list[Start], imported: float, before: Mapping[str, float]) -> list[Figure]:
    ratio = statistics.median(start.ratio for start in starts)
    cpu = statistics.median(start.own_cpu_seconds for start in starts) / imported
    slowest = _join(f"{start.seconds:.1f} / {max(start.components.values()):.1f}" for start in starts)
    return [
        Figure(
            "ready, over the slowest of engine, database and store",
            ratio,
            RATIO,
            f"median of {STARTS} starts without stand-ins, the first on an empty folder; seconds: {slowest}; "
            f"{_describe_load()}",
            f"≤ {READY_REACH:g}",
            ratio <= READY_REACH,
        ),
        *(
            Figure(
                f"{name} ready",
                statistics.median(start.components[name] for start in starts),
                "s",
                f"median; {before.get(f'{name} ready', 0.0):.2f} s in the record before",
            )
            for name in COMPONENTS
        ),
        Figure(
            "processor seconds of Haulage's processes until ready, over one import",
            cpu,
            RATIO,
            f"median; one import of all that API and workers need takes {imported:.2f} s of processor",
            f"≤ {CPU_REACH:g}",
            cpu <= CPU_REACH,
        ),
    ]


def _build_idle_figures(idle: Idle) -> list[Figure]:
    cores, megabytes = sum(idle.cores.values()), sum(idle.megabytes.values())
    return [
        Figure(
            "processor of an idle installation",
            cores,
            "cores",
            f"over {IDLE_SECONDS:g} s, without stand-ins: {_join(f'{k} {v:.3f}' for k, v in idle.cores.items())}",
            f"≤ {IDLE_CPU_REACH:g}",
            cores <= IDLE_CPU_REACH,
        ),
        Figure(
            "memory of an idle installation",
            megabytes,
            "MB",
            f"PSS, without stand-ins: {_join(f'{k} {v:.0f}' for k, v in idle.megabytes.items())}",
            f"≤ {IDLE_MEMORY_REACH_MB:g}",
            megabytes <= IDLE_MEMORY_REACH_MB,
        ),
    ]


def _describe_load() -> str:
    return f"load {os.getloadavg()[0]:.1f}"


def _join(texts: Iterable[str]) -> str:
    return ", ".join(texts)


async def _measure_installation(clone: Path) -> float:
    """Return the seconds from `make demo` to the first line of the demo itself."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *("make", "demo", "SYSTEM=downloads"), cwd=clone, env=_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None  # noqa: S101 (it was started with a pipe)
    seconds = 0.0
    async for line in process.stdout:
        if b"haulage demo" in line:
            seconds = -1.0  # the next line is the demo's
        elif seconds < 0:
            seconds = time.perf_counter() - began
    if await process.wait() or seconds <= 0:
        raise RuntimeError("`make demo SYSTEM=downloads` failed")
    return seconds


async def _measure_demo(clone: Path) -> float:
    """Return the seconds of `make demo` where everything is installed."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec("make", "demo", cwd=clone, env=_environment())
    if await process.wait():
        raise RuntimeError("`make demo` failed")
    return time.perf_counter() - began


async def _measure_start_beside_load(clone: Path) -> HardStart:
    loops = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(BUSY_LOOPS)]  # noqa: ASYNC220 - it returns at once
    try:
        return await _measure_hard_start(f"ready beside {BUSY_LOOPS} busy loops", clone)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def _measure_start_on_one_core(clone: Path) -> HardStart:
    return await _measure_hard_start("ready on one core", clone, ONE_CORE)


async def _measure_hard_start(name: str, clone: Path, prefix: Sequence[str] = ()) -> HardStart:
    lines: list[bytes] = []
    began = time.perf_counter()
    async with _running(clone, clone / ".haulage", "--no-stand-ins", prefix=prefix, lines=lines):
        seconds = time.perf_counter() - began
    return HardStart(name, seconds, sum(STARTED_AGAIN in line for line in lines))


async def _measure_start(clone: Path, data_dir: Path) -> Start:
    began = time.perf_counter()
    async with _running(clone, data_dir, "--no-stand-ins") as process:
        seconds = time.perf_counter() - began
        own = sum(_cpu_seconds(each) for name, each in _list_processes(process, data_dir) if name == OWN)
        parts = read_run_state(data_dir / "run.json").parts
        return Start(seconds, {name: parts[name].ready_seconds for name in COMPONENTS}, own)


def _measure_import(clone: Path) -> float:
    """Return the processor seconds of one import of all that API and workers need."""
    modules = [*fork_server.COMMON, *(name for role in fork_server.ROLES.values() for name in role)]
    before = os.times()
    code = f"import gc; gc.disable(); import {', '.join(modules)}"
    subprocess.run([str(clone / ".venv/bin/python"), "-c", code], cwd=clone, env=_environment(), check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


async def _measure_idle(process: psutil.Process, data_dir: Path) -> Idle:
    await asyncio.sleep(SETTLE_SECONDS)
    before = _sum_by_name(process, data_dir)
    began = time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    seconds = time.perf_counter() - began
    after = _sum_by_name(process, data_dir)
    memory: defaultdict[str, float] = defaultdict(float)
    for name, each in _list_processes(process, data_dir):
        with suppress(psutil.NoSuchProcess):
            memory[name] += each.memory_full_info().pss / 1024**2
    return Idle({name: (after[name] - before[name]) / seconds for name in after}, memory)


async def _measure_pings(data_dir: Path) -> PingCost:
    state = read_run_state(data_dir / "run.json")
    name = list_api_names()[0]
    return await ping.measure(state.addresses[name], state.parts[name].pid, PING_ROUNDS, PINGS)


def _sum_by_name(process: psutil.Process, data_dir: Path) -> Mapping[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for name, each in _list_processes(process, data_dir):
        total[name] += _cpu_seconds(each)
    return total


def _list_processes(process: psutil.Process, data_dir: Path) -> list[tuple[str, psutil.Process]]:
    """Return every process of an installation, with the component it belongs to or `ours`."""
    parts = read_run_state(data_dir / "run.json").parts
    found = []
    roots = {parts[name].pid: name for name in COMPONENTS}
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            lineage = [each.pid, *(parent.pid for parent in each.parents())]
            found.append((next((roots[pid] for pid in lineage if pid in roots), OWN), each))
    return found


def _cpu_seconds(process: psutil.Process) -> float:
    """Return processor seconds of a process and of its children that have ended."""
    with suppress(psutil.NoSuchProcess):
        return float(sum(process.cpu_times()[:4]))
    return 0.0


@asynccontextmanager
async def _running(
    clone: Path, data_dir: Path, *options: str, prefix: Sequence[str] = (), lines: list[bytes] | None = None
) -> AsyncIterator[psutil.Process]:
    """Run `haulage up` of the clone; the block begins when it says that it is ready.

    Args:
        prefix: A command that runs it.
        lines: Is given every line that it prints until then.
    """
    process = await asyncio.create_subprocess_exec(
        *prefix,
        *(str(clone / ".venv/bin/python"), "-m", "cli", "up", "--data-dir", str(data_dir), *options),
        cwd=clone,
        env=_environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 (it was started with a pipe)
    try:
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            while not (line := await process.stdout.readline()).startswith(b"Ready"):
                if not line:
                    raise RuntimeError("`haulage up` ended before it was ready")
                if lines is not None:
                    lines.append(line)
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()


def _environment() -> dict[str, str]:
    """Return this environment without what leads to this tree, or to packages that are already here."""
    hidden = ("PYTHON", "VIRTUAL_ENV", "HAULAGE_", "TEMPORAL_", "MAKE", "MFLAGS", "UV_CACHE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PIP_NO_CACHE_DIR": "1", "PYTHONUNBUFFERED": "1"}

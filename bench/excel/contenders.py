"""The contenders: ours on one core and on two, and the peers, each in a process and an environment of its own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.excel import ours
from bench.peers import environments

SYSTEM = "excel"


class WriterFailed(Exception):
    """Our own writer ended with an error."""


@dataclass(frozen=True)
class WriterInput:
    """One and the same table: typed for the peers, staged for ours."""

    rows: int
    columns: int
    typed: Path
    staged: Path

    @property
    def cells(self) -> int:
        """Below the heads."""
        return self.rows * self.columns


@dataclass(frozen=True)
class WriterRun:
    """What one book took."""

    seconds: float
    cpu_seconds: float
    peak_mb: float
    file_mb: float


@dataclass(frozen=True)
class PeerWriter:
    """A script of `bench/peers/excel/`."""

    name: str
    module: str
    slow: bool
    """Whether it takes most of a minute for a million rows: such a one runs less often."""
    cores: int = 1
    heads: int = 1
    """Rows above the first row of data."""

    async def write(self, work: WriterInput, folder: Path) -> str:
        """In its own environment."""
        return await environments.run_peer(SYSTEM, self.module, str(work.typed), str(folder))


@dataclass(frozen=True)
class HaulageWriter:
    """Haulage's writer, with as many threads as cores."""

    name: str
    cores: int
    heads: int = ours.HEAD_ROWS
    slow: bool = False

    async def write(self, work: WriterInput, folder: Path) -> str:
        """In a process of its own, too."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            ours.__name__,
            str(work.staged),
            str(folder),
            str(self.cores),
            cwd=environments.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await process.communicate()
        if process.returncode:
            raise WriterFailed(errors.decode(errors="replace")[-4_000:])
        return output.decode()


Writer = HaulageWriter | PeerWriter


async def run(writer: Writer, work: WriterInput, folder: Path) -> WriterRun:
    """One book on the cores that the writer may use."""
    with _limit_cores(writer.cores):
        printed = await writer.write(work, folder)
    took: dict[str, float] = json.loads(printed.splitlines()[-1])
    return WriterRun(**took, file_mb=(folder / "book.xlsx").stat().st_size / 1e6)


@contextmanager
def _limit_cores(cores: int) -> Iterator[None]:
    """Processes that are started meanwhile get no more cores."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[-cores:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)

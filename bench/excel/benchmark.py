"""`make bench-excel`: every writer in turn, several times, at both sizes; then an export through an installation."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.excel import content, end_to_end, figures, office, proof
from bench.excel.contenders import SYSTEM, Ours, Peer, Run, Work, Writer, run
from bench.excel.figures import JETXL, OURS, OURS_TWICE, RUSTPY, XLSXWRITER, Results
from bench.peers import environments
from bench.report import RESULTS, Figure, publish

PEERS = (
    Peer(XLSXWRITER, "xlsxwriter_constant", slow=True),
    Peer("pyexcelerate", "pyexcelerate_rows", slow=True),
    Peer(RUSTPY, "rustpy_frame", slow=False),
    Peer(JETXL, "jetxl_arrow", slow=False),
    Peer("polars", "polars_frame", slow=True),
    Peer("openpyxl", "openpyxl_write_only", slow=True),
)
WRITERS: tuple[Writer, ...] = (Ours(OURS, cores=1), Ours(OURS_TWICE, cores=2), *PEERS)
CHART = "chart"


@dataclass(frozen=True)
class Size:
    """A number of rows and of runs; the reference of the first ratio runs more often than other slow writers."""

    rows: int
    runs: int
    slow_runs: int
    xlsxwriter_runs: int


SMALL = (Size(100_000, 3, 1, 1),)
FULL = (Size(100_000, 5, 2, 3), Size(1_000_000, 5, 1, 2))


async def measure() -> None:
    """Let everybody write, prove, publish."""
    small = os.environ.get("SIZE") == "small"
    for module in (*(peer.module for peer in PEERS), CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    results: Results = {}
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SMALL if small else FULL:
            work = await asyncio.to_thread(_work, size.rows, Path(folder))
            results[size.rows] = await _rounds(size, work, Path(folder))
        found += await office.figures(Ours(OURS, cores=1), work, Path(folder))
    found += await end_to_end.figures(small=small)
    # A quick run is a look, not a record.
    name = f"{SYSTEM}-small" if small else SYSTEM
    figures.show(results)
    publish(name, [*figures.figures(results), *found])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


def _work(rows: int, folder: Path) -> Work:
    work = Work(rows, len(content.COLUMNS), folder / f"{rows}.typed", folder / f"{rows}.staged")
    content.write_typed(rows, work.typed)
    content.write_staged(rows, work.staged)
    return work


async def _rounds(size: Size, work: Work, folder: Path) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {writer.name: [] for writer in WRITERS}
    proved: dict[str, proof.Fingerprint] = {}
    for turn in range(size.runs):
        for writer in WRITERS:
            if turn < _times(writer, size):
                runs[writer.name].append(await _turn(writer, work, folder, proved))
    return runs


def _times(writer: Writer, size: Size) -> int:
    if writer.name == XLSXWRITER:
        return size.xlsxwriter_runs
    return size.slow_runs if writer.slow else size.runs


async def _turn(writer: Writer, work: Work, scratch: Path, proved: dict[str, proof.Fingerprint]) -> Run:
    """One book, which counts only when its cells are right; parts that equal those of a proved one need not be read."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        took = await run(writer, work, Path(folder))
        book = Path(folder) / "book.xlsx"
        fingerprint = proof.fingerprint(book)
        if proved.get(writer.name) != fingerprint:
            await asyncio.to_thread(proof.require_equal, [book], work.typed, writer.heads)
            proved[writer.name] = fingerprint
    rate = work.cells / took.seconds
    print(f"{work.rows:>10,} rows  {writer.name:<18} {rate:>12,.0f} cells/s  every cell is right", flush=True)
    return took

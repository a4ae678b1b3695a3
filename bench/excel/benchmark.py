"""`make bench-excel`: every writer in turn, several times, at both sizes; then an export through an installation."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.excel import content, end_to_end, figures, office, proof
from bench.excel.contenders import SYSTEM, HaulageWriter, PeerWriter, Writer, WriterInput, WriterRun, run
from bench.excel.figures import JETXL, OURS, OURS_TWICE, RUSTPY, XLSXWRITER, Results
from bench.peers import environments
from bench.report import RESULTS, Figure, publish

PEERS = (
    PeerWriter(XLSXWRITER, "xlsxwriter_constant", slow=True),
    PeerWriter("pyexcelerate", "pyexcelerate_rows", slow=True),
    PeerWriter(RUSTPY, "rustpy_frame", slow=False),
    PeerWriter(JETXL, "jetxl_arrow", slow=False),
    PeerWriter("polars", "polars_frame", slow=True),
    PeerWriter("openpyxl", "openpyxl_write_only", slow=True),
)
WRITERS: tuple[Writer, ...] = (HaulageWriter(OURS, cores=1), HaulageWriter(OURS_TWICE, cores=2), *PEERS)
CHART = "chart"


@dataclass(frozen=True)
class WorkbookSize:
    """A number of rows and of runs; the reference of the first ratio runs more often than other slow writers."""

    rows: int
    runs: int
    slow_runs: int
    xlsxwriter_runs: int


SMALL = (WorkbookSize(100_000, 3, 1, 1),)
FULL = (WorkbookSize(100_000, 5, 2, 3), WorkbookSize(1_000_000, 5, 1, 2))


async def measure() -> None:
    """Let everybody write, prove, publish."""
    small = os.environ.get("SIZE") == "small"
    for module in (*(peer.module for peer in PEERS), CHART):
        await asyncio.to_thread(environments.install_peer, SYSTEM, module)
    results: Results = {}
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SMALL if small else FULL:
            work = await asyncio.to_thread(_prepare_input, size.rows, Path(folder))
            results[size.rows] = await _run_rounds(size, work, Path(folder))
        found += await office.figures(HaulageWriter(OURS, cores=1), work, Path(folder))
    found += await end_to_end.figures(small=small)
    # A quick run has a record of its own.
    name = f"{SYSTEM}-small" if small else SYSTEM
    figures.show(results)
    publish(name, [*figures.figures(results), *found])
    await environments.run_peer(SYSTEM, CHART, str(RESULTS / f"{name}.png"), stdin=figures.as_json(results))


def _prepare_input(rows: int, folder: Path) -> WriterInput:
    work = WriterInput(rows, len(content.COLUMNS), folder / f"{rows}.typed", folder / f"{rows}.staged")
    content.write_typed(rows, work.typed)
    content.write_staged(rows, work.staged)
    return work


async def _run_rounds(size: WorkbookSize, work: WriterInput, folder: Path) -> dict[str, list[WriterRun]]:
    runs: dict[str, list[WriterRun]] = {writer.name: [] for writer in WRITERS}
    proved: dict[str, proof.Fingerprint] = {}
    for turn in range(size.runs):
        for writer in WRITERS:
            if turn < _count_runs(writer, size):
                runs[writer.name].append(await _run_writer(writer, work, folder, proved))
    return runs


def _count_runs(writer: Writer, size: WorkbookSize) -> int:
    if writer.name == XLSXWRITER:
        return size.xlsxwriter_runs
    return size.slow_runs if writer.slow else size.runs


async def _run_writer(
    writer: Writer, work: WriterInput, scratch: Path, proved: dict[str, proof.Fingerprint]
) -> WriterRun:
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

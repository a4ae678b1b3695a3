"""The progress of an export on standard error: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from haulage import Download

FILE_LINE_EVERY_PERCENT = 25


class ProgressDisplay(Protocol):
    """Shows the progress of an export."""

    def show_download(self, download: Download) -> None:
        """Show the phase and the rows of the download on the server."""

    def show_bytes(self, done: int, size: int) -> None:
        """Show how much of the file has arrived."""


@contextmanager
def show_progress() -> Iterator[ProgressDisplay]:
    """Yield a display that is shown while the block runs."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield _LineDisplay(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield _BarDisplay(progress)


class _BarDisplay:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows = progress.add_task("waiting", total=None, amount="")
        self._file: TaskID | None = None

    def show_download(self, download: Download) -> None:
        self._progress.update(
            self._rows,
            description=download.phase,
            completed=download.rows,
            total=download.total,
            amount=_format_rows(download),
        )

    def show_bytes(self, done: int, size: int) -> None:
        if self._file is None:
            self._file = self._progress.add_task("file", total=size, amount="")
        self._progress.update(self._file, completed=done, amount=_format_bytes(done, size))


class _LineDisplay:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""
        self._percent = 0

    def show_download(self, download: Download) -> None:
        self._print_line(f"{download.phase}: {_format_rows(download)}")

    def show_bytes(self, done: int, size: int) -> None:
        percent = 100 * done // max(1, size)
        if percent >= self._percent + FILE_LINE_EVERY_PERCENT:
            self._percent = percent
            self._print_line(f"file: {_format_bytes(done, size)}")

    def _print_line(self, line: str) -> None:
        if line != self._last:
            self._console.print(line)
            self._last = line


def _format_rows(download: Download) -> str:
    return f"{download.rows:,} rows" if download.total is None else f"{download.rows:,} of {download.total:,} rows"


def _format_bytes(done: int, size: int) -> str:
    return f"{done / 1e6:,.1f} of {size / 1e6:,.1f} MB"

"""How an export shows where it stands: bars on a terminal, plain lines elsewhere, both on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from haulage import Download

FILE_LINE_EVERY_PERCENT = 25


class Show(Protocol):
    """Something that shows where an export stands."""

    def download(self, download: Download) -> None:
        """What the server does."""

    def bytes(self, done: int, size: int) -> None:
        """How much of the file is here."""


@contextmanager
def shown() -> Iterator[Show]:
    """Show while the body runs."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bars(progress)


class _Bars:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rows = progress.add_task("waiting", total=None, amount="")
        self._file: TaskID | None = None

    def download(self, download: Download) -> None:
        self._progress.update(
            self._rows,
            description=download.phase,
            completed=download.rows,
            total=download.total,
            amount=_rows(download),
        )

    def bytes(self, done: int, size: int) -> None:
        if self._file is None:
            self._file = self._progress.add_task("file", total=size, amount="")
        self._progress.update(self._file, completed=done, amount=_bytes(done, size))


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ""
        self._percent = 0

    def download(self, download: Download) -> None:
        self._line(f"{download.phase}: {_rows(download)}")

    def bytes(self, done: int, size: int) -> None:
        percent = 100 * done // max(1, size)
        if percent >= self._percent + FILE_LINE_EVERY_PERCENT:
            self._percent = percent
            self._line(f"file: {_bytes(done, size)}")

    def _line(self, line: str) -> None:
        if line != self._last:
            self._console.print(line)
            self._last = line


def _rows(download: Download) -> str:
    return f"{download.rows:,} rows" if download.total is None else f"{download.rows:,} of {download.total:,} rows"


def _bytes(done: int, size: int) -> str:
    return f"{done / 1e6:,.1f} of {size / 1e6:,.1f} MB"

"""How far a command is, on standard error: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_EVERY_PERCENT = 25


class ProgressDisplay(Protocol):
    """Shows how far several pieces of work are, each by its name."""

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        """Show one of them.

        Args:
            total: None while it is not known.
            text: The amount in words, with its unit.
        """


@contextmanager
def show_progress() -> Iterator[ProgressDisplay]:
    """Yield a display that is shown on standard error while the block runs: bars on a terminal, lines elsewhere."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield _LineDisplay(console)
        return
    from rich.progress import (  # noqa: PLC0415 - scripts, which have no terminal, start sooner without it
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

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
        self._bars: dict[str, TaskID] = {}

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        if name not in self._bars:
            self._bars[name] = self._progress.add_task(name, total=None, amount="")
        self._progress.update(self._bars[name], completed=done, total=total, amount=text)


class _LineDisplay:
    """Prints a line whenever the text changes and a quarter more is done, and for the beginning and the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: dict[str, tuple[int, str]] = {}

    def show(self, name: str, done: int, total: int | None, text: str) -> None:
        """Print a line, or nothing where little has changed."""
        percent = 100 * done // max(1, total) if total else 0
        before, said = self._last.get(name, (-LINE_EVERY_PERCENT, ""))
        if text != said and (not total or percent >= before + LINE_EVERY_PERCENT or (percent == 100 > before)):
            self._last[name] = percent, text
            self._console.print(f"{name}: {text}")

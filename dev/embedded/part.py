"""A part: one child process, how it is started, how one knows that it serves, and how it is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class NotReady(Exception):
    """The part does not serve yet; the message says what it lacks."""


class PartFailed(Exception):
    """The part could not be started."""

    def __init__(self, name: str, reason: str, last_lines: str) -> None:
        super().__init__(f"The part {name} did not start: {reason}.\n{last_lines}".rstrip())


async def at_once() -> None:
    """The readiness of a part that has nothing to wait for."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What the supervisor needs to know of a process.

    Args:
        name: Stable name, for logs, `run.json` and `Supervisor.kill`.
        argv: The command.
        env: The whole environment, nothing is inherited.
        folder: Working directory.
        ready: Raises NotReady until the part serves.
        prepare: Runs before every start, e.g. to lay out a data folder.
        clean: Runs after the stop, to remove what the process left.
        ready_timeout_seconds: A process that takes longer is killed and started again.
        stop_signal: Asks for an orderly end; SIGKILL follows after `stop_timeout_seconds`.
        death_signal: Sent when the supervisor dies; must end the part without anybody's help.
    """

    name: str
    argv: list[str]
    env: Mapping[str, str] = field(repr=False)
    folder: Path
    ready: Callable[[], Awaitable[None]] = at_once
    prepare: Callable[[], Awaitable[None]] = at_once
    clean: Callable[[], Awaitable[None]] = at_once
    ready_timeout_seconds: float = 30.0
    stop_signal: signal.Signals = signal.SIGTERM
    stop_timeout_seconds: float = 10.0
    death_signal: signal.Signals = signal.SIGKILL

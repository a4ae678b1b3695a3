"""Tasks and targets of a stand-in GSE."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from sims.gse.scenario import Rule

DONE, RUNNING, TIMED_OUT, TERMINATED, UNREADABLE = 0, 115, 120, 126, 705

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Spot:
    """A file on a host or in a container."""

    agent: str
    container: str
    folder: str
    name: str

    @property
    def path(self) -> Path:
        """Where its bytes are kept, below the simulator's folder."""
        host = quote(self.agent, safe="")
        return Path(f"{host}~{quote(self.container, safe='')}" if self.container else host, *self._parts)

    @property
    def _parts(self) -> Iterable[str]:
        return (part for part in (*self.folder.split("/"), self.name) if part not in ("", ".", ".."))


class Received(Enum):
    """What a target has in the end."""

    RIGHT = "right"
    NOTHING = "nothing"
    OTHER = "other"


@dataclass(slots=True)
class Target:
    """One target of a task."""

    spot: Spot
    due: float
    end: int | str = DONE
    end_message: str = ""
    file: Received = Received.RIGHT
    """What it has when it ends as done."""
    code: int | str = RUNNING
    message: str = ""
    told: bool = True
    """Whether a record tells of it."""
    ended: float | None = None
    """On the simulator's clock."""
    finished_at: float | None = None
    """On everybody's."""
    failed_at: float | None = None
    """When a failure was first told, on everybody's clock."""

    def show(self, code: int | str, message: str) -> None:
        """Change what is told of it."""
        self.code, self.message = code, message
        if self.failed_at is None and code not in (DONE, RUNNING):
            self.failed_at = time.time()

    def finish(self, code: int | str, message: str, now: float) -> None:
        """End it; what has ended stays as it is."""
        if self.ended is None:
            self.show(code, message)
            self.ended, self.finished_at = now, time.time()


@dataclass(slots=True)
class Task:
    """One transfer."""

    id: str
    source: Spot
    timeout_seconds: int
    created: float
    created_at: float
    targets: dict[Key, Target] = field(default_factory=dict)
    users: dict[Key, str] = field(default_factory=dict)
    """Who writes the file on each target."""
    gone_at: float | None = None
    """When it was forgotten, or its upload failed, on everybody's clock."""
    upload_code: int | str = RUNNING
    upload_message: str = ""
    upload_fault: Rule | None = None
    upload_ended: float | None = None
    copied: Path | None = None
    bytes: int = 0
    polled_at: list[float] = field(default_factory=list)
    told_at: float | None = None
    """When whoever asked for it was answered with its id; on everybody's clock."""
    halted: bool = False
    """Whether its upload failed, so that running targets run for ever."""

    @property
    def polls(self) -> int:
        """How often it was asked after."""
        return len(self.polled_at)

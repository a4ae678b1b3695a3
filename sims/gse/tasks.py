"""Tasks and targets of a stand-in GSE."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from sims.gse.scenario import GseRule

DONE, RUNNING, TIMED_OUT, TERMINATED, UNREADABLE = 0, 115, 120, 126, 705

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileSpot:
    """A file on a host or in a container."""

    agent: str
    container: str
    folder: str
    name: str

    @property
    def path(self) -> Path:
        """The path of its copy below the simulator's folder."""
        host = quote(self.agent, safe="")
        return Path(f"{host}~{quote(self.container, safe='')}" if self.container else host, *self._parts)

    @property
    def _parts(self) -> Iterable[str]:
        return (part for part in (*self.folder.split("/"), self.name) if part not in ("", ".", ".."))


class ReceivedFile(Enum):
    """What a target has at the end."""

    RIGHT = "right"
    NOTHING = "nothing"
    OTHER = "other"


@dataclass(slots=True)
class SimulatedTarget:
    """One target of a task."""

    spot: FileSpot
    due: float
    end: int | str = DONE
    end_message: str = ""
    file: ReceivedFile = ReceivedFile.RIGHT
    """What it has if it ends as done."""
    code: int | str = RUNNING
    message: str = ""
    is_reported: bool = True
    """Whether results have a record of it."""
    ended: float | None = None
    """By the simulator's clock."""
    finished_at: float | None = None
    """By the wall clock."""
    failed_at: float | None = None
    """When a failure was first reported, by the wall clock."""

    def show(self, code: int | str, message: str) -> None:
        """Change what its record says."""
        self.code, self.message = code, message
        if self.failed_at is None and code not in (DONE, RUNNING):
            self.failed_at = time.time()

    def finish(self, code: int | str, message: str, now: float) -> None:
        """End it, unless it has ended."""
        if self.ended is None:
            self.show(code, message)
            self.ended, self.finished_at = now, time.time()


@dataclass(slots=True)
class SimulatedTask:
    """One transfer."""

    id: str
    source: FileSpot
    timeout_seconds: int
    created: float
    created_at: float
    targets: dict[Key, SimulatedTarget] = field(default_factory=dict)
    users: dict[Key, str] = field(default_factory=dict)
    """The user of each target."""
    gone_at: float | None = None
    """When it was forgotten, or its upload failed, by the wall clock."""
    upload_code: int | str = RUNNING
    upload_message: str = ""
    upload_fault: GseRule | None = None
    upload_ended: float | None = None
    copied: Path | None = None
    bytes: int = 0
    polled_at: list[float] = field(default_factory=list)
    told_at: float | None = None
    """When the caller received its id, by the wall clock."""
    halted: bool = False
    """Whether its upload failed, so that running targets never end."""

    @property
    def polls(self) -> int:
        """How often its results were requested."""
        return len(self.polled_at)

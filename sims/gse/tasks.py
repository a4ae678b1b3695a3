"""Tasks and targets of a stand-in GSE."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Target:
    """One target of a task."""

    spot: Spot
    due: float
    end: int = DONE
    end_message: str = ""
    code: int = RUNNING
    message: str = ""
    told: bool = True
    """Whether a record tells of it."""
    ended: float | None = None
    """On the simulator's clock."""
    finished_at: float | None = None
    """On everybody's."""

    def finish(self, code: int, message: str, now: float) -> None:
        """End it; what has ended stays as it is."""
        if self.ended is None:
            self.code, self.message, self.ended, self.finished_at = code, message, now, time.time()


@dataclass(slots=True)
class Task:
    """One transfer."""

    id: str
    source: Spot
    timeout_seconds: int
    created: float
    created_at: float
    targets: dict[Key, Target] = field(default_factory=dict)
    upload_code: int = RUNNING
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

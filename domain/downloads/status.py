"""The state of a download, as workflow, catalogue and API tell it."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from domain.faults import FaultRecord


class State(StrEnum):
    """Where a download stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing changes any more."""
        return self in (State.SUCCEEDED, State.FAILED)


class Phase(StrEnum):
    """What a running download is doing."""

    WAITING = "waiting"
    PROBING = "probing"
    FETCHING = "fetching"
    ASSEMBLING = "assembling"
    CLEANING = "cleaning"
    DONE = "done"


class Status(BaseModel):
    """What the workflow answers when asked; the API adds the rows that running fetchers report."""

    state: State = State.PENDING
    phase: Phase = Phase.WAITING
    rows: int = 0
    total: int | None = None
    fetchers: int = 0
    fault: FaultRecord | None = None


class FetchProgress(BaseModel):
    """What a fetcher's heartbeat says. A hint for people; what a retry may skip stands in the store."""

    rows: int


class StoredFile(BaseModel):
    """A finished file: where it lies, what it holds, and how to check it."""

    key: str
    name: str
    rows: int
    bytes: int
    etag: str


class Outcome(BaseModel):
    """How a download ended: a file, or the fault that kept it from becoming one."""

    state: State
    total: int | None = None
    file: StoredFile | None = None
    fault: FaultRecord | None = None

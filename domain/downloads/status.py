"""The state of a download, as workflow, catalogue and API tell it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.faults import FaultRecord


class State(StrEnum):
    """Where a download stands."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether it is over; a failed one may still be retried."""
        return self not in (State.PENDING, State.RUNNING)

    @property
    def label(self) -> str:
        """The state as operators know it."""
        return _LABELS[self]


_LABELS = {
    State.PENDING: "待处理",
    State.RUNNING: "处理中",
    State.SUCCEEDED: "处理成功",
    State.FAILED: "处理失败",
    State.CANCELLED: "已取消",
    State.EXPIRED: "已过期",
}


class Phase(StrEnum):
    """What a running download is doing."""

    WAITING = "waiting"
    PAUSING = "pausing"
    PROBING = "probing"
    FETCHING = "fetching"
    ASSEMBLING = "assembling"
    RENDERING = "rendering"
    CLEANING = "cleaning"
    DONE = "done"


class Trouble(BaseModel):
    """What a running download is being kept up by: something that is tried again."""

    code: str
    message: str
    tries: int
    """How often it was tried in vain."""
    next_try_at: datetime


class Status(BaseModel):
    """What the workflow answers when asked; the API adds the rows that running fetchers report."""

    state: State = State.PENDING
    phase: Phase = Phase.WAITING
    rows: int = 0
    under_way: dict[int, int] = {}
    """Of these rows, those of ranges that are being fetched: running fetchers know better."""
    total: int | None = None
    fetchers: int = 0
    processings: int = 0
    started_at: datetime | None = None
    fault: FaultRecord | None = None
    trouble: Trouble | None = None
    """What is being tried again, if anything is."""


class FetchProgress(BaseModel):
    """What a fetcher's heartbeat says. A hint for people; what a retry may skip stands in the store."""

    range: int
    rows: int
    smaller_page_size: int | None = None
    """With how many rows a page the download may go on, if a page took too long and one row did not."""


def with_progress(status: Status, beats: Sequence[FetchProgress]) -> Status:
    """The status with what running fetchers say on top of what the workflow knows of their ranges."""
    more = sum(
        max(0, beat.rows - status.under_way.get(beat.range, 0)) for beat in beats if beat.range in status.under_way
    )
    return status.model_copy(update={"rows": status.rows + more})


class StoredFile(BaseModel):
    """A finished file: where it lies, what it holds, and how to check it."""

    key: str
    name: str
    rows: int
    bytes: int
    etag: str
    content_type: str = ""
    """Nothing in what was recorded before it was told."""
    files: int = 1
    """How many books lie in the archive, if it is one."""
    left_out: list[str] = []
    """Keys of the data that the template does not show."""
    warnings: list[str] = []


class Outcome(BaseModel):
    """How a download ended: a file, or the fault that kept it from becoming one."""

    state: State
    total: int | None = None
    file: StoredFile | None = None
    fault: FaultRecord | None = None

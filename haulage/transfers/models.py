"""Requests and responses of transfers. Fields that a newer API adds are ignored, so older clients keep working."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict


class TransferState(StrEnum):
    """State of a task, a target or a job."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMEOUT = "Timeout"

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self not in (TransferState.PENDING, TransferState.RUNNING)


class Target(BaseModel):
    """A host, or a container on it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target_agent_id: str
    target_container_id: str = ""
    """Empty for the host itself."""


class TransferFile(BaseModel):
    """A file of the repository, and where it belongs on a target. It arrives there under its signature."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    biz_id: int
    app_id: int
    file_path: str
    """Its whole path in the repository, or its folder there."""
    file_name: str
    signature: str
    """SHA-256 of the content."""
    target_user: str
    target_file_dir: str

    @classmethod
    def from_local(
        cls, path: Path, *, biz_id: int, app_id: int, target_user: str, target_file_dir: str, file_path: str = ""
    ) -> Self:
        """Describe a file that is on this machine as well as in the repository.

        Args:
            file_path: Its path in the repository; by default its name, at the top.
        """
        with path.open("rb") as file:
            signature = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(
            biz_id=biz_id,
            app_id=app_id,
            file_path=file_path or f"/{path.name}",
            file_name=path.name,
            signature=signature,
            target_user=target_user,
            target_file_dir=target_file_dir,
        )


class TransferTask(BaseModel):
    """A request for one target that is durable and will be carried out."""

    task_id: str
    job_id: str
    target_agent_id: str
    target_container_id: str = ""


class TargetStatus(BaseModel):
    """State of a target. What it is, is known once the window of its job has ended."""

    status: TransferState
    code: int | None = None
    """GSE's code: 0 has arrived, 115 is on its way; None before that."""
    reason: str | None = None
    """Why it failed or ran out of time."""
    message: str = ""
    """The same as a sentence, and what to do; while GSE answers errors, what it says."""
    next_attempt_at: datetime | None = None
    """By when GSE is asked again while it answers errors."""
    progress: int = 0
    """Per cent."""
    speed: int = 0
    """KB/s."""
    failures: int = 0
    """How often sending it failed so far."""
    last_failure: str = ""
    cancelling: bool = False
    joined_at: datetime | None = None
    fetched_at: datetime | None = None
    sent_at: datetime | None = None
    uploaded_at: datetime | None = None
    ended_at: datetime | None = None
    target_agent_id: str | None = None
    target_container_id: str | None = None
    target_user: str | None = None
    target_file_dir: str | None = None
    signature: str | None = None
    file_name: str | None = None


class TargetsFailedAlike(BaseModel):
    """Targets that did not get the file for the same reason, or do not get it yet because GSE answers errors."""

    status: TransferState
    reason: str | None = None
    code: int | None = None
    meaning: str
    """The same as a sentence, and what to do."""
    count: int
    attempts: int | None = None
    """How often GSE was asked while it answers errors."""
    next_attempt_at: datetime | None = None


class TransferJobSummary(BaseModel):
    """State of a job, by the project's targets in it."""

    job_id: str
    biz_id: int
    app_id: int
    file_path: str
    status: TransferState
    partial: bool
    """Whether targets succeeded although the job failed or timed out."""
    counts: Mapping[TransferState, int]
    window_closes_at: datetime
    """Until then targets join."""
    deadline_at: datetime
    """What is not done by then ends as Timeout."""
    finished_at: datetime | None = None
    retry_of: str | None = None
    """The job whose failed targets this one sends again."""

    @property
    def ended(self) -> int:
        """Number of targets that have ended."""
        return sum(count for state, count in self.counts.items() if state.final)

    @property
    def total(self) -> int:
        """Number of targets."""
        return sum(self.counts.values())


class TransferJob(TransferJobSummary):
    """State of a job, why targets did not get the file, and the jobs that send those again."""

    cancelling: bool = False
    failures_by_reason: Sequence[TargetsFailedAlike] = ()
    retries: Sequence[str] = ()


class RetryJob(BaseModel):
    """A job that sends failed targets of another one again."""

    job_id: str
    retry_of: str
    targets: int

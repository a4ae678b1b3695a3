"""What callers are told of tasks and jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field

from api.http.models import Response
from domain.transfers.gse import meaning
from domain.transfers.models import Reason, State, summary
from domain.transfers.names import Job
from stores.transfers.jobs import EndCount
from stores.transfers.targets import TargetRow


class CreateTransferResponse(Response):
    """A request that will be carried out, whatever dies."""

    task_id: str
    job_id: str


class CreatedTransferTask(Response):
    """One of many."""

    task_id: str
    target_agent_id: str
    target_container_id: str


class CreateTransfersResponse(Response):
    """Many requests that will be carried out, in the order in which they were sent."""

    job_id: str
    tasks: list[CreatedTransferTask]


class TargetStatus(Response):
    """Where a target stands."""

    status: State
    code: int | None = Field(default=None, description="GSE's code: 0 has arrived, 115 is on its way; null before that")
    reason: Reason | None = Field(default=None, description="why it failed or ran out of time; null else")
    message: str = Field(default="", description="the same for people, and what to do")
    progress: int = Field(default=0, description="per cent")
    speed: int = Field(default=0, description="KB/s")
    cancelling: bool = Field(default=False, description="whether it was cancelled and has not ended yet")
    joined_at: AwareDatetime | None = Field(
        default=None,
        description="when it joined the job, in a retry when that was asked for; null before the window ends",
    )
    fetched_at: AwareDatetime | None = Field(
        default=None, description="when the host that sends it had the file; null where nothing was sent"
    )
    sent_at: AwareDatetime | None = Field(default=None, description="when GSE took it, the last time")
    uploaded_at: AwareDatetime | None = Field(
        default=None, description="when GSE was first heard to have it from that host; null where it did not say so"
    )
    ended_at: AwareDatetime | None = None


class TaskTargetStatus(TargetStatus):
    """Where a target stands, and what it is; what it is can be told when its window has ended."""

    target_agent_id: str | None = None
    target_container_id: str | None = None
    target_user: str | None = None
    target_file_dir: str | None = None
    signature: str | None = None
    file_name: str | None = None
    gse_task_id: str | None = Field(default=None, description="GSE's own id of the task that carries it, the last one")


class TransferTaskResponse(TaskTargetStatus):
    """Where a task stands: where its target does. Fields of the target are null while its window is open."""

    task_id: str
    job_id: str
    window_closes_at: AwareDatetime = Field(description="until then targets join the job; then it begins")


class TransferTargetResponse(TargetStatus):
    """A target of a job."""

    target_agent_id: str
    target_container_id: str
    target_user: str
    target_file_dir: str
    signature: str
    file_name: str


class FailureGroup(Response):
    """Targets that did not get the file for the same reason."""

    status: State
    reason: Reason | None
    code: int | None = Field(description="GSE's code, where GSE had the last word")
    meaning: str = Field(description="the same for people, and what to do")
    count: int = Field(description="how many targets")


class TransferJobSummary(Response):
    """Where a job stands, by the targets that your project has in it."""

    job_id: str
    biz_id: int
    app_id: int
    file_path: str
    status: State = Field(description="Failed if any target failed; Timeout if none did, but one ran out of time")
    partial: bool = Field(description="whether targets succeeded although the status is Failed or Timeout")
    counts: dict[State, int] = Field(description="how many targets stand where")
    closes_at: AwareDatetime = Field(description="until when targets join")
    deadline_at: AwareDatetime = Field(description="what is not done then ends as Timeout")
    finished_at: AwareDatetime | None = None
    retry_of: str | None = Field(default=None, description="the job whose failed targets this one sends again")


class RetryTransferJobResponse(Response):
    """A job that sends failed targets again."""

    job_id: str
    retry_of: str
    targets: int = Field(description="how many had failed when it was asked for")


class TransferJobResponse(TransferJobSummary):
    """Where a job stands, with a page of its targets."""

    cancelling: bool = Field(default=False, description="whether you cancelled it and targets have not ended yet")
    troubles: list[FailureGroup] = Field(
        default=[], description="why targets did not get the file, the most frequent first"
    )
    retries: list[str] = Field(default=[], description="jobs that send targets of this one again, the first one first")
    targets: list[TransferTargetResponse] = Field(description="a page of them; none before the window has ended")
    next_cursor: str | None = Field(
        default=None, description="send this as `cursor` for the next page; null on the last"
    )


class OpeningResponse(Response):
    """Some transfers that the project may send."""

    biz_id: int
    app_id: int | None
    path_prefixes: list[str]
    folder_prefixes: list[str]
    users: list[str]
    hosts: list[str]


class OpeningsResponse(Response):
    """What a project may send."""

    project_id: str
    is_restricted: bool = Field(
        description="false as long as nothing is opened for any project: then each may send everything"
    )
    openings: list[OpeningResponse]


def summarize_job(
    job: Job,
    counts: Mapping[State, int],
    closes_at: datetime,
    deadline_at: datetime,
    finished_at: datetime | None = None,
    retry_of: str | None = None,
) -> dict[str, Any]:
    """What a job's summary holds."""
    whole = summary(counts)
    return {
        "job_id": str(job),
        "biz_id": job.file.biz_id,
        "app_id": job.file.app_id,
        "file_path": job.file.path,
        "status": whole.state,
        "partial": whole.partial,
        "counts": {state: counts.get(state, 0) for state in State},
        "closes_at": closes_at,
        "deadline_at": deadline_at,
        "finished_at": finished_at,
        "retry_of": retry_of,
    }


def group_failures(ends: Sequence[EndCount]) -> list[FailureGroup]:
    found = [
        FailureGroup(
            status=each.state,
            reason=each.reason,
            code=each.code,
            meaning=each.message if each.code is None or each.reason is not Reason.GSE_CODE else meaning(each.code),
            count=each.count,
        )
        for each in ends
        if each.state in (State.FAILED, State.TIMEOUT)
    ]
    return sorted(found, key=lambda each: -each.count)


def describe_target(target: TargetRow) -> dict[str, Any]:
    """What is told of a target, alone or among others."""
    same = (
        *("signature", "file_name", "target_user", "code", "reason", "message", "progress", "speed"),
        *("joined_at", "fetched_at", "sent_at", "uploaded_at", "ended_at"),
    )
    return {
        **{name: getattr(target, name) for name in same},
        "target_agent_id": target.agent_id,
        "target_container_id": target.container_id,
        "target_file_dir": target.folder,
        "status": target.state,
        "cancelling": target.is_cancelling,
    }

"""Responses about tasks, jobs and permissions, and their builders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import AwareDatetime, Field

from api.http.models import Response
from domain.transfers.gse import explain_code
from domain.transfers.models import ALL_LEFT_OUT, FailureReason, TransferState, derive_job_outcome
from domain.transfers.names import TransferJobKey
from stores.transfers.jobs import TargetOutcomeCount
from stores.transfers.targets import TargetRow


class CreateTransferResponse(Response):
    """A request that is durable and will be carried out."""

    task_id: str
    job_id: str


class CreatedTransferTask(Response):
    """The task of one target."""

    task_id: str
    target_agent_id: str
    target_container_id: str


class CreateTransfersResponse(Response):
    """Requests that are durable and will be carried out, in the order of the request."""

    job_id: str
    tasks: list[CreatedTransferTask]


class TargetStatus(Response):
    """The state of a target."""

    status: TransferState
    code: int | None = Field(default=None, description="GSE's code: 0 has arrived, 115 is on its way; null before that")
    reason: FailureReason | None = Field(default=None, description="why it failed or ran out of time; null else")
    message: str = Field(
        default="", description="the same as a sentence, and what to do; while GSE answers errors: what it says"
    )
    next_attempt_at: AwareDatetime | None = Field(
        default=None, description="by when GSE is asked again while it answers errors; null else"
    )
    progress: int = Field(default=0, description="per cent")
    speed: int = Field(default=0, description="KB/s")
    failures: int = Field(default=0, description="how often sending it failed; it is sent again some times")
    last_failure: str = Field(default="", description="what GSE said when it failed last; empty if it did not")
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
        default=None, description="when GSE first reported that it has the file from that host; null if it did not"
    )
    ended_at: AwareDatetime | None = None


class TargetStatusAndIdentity(TargetStatus):
    """The state of a target, and once its window has ended what the target is."""

    target_agent_id: str | None = None
    target_container_id: str | None = None
    target_user: str | None = None
    target_file_dir: str | None = None
    signature: str | None = None
    file_name: str | None = None
    deadline_at: AwareDatetime | None = Field(default=None, description="if it has not ended then, it ends as Timeout")
    gse_task_id: str | None = Field(default=None, description="GSE's own id of the task that carries it, the last one")


class TransferTaskResponse(TargetStatusAndIdentity):
    """The state of a task, which is that of its target. Fields of the target are null while its window is open."""

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


class TargetsFailedAlike(Response):
    """Targets that did not get the file for the same reason, or do not get it yet because GSE answers errors."""

    status: TransferState
    reason: FailureReason | None
    code: int | None = Field(description="GSE's code, if GSE reported one")
    meaning: str = Field(description="the same as a sentence, and what to do")
    count: int = Field(description="how many targets")
    attempts: int | None = Field(default=None, description="how often GSE was asked while it answers errors; null else")
    next_attempt_at: AwareDatetime | None = Field(default=None, description="by when it is asked again; null else")


class HostTargetResponse(TransferTargetResponse):
    """The state of a target of a host, and its job."""

    job_id: str


class HostTargetsResponse(Response):
    """The targets of a host, those of the newest job first."""

    items: list[HostTargetResponse]
    next_cursor: str | None = Field(description="send this as `cursor` for the next page; null on the last")


class TransferJobSummary(Response):
    """The state of a job, by the targets of your project in it."""

    job_id: str
    biz_id: int
    app_id: int
    file_path: str
    status: TransferState = Field(
        description="Failed if any target failed; Timeout if none did, but one ran out of time"
    )
    partial: bool = Field(description="whether targets succeeded although the status is Failed or Timeout")
    counts: dict[TransferState, int] = Field(description="how many targets are in each state")
    window_closes_at: AwareDatetime = Field(description="until when targets join")
    deadline_at: AwareDatetime = Field(description="what is not done then ends as Timeout")
    finished_at: AwareDatetime | None = None
    retry_of: str | None = Field(default=None, description="the job whose failed targets this one sends again")


class RetryTransferJobResponse(Response):
    """A job that sends failed targets again."""

    job_id: str
    retry_of: str
    targets: int = Field(description="how many had failed at the time of the request")


class TransferJobResponse(TransferJobSummary):
    """The state of a job, with a page of its targets."""

    cancelling: bool = Field(default=False, description="whether you cancelled it and targets have not ended yet")
    failures_by_reason: list[TargetsFailedAlike] = Field(
        default=[], description="why targets did not get the file, the most frequent first"
    )
    retries: list[str] = Field(default=[], description="jobs that send targets of this one again, the first one first")
    targets: list[TransferTargetResponse] = Field(description="a page of them; none before the window has ended")
    next_cursor: str | None = Field(
        default=None, description="send this as `cursor` for the next page; null on the last"
    )


class TransferPermissionResponse(Response):
    """Some transfers that the project may send."""

    biz_id: int
    app_id: int | None
    path_prefixes: list[str]
    folder_prefixes: list[str]
    users: list[str]
    hosts: list[str]


class TransferPermissionsResponse(Response):
    """What a project may send."""

    project_id: str
    is_restricted: bool = Field(description="false while no project has a permission: then each may send everything")
    items: list[TransferPermissionResponse]


def build_job_summary_fields(
    job: TransferJobKey,
    counts: Mapping[TransferState, int],
    window_closes_at: datetime,
    deadline_at: datetime,
    finished_at: datetime | None = None,
    retry_of: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a job's summary."""
    outcome = derive_job_outcome(counts)
    return {
        "job_id": str(job),
        "biz_id": job.file.biz_id,
        "app_id": job.file.app_id,
        "file_path": job.file.path,
        "status": outcome.state,
        "partial": outcome.partial,
        "counts": {state: counts.get(state, 0) for state in TransferState},
        "window_closes_at": window_closes_at,
        "deadline_at": deadline_at,
        "finished_at": finished_at,
        "retry_of": retry_of,
    }


def build_failure_groups(outcomes: Sequence[TargetOutcomeCount]) -> list[TargetsFailedAlike]:
    """Return the failures among outcomes, the most frequent first; of a job without targets, why it has none."""
    if not outcomes:
        return [TargetsFailedAlike(status=TransferState.FAILED, reason=None, code=None, meaning=ALL_LEFT_OUT, count=0)]
    failures = [
        TargetsFailedAlike(
            status=each.state,
            reason=each.reason,
            code=each.code,
            meaning=_explain_failure(each),
            count=each.count,
            attempts=each.trouble.tries if each.trouble else None,
            next_attempt_at=each.trouble.next_attempt_at if each.trouble else None,
        )
        for each in outcomes
        if each.trouble or each.state in (TransferState.FAILED, TransferState.TIMEOUT)
    ]
    return sorted(failures, key=lambda each: -each.count)


def _explain_failure(outcome: TargetOutcomeCount) -> str:
    if outcome.trouble:
        return outcome.trouble.describe()
    if outcome.code is None or outcome.reason is not FailureReason.GSE_CODE:
        return outcome.message
    return explain_code(outcome.code)


def build_target_fields(target: TargetRow) -> dict[str, Any]:
    """Return the fields of a target, alone or in a list."""
    unchanged = (
        *("signature", "file_name", "target_user", "code", "reason", "progress", "speed"),
        *("failures", "last_failure"),
        *("joined_at", "fetched_at", "sent_at", "uploaded_at", "ended_at"),
    )
    return {
        **{name: getattr(target, name) for name in unchanged},
        "message": target.trouble.describe() if target.trouble else target.message,
        "next_attempt_at": target.trouble.next_attempt_at if target.trouble else None,
        "target_agent_id": target.agent_id,
        "target_container_id": target.container_id,
        "target_file_dir": target.folder,
        "status": target.state,
        "cancelling": target.is_cancelling,
    }

"""Requests of callers: bodies, queries and paths."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from api.http import validation
from api.http.models import Request
from api.http.pagination import PageQuery
from api.http.validation import QueryTimestamp
from domain.transfers import models
from domain.transfers import permissions as rules
from domain.transfers.models import (
    AGENT_ID_MAX_CHARACTERS,
    CONTAINER_ID_MAX_CHARACTERS,
    FILE_NAME_MAX_CHARACTERS,
    FOLDER_MAX_CHARACTERS,
    ID_MAX,
    PATH_MAX_CHARACTERS,
    USER_MAX_CHARACTERS,
    FailureReason,
    TransferState,
)

BATCH_TARGETS_MAX = 5_000

Id = Annotated[int, Field(ge=0, le=ID_MAX)]
Path = Annotated[
    str, Field(min_length=1, max_length=PATH_MAX_CHARACTERS), AfterValidator(models.validate_path_without_dots)
]
Folder = Annotated[str, Field(min_length=1, max_length=FOLDER_MAX_CHARACTERS), AfterValidator(models.normalize_folder)]
AgentId = Annotated[
    str, Field(min_length=1, max_length=AGENT_ID_MAX_CHARACTERS), AfterValidator(models.validate_agent_id)
]
ContainerId = Annotated[
    str, Field(max_length=CONTAINER_ID_MAX_CHARACTERS), AfterValidator(models.normalize_container_id)
]
User = Annotated[str, Field(min_length=1, max_length=USER_MAX_CHARACTERS), AfterValidator(models.validate_visible_text)]
FileName = Annotated[
    str, Field(min_length=1, max_length=FILE_NAME_MAX_CHARACTERS), AfterValidator(models.validate_file_name)
]
Signature = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$"), AfterValidator(str.lower)]


class TransferFileRequest(Request):
    """A file, and where it belongs on a target."""

    biz_id: Id
    app_id: Id
    file_path: Path = Field(
        description="which file of the app: its whole path, or its folder; part of the ids of job and task"
    )
    file_name: FileName = Field(
        description="the path's last step, added to file_path unless it is there; the file arrives under its signature"
    )
    signature: Signature = Field(description="SHA-256 of the content")
    target_user: User = Field(description="the user that writes the file on the target")
    target_file_dir: Folder = Field(description="the folder; it is created if it is missing")

    @property
    def full_path(self) -> str:
        """The normalized path of the file."""
        return models.build_full_path(self.file_path, self.file_name)


class SingleTargetTransferRequest(TransferFileRequest, title="CreateTransferRequest"):
    """One file for one target."""

    __qualname__ = "CreateTransferRequest"  # its name in the OpenAPI document

    target_agent_id: AgentId
    target_container_id: ContainerId = Field(default="", description="empty for the host itself")


class TargetRequest(Request):
    """A host, or a container on it."""

    target_agent_id: AgentId
    target_container_id: ContainerId = Field(default="", description="empty for the host itself")


class CreateTransfersRequest(TransferFileRequest):
    """One file for many targets."""

    targets: list[TargetRequest] = Field(min_length=1, max_length=BATCH_TARGETS_MAX)


class TransferTaskPath(Request):
    """Names one task. It holds slashes, which may be percent-encoded or not."""

    task_id: str = Field(max_length=400)


class TransferJobPath(Request):
    """Names one job. It holds slashes, which may be percent-encoded or not."""

    job_id: str = Field(max_length=400)


class TransferJobsQuery(PageQuery):
    """Which jobs to list."""

    ended: bool | None = Field(default=None, description="true: only those whose targets all ended; false: the others")
    search: str | None = Field(default=None, max_length=300, description="only jobs whose id contains this text")
    reason: FailureReason | None = Field(default=None, description="only those with a target that failed for this")
    window_closes_after: QueryTimestamp | None = Field(
        default=None, description="whose window ended at or after this time"
    )
    window_closes_before: QueryTimestamp | None = Field(default=None, description="whose window ended before this time")

    @model_validator(mode="after")
    def _require_times_in_order(self) -> Self:
        validation.require_start_before_end(
            self.window_closes_after, self.window_closes_before, ("window_closes_after", "window_closes_before")
        )
        return self


class HostTargetsQuery(Request):
    """Which targets of a host."""

    target_agent_id: AgentId = Field(description="the host")
    status: TransferState | None = Field(default=None, description="only targets in this state")
    reason: FailureReason | None = Field(default=None, description="only targets that ended for this reason")
    limit: int = Field(default=100, ge=1, le=1_000, description="how many at most")
    cursor: str | None = Field(
        default=None, pattern=r"^[0-9]{1,18}[.][0-9]{1,19}$", description="`next_cursor` of the page before"
    )

    @property
    def after(self) -> tuple[int, int] | None:
        """The place of the last target of the page before."""
        if self.cursor is None:
            return None
        job, _, key = self.cursor.partition(".")
        return int(job), min(int(key), 2**63 - 1)


class JobTargetsQuery(Request):
    """Which targets of a job."""

    status: TransferState | None = Field(default=None, description="only targets in this state")
    reason: FailureReason | None = Field(default=None, description="only targets that ended for this reason")
    code: int | None = Field(default=None, ge=-(2**31), le=2**31 - 1, description="only targets with this code of GSE")
    target_agent_id: str | None = Field(default=None, max_length=AGENT_ID_MAX_CHARACTERS, description="only this host")
    limit: int = Field(default=100, ge=1, le=1_000, description="how many at most")
    cursor: str | None = Field(
        default=None, pattern=r"^(0|[1-9][0-9]{0,18})$", description="`next_cursor` of the page before"
    )


class RetryTransferJobRequest(Request):
    """Which failed targets are sent again."""

    reason: FailureReason | None = Field(default=None, description="only those that failed for this reason")


PERMISSIONS_MAX = 100
PREFIXES_MAX = 100
HOSTS_MAX = 1_000

_Host = Annotated[AgentId, AfterValidator(rules.validate_host_pattern)]


class TransferPermissionRequest(Request):
    """Some transfers that the project may send. An empty list allows everything."""

    biz_id: Id
    app_id: Id | None = Field(default=None, description="null allows every app of the biz")
    path_prefixes: list[Path] = Field(
        default=[],
        max_length=PREFIXES_MAX,
        description="where files may lie in the repository, by whole steps: `/etc` allows `/etc/x`, not `/etcetera`",
    )
    folder_prefixes: list[Folder] = Field(
        default=[], max_length=PREFIXES_MAX, description="where they may be written on a target, by whole steps"
    )
    users: list[User] = Field(default=[], max_length=PREFIXES_MAX, description="the users that may write them there")
    hosts: list[_Host] = Field(
        default=[], max_length=HOSTS_MAX, description="ids of agents; one with `*` at its end allows all that begin so"
    )


class SetTransferPermissionsRequest(Request):
    """All permissions of a project."""

    items: list[TransferPermissionRequest] = Field(
        max_length=PERMISSIONS_MAX, description="they replace the previous ones"
    )

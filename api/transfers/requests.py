"""What callers ask for: one file for one target, or for many."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from api.models import Request
from domain.transfers import request
from domain.transfers.request import (
    AGENT_ID_MAX_CHARACTERS,
    CONTAINER_ID_MAX_CHARACTERS,
    FILE_NAME_MAX_CHARACTERS,
    FOLDER_MAX_CHARACTERS,
    ID_MAX,
    PATH_MAX_CHARACTERS,
    USER_MAX_CHARACTERS,
)

BATCH_TARGETS_MAX = 5_000

Id = Annotated[int, Field(ge=0, le=ID_MAX)]
Path = Annotated[str, Field(min_length=1, max_length=PATH_MAX_CHARACTERS), AfterValidator(request.sound_path)]
Folder = Annotated[str, Field(min_length=1, max_length=FOLDER_MAX_CHARACTERS), AfterValidator(request.sound_folder)]
AgentId = Annotated[str, Field(min_length=1, max_length=AGENT_ID_MAX_CHARACTERS), AfterValidator(request.sound_agent)]
ContainerId = Annotated[str, Field(max_length=CONTAINER_ID_MAX_CHARACTERS), AfterValidator(request.sound_container)]
User = Annotated[str, Field(min_length=1, max_length=USER_MAX_CHARACTERS), AfterValidator(request.sound_word)]
FileName = Annotated[str, Field(min_length=1, max_length=FILE_NAME_MAX_CHARACTERS), AfterValidator(request.sound_name)]
Signature = Annotated[str, Field(pattern=r"^[0-9A-Fa-f]{64}$"), AfterValidator(str.lower)]


class WantedFile(Request):
    """A file, and where it belongs on a target."""

    biz_id: Id
    app_id: Id
    file_path: Path = Field(
        description="which file of the app: its whole path, or its folder; part of the ids of job and task"
    )
    file_name: FileName = Field(
        description="the path's last step, added to file_path where it is not; the file arrives under its signature"
    )
    signature: Signature = Field(description="SHA-256 of the content")
    target_user: User = Field(description="who writes the file on the target")
    target_file_dir: Folder = Field(description="where; it is made if it is not there")

    @property
    def full_path(self) -> str:
        """The path that names the file, the same however it was written."""
        return request.full_path(self.file_path, self.file_name)


class NewTransfer(WantedFile):
    """One file for one target."""

    target_agent_id: AgentId
    target_container_id: ContainerId = Field(default="", description="empty for the host itself")


class NewTarget(Request):
    """A host, or a container on it."""

    target_agent_id: AgentId
    target_container_id: ContainerId = Field(default="", description="empty for the host itself")


class NewTransfers(WantedFile):
    """One file for many targets."""

    targets: list[NewTarget] = Field(min_length=1, max_length=BATCH_TARGETS_MAX)

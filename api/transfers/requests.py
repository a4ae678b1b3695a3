"""What callers ask for: one file for one target, or for many."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from api.models import Request
from domain.transfers import request
from domain.transfers.gse import bare_container
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
AgentId = Annotated[str, Field(min_length=1, max_length=AGENT_ID_MAX_CHARACTERS), AfterValidator(request.sound_word)]
ContainerId = Annotated[
    str,
    Field(max_length=CONTAINER_ID_MAX_CHARACTERS),
    AfterValidator(request.sound_word),
    AfterValidator(bare_container),
]
User = Annotated[str, Field(min_length=1, max_length=USER_MAX_CHARACTERS), AfterValidator(request.sound_word)]
FileName = Annotated[str, Field(min_length=1, max_length=FILE_NAME_MAX_CHARACTERS), AfterValidator(request.sound_word)]


class WantedFile(Request):
    """A file, and where it belongs on a target."""

    biz_id: Id
    app_id: Id
    file_path: Path = Field(description="which file of the app; part of the ids of job and task")
    file_name: FileName = Field(description="for people; the file arrives under its signature")
    signature: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the content, in lower case")
    target_user: User = Field(description="who writes the file on the target")
    target_file_dir: Folder = Field(description="where; it is made if it is not there")


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

"""The file of a transfer, the rules for paths, ids and folders in requests, and the states of targets and jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final

from pydantic import BaseModel, ConfigDict

from domain.transfers.gse import strip_container_runtime

ID_MAX: Final = 2**32 - 1
"""The largest id of a business or an app."""
JOB_ID_MAX_BYTES: Final = 240
AGENT_ID_MAX_CHARACTERS: Final = 64
CONTAINER_ID_MAX_CHARACTERS: Final = 128
USER_MAX_CHARACTERS: Final = 64
FOLDER_MAX_CHARACTERS: Final = 1_024
PATH_MAX_CHARACTERS: Final = 200
FILE_NAME_MAX_CHARACTERS: Final = 255
TEXTS_REMEMBERED_MAX: Final = 1_000
"""Texts that a check has passed: tens of thousands of requests hold the same path, folder and user."""

_FOREIGN = re.compile(r"[^!#-\[\]-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


class FileByBizAppAndPath(BaseModel):
    """The file of a job, by its path in the repository; its content may change."""

    model_config = ConfigDict(frozen=True)

    biz_id: int
    app_id: int
    path: str


class TransferSpec(BaseModel):
    """What the targets of one GSE task have in common: project, content, user and folder."""

    model_config = ConfigDict(frozen=True)

    project_id: str
    signature: str
    """SHA-256 of the content; also the name of the file on the target."""
    user: str
    folder: str


Target = tuple[int, str, str]
"""(key, agent id, container id): a tuple, because requests hold thousands; see `names.compute_target_key`."""


@lru_cache(TEXTS_REMEMBERED_MAX)
def validate_path_without_dots(path: str) -> str:
    """Return the path of a file if it is safe in a URL, an id and a folder.

    Raises:
        ValueError: It is not; the message says why.
    """
    if any(step in (".", "..") for step in path.split("/")):
        raise ValueError("it holds a step `.` or `..`; send the path without them.")
    return validate_visible_text(path)


def build_full_path(path: str, file_name: str) -> str:
    """Return the normalized path of the file, such as `/etc/app.conf`.

    Callers send the whole path, or the folder in `path`. The name is appended unless it is the last step of the path.
    """
    steps = [step for step in path.split("/") if step]
    if path.endswith("/") or not steps or steps[-1] != file_name:
        steps.append(file_name)
    return "/" + "/".join(steps)


@lru_cache(TEXTS_REMEMBERED_MAX)
def validate_file_name(name: str) -> str:
    """Return the name of a file if it is not a path.

    Raises:
        ValueError: It is not a name; the message says why.
    """
    if "/" in name or name in (".", ".."):
        raise ValueError("it is a path and no name; send the file's name alone, such as app.conf.")
    return validate_visible_text(name)


def validate_agent_id(agent_id: str) -> str:
    """Return the id of an agent or a container if GSE could have it.

    Raises:
        ValueError: It is not an id; the message says why.
    """
    if _FOREIGN.search(agent_id):
        raise ValueError(
            "it holds a blank, a quote, a backslash, or a character outside ASCII; send the id that GSE has."
        )
    return agent_id


def normalize_container_id(container_id: str) -> str:
    """Return a container's id without the runtime before it: `docker://4f1a` is `4f1a`, and empty is the host.

    Raises:
        ValueError: It names a runtime and no container; taken as empty it would mean the host.
    """
    bare = strip_container_runtime(validate_agent_id(container_id))
    if container_id and not bare:
        raise ValueError("it names a runtime and no container; send the container's id, or nothing for the host.")
    return bare


@lru_cache(TEXTS_REMEMBERED_MAX)
def normalize_folder(folder: str) -> str:
    """Return the normalized folder on the target.

    Raises:
        ValueError: It is relative or ambiguous; the message says why.
    """
    if _UNPRINTABLE.search(folder):
        raise ValueError("it holds control characters or line breaks; remove them.")
    is_windows = re.match(r"[A-Za-z]:[\\/]", folder)
    if not (folder.startswith("/") or is_windows):
        raise ValueError("it is not absolute; send one such as /data/config or C:\\config.")
    steps = re.split(r"[/\\]", folder)
    if any(step in (".", "..") for step in steps):
        raise ValueError("it holds a step `.` or `..`; send the folder without them.")
    if is_windows:
        # Windows leaves such ends out: what is written as `.. ` or `...` would be the folder above.
        if any(step.endswith((".", " ")) for step in steps):
            raise ValueError("a step of it ends with a dot or a blank; send the folder without them.")
        return folder[:3] + folder[3:].rstrip("\\/")
    return re.sub(r"/{2,}", "/", folder).rstrip("/") or "/"


@lru_cache(TEXTS_REMEMBERED_MAX)
def validate_visible_text(word: str) -> str:
    """Return a text if it has no invisible characters.

    Raises:
        ValueError: It has; the message says which.
    """
    if _UNPRINTABLE.search(word) or word != word.strip():
        raise ValueError("it begins or ends with a space, or holds control characters; remove them.")
    return word


class TransferState(StrEnum):
    """The state of a target, or of a job."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMEOUT = "Timeout"

    @property
    def is_final(self) -> bool:
        """Whether the target or job has ended."""
        return self in FINAL


FINAL = frozenset({TransferState.SUCCESS, TransferState.FAILED, TransferState.TIMEOUT})


class FailureReason(StrEnum):
    """Why a target ended as Failed or Timeout, for programs."""

    GSE_CODE = "gse_code"  # by the code that GSE reported for the target
    GSE_REFUSED = "gse_refused"
    AGENT_OFFLINE = "agent_offline"  # GSE reported that the agent is absent; nothing was sent
    UPLOAD_FAILED = "upload_failed"
    NEVER_REPORTED = "never_reported"  # GSE answered without a record of the target
    FILE_UNAVAILABLE = "file_unavailable"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


class TargetEndAndReason(BaseModel):
    """How targets end without a final record of GSE."""

    state: TransferState
    reason: FailureReason
    code: int | None = None
    message: str


class JobStateAndTargetCounts(BaseModel):
    """The state of a job by the states of its targets."""

    state: TransferState
    partial: bool
    """Whether targets succeeded although the job failed or timed out."""
    counts: dict[TransferState, int] = {}


def derive_job_outcome(counts: Mapping[TransferState, int]) -> JobStateAndTargetCounts:
    """Return the state of a job from the number of its targets in each state.

    The job ends with its last target: as Failed if a target failed, else as Timeout if one timed out, else as Success.
    One without targets has Failed: a retry that had to leave out all of them.
    """
    present = {state for state, count in counts.items() if count}
    state = next((each for each in _WORST_FIRST if each in present), TransferState.FAILED)
    if state is TransferState.PENDING and present - {TransferState.PENDING}:
        state = TransferState.RUNNING
    partial = state in (TransferState.FAILED, TransferState.TIMEOUT) and TransferState.SUCCESS in present
    return JobStateAndTargetCounts(
        state=state, partial=partial, counts={each: counts.get(each, 0) for each in TransferState}
    )


_WORST_FIRST = (
    TransferState.RUNNING,
    TransferState.PENDING,
    TransferState.FAILED,
    TransferState.TIMEOUT,
    TransferState.SUCCESS,
)

CANCELLED = "It was cancelled before it had arrived."
CANCELLED_LATE = "It was cancelled. GSE was asked to terminate it and has not confirmed that, so it may still arrive."
CANCELLED_UNHEARD = "It was cancelled. No worker was left to ask GSE to terminate it, so it may still arrive."
CANCELLED_UNSURE = (
    "It was cancelled. GSE was asked to send it and never said whether it began to, so it may still arrive."
)
SENT_BEFORE = " GSE was asked to send it before, so it may still arrive."
LATE = (
    "GSE had not reported that it arrived when the job's time was over; it may still do so. "
    "See whether the agent runs, then ask again."
)
NOT_ASKED = (
    "GSE was not asked to send it before the job's time was over, so it does not arrive. Where calls to GSE wait long "
    "for their turn, see HAULAGE_GSE__CONCURRENCY and HAULAGE_GSE__CALLS_PER_SECOND; then ask again."
)
ALL_LEFT_OUT = (
    "Nothing was sent: when this retry began, each target was either not permitted to the project any more or sent "
    "again by another retry. See the job in `retry_of`."
)
LOST_TASK = "GSE began to send it and then did not know its own task any more, so it may have arrived."
NO_REPORT = (
    "GSE took it and then answered without a readable record of this target, so it is not known whether it arrived. "
    "Look on the host, or send it again: the same file goes to the same place."
)

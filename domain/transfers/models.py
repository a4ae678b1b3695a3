"""The file that is asked for, the rules for its path and its targets, and the states of targets and jobs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict

from domain.transfers.gse import bare_container

ID_MAX: Final = 2**32 - 1
"""Of a business or an app."""
JOB_ID_MAX_BYTES: Final = 240
AGENT_ID_MAX_CHARACTERS: Final = 64
CONTAINER_ID_MAX_CHARACTERS: Final = 128
USER_MAX_CHARACTERS: Final = 64
FOLDER_MAX_CHARACTERS: Final = 1_024
PATH_MAX_CHARACTERS: Final = 200
FILE_NAME_MAX_CHARACTERS: Final = 255

_FOREIGN = re.compile(r"[^!#-\[\]-~]")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


class File(BaseModel):
    """What a job is about, whoever wants it and whatever its content is at the moment."""

    model_config = ConfigDict(frozen=True)

    biz_id: int
    app_id: int
    path: str


class Consignment(BaseModel):
    """What one GSE task can carry together: one content, written by one user into one folder, for one project."""

    model_config = ConfigDict(frozen=True)

    project_id: str
    signature: str
    """SHA-256 of the content; the file arrives under this name."""
    user: str
    folder: str


Target = tuple[int, str, str]
"""(key, agent id, container id), as short as they travel by the thousand; see `ids.target_key`."""


def sound_path(path: str) -> str:
    """A file's path that names one file, whatever it is put into: a URL, an id, a folder.

    Raises:
        ValueError: It does not, with a sentence.
    """
    if any(step in (".", "..") for step in path.split("/")):
        raise ValueError("it holds a step `.` or `..`; send the path without them.")
    return sound_word(path)


def full_path(path: str, file_name: str) -> str:
    """The path that names the file, the same however it was written: `/etc/app.conf`.

    Callers send the whole path, or the folder in `path` and the rest in `file_name`. The name is added where it is not
    the path's last step.
    """
    steps = [step for step in path.split("/") if step]
    if path.endswith("/") or not steps or steps[-1] != file_name:
        steps.append(file_name)
    return "/" + "/".join(steps)


def sound_name(name: str) -> str:
    """A file's name that is no path.

    Raises:
        ValueError: It is none, with a sentence.
    """
    if "/" in name or name in (".", ".."):
        raise ValueError("it is a path and no name; send the file's name alone, such as app.conf.")
    return sound_word(name)


def sound_agent(agent_id: str) -> str:
    """An agent's or a container's id as GSE knows them.

    Raises:
        ValueError: It is none, with a sentence.
    """
    if _FOREIGN.search(agent_id):
        raise ValueError(
            "it holds a blank, a quote, a backslash, or a character outside ASCII; send the id that GSE has."
        )
    return agent_id


def sound_container(container_id: str) -> str:
    """Return a container's id without the runtime before it: `docker://4f1a` is `4f1a`, and empty is the host.

    Raises:
        ValueError: It names a runtime and no container, with a sentence. Read as empty it would mean the host.
    """
    bare = bare_container(sound_agent(container_id))
    if container_id and not bare:
        raise ValueError("it names a runtime and no container; send the container's id, or nothing for the host.")
    return bare


def sound_folder(folder: str) -> str:
    """A folder on the target that can be meant only one way.

    Raises:
        ValueError: It cannot, with a sentence.
    """
    if _UNPRINTABLE.search(folder):
        raise ValueError("it holds control characters or line breaks; remove them.")
    is_windows = re.match(r"[A-Za-z]:[\\/]", folder)
    if not (folder.startswith("/") or is_windows):
        raise ValueError("it is not absolute; send one such as /data/config or C:\\config.")
    if any(step in (".", "..") for step in re.split(r"[/\\]", folder)):
        raise ValueError("it holds a step `.` or `..`; send the folder without them.")
    if is_windows:
        return folder[:3] + folder[3:].rstrip("\\/")
    return re.sub(r"/{2,}", "/", folder).rstrip("/") or "/"


def sound_word(word: str) -> str:
    """An id or a name without anything invisible in it.

    Raises:
        ValueError: There is, with a sentence.
    """
    if _UNPRINTABLE.search(word) or word != word.strip():
        raise ValueError("it begins or ends with a space, or holds control characters; remove them.")
    return word


class State(StrEnum):
    """Where a target, or a whole job, stands."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCESS = "Success"
    FAILED = "Failed"
    TIMEOUT = "Timeout"

    @property
    def final(self) -> bool:
        """Whether it is over."""
        return self in FINAL


FINAL = frozenset({State.SUCCESS, State.FAILED, State.TIMEOUT})


class Reason(StrEnum):
    """Why a target failed or ran out of time, for programs."""

    GSE_CODE = "gse_code"  # GSE's own code for this target says so; see `code`
    GSE_REFUSED = "gse_refused"
    AGENT_OFFLINE = "agent_offline"  # GSE says that the agent is not there, so nothing was sent
    UPLOAD_FAILED = "upload_failed"
    NEVER_TOLD = "never_told"  # GSE answered, and told nothing of this target
    FILE_UNAVAILABLE = "file_unavailable"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


class End(BaseModel):
    """How targets end that GSE itself says nothing final about."""

    state: State
    reason: Reason
    code: int | None = None
    message: str


class Summary(BaseModel):
    """A job in one word, and whether that word hides that some targets did better."""

    state: State
    partial: bool
    counts: dict[State, int] = {}


def summary(counts: Mapping[State, int]) -> Summary:
    """The state of a job of so many targets in each state.

    It is over when all its targets are. Then one that failed makes it Failed, else one that ran out of time Timeout.
    """
    present = {state for state, count in counts.items() if count}
    state = next((each for each in _WORST_FIRST if each in present), State.PENDING)
    if state is State.PENDING and present - {State.PENDING}:
        state = State.RUNNING
    partial = state in (State.FAILED, State.TIMEOUT) and State.SUCCESS in present
    return Summary(state=state, partial=partial, counts={each: counts.get(each, 0) for each in State})


_WORST_FIRST = (State.RUNNING, State.PENDING, State.FAILED, State.TIMEOUT, State.SUCCESS)

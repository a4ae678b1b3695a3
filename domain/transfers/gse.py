"""GSE as its HTTP interface speaks: who is sent what, what its records tell, and what its codes mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from domain.faults import sanitize_text

NUMBER_MAX = 2**53
UNKNOWN_CODE = -1
"""Of a record whose code is a text that is no number."""
_NUMERAL = re.compile(r"-?[0-9]{1,9}", re.ASCII)
AGENT_RUNNING = 2
"""The one state of an agent in which it transfers."""

_ABSENT_STATES = {
    -2: "GSE does not know this agent",
    6: "the agent is being stopped",
    7: "the agent was uninstalled",
}
"""States in which an agent surely takes nothing. All others, unknown ones too, may pass."""


def absence(agent_id: str, state: int | None) -> str | None:
    """Why an agent surely takes nothing; None where it may.

    An id of the old form, `cloud:ip`, may be unknown under that name only.
    """
    if state == -2 and ":" in agent_id:
        return None
    return _ABSENT_STATES.get(state) if state is not None else None


Key = tuple[str, str]
"""(agent id, container id), never joined: an old agent id `cloud:ip` holds a colon itself."""


class Verdict(Enum):
    """What a record's code says about its target, or about the upload that all targets wait for."""

    SUCCESS = "success"
    RUNNING = "running"
    RETRYABLE = "retryable"
    FATAL = "fatal"


class Side(StrEnum):
    """Whose record it is: the source's, which uploads, or a target's, which downloads."""

    UPLOAD = "upload"
    DOWNLOAD = "download"


@dataclass(frozen=True, slots=True)
class Agent:
    """A host, or a container on it, and the user who reads or writes the file there."""

    agent_id: str
    container_id: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "container_id", bare_container(self.container_id))

    @property
    def key(self) -> Key:
        """What GSE's records know it by."""
        return self.agent_id, self.container_id

    def named(self) -> dict[str, str]:
        """As requests name it where no user is needed."""
        return {"bk_agent_id": self.agent_id, "bk_container_id": self.container_id}

    def addressed(self) -> dict[str, str]:
        """As requests name it where a file is read, written or given up."""
        return {"user": self.user, **self.named()}


@dataclass(frozen=True, slots=True)
class Place:
    """A file in a folder."""

    folder: str
    name: str

    def may_be(self, told: Place | None) -> bool:
        """Whether what a record tells is this; what it does not tell may be anything."""
        if told is None:
            return True
        is_name = not told.name or _steps(told.name)[-1:] == _steps(self.name)[-1:]
        return is_name and (not told.folder or _steps(told.folder) == _steps(self.folder))


def _steps(path: str) -> list[str]:
    return [step for step in re.split(r"[/\\]+", path) if step]


@dataclass(frozen=True, slots=True)
class TransferOrder:
    """One GSE task: one file from one source to many targets, to the same place on each."""

    source: Agent
    source_file: Place
    targets: Sequence[Agent]
    target_file: Place
    timeout_seconds: int
    """GSE gives up by itself after that."""

    def body(self) -> dict[str, Any]:
        """As GSE is asked for it."""
        return {
            "timeout_seconds": self.timeout_seconds,
            "auto_mkdir": True,
            "upload_speed": 0,
            "download_speed": 0,
            "tasks": [
                {
                    "source": {
                        "file_name": self.source_file.name,
                        "store_dir": self.source_file.folder,
                        "agent": self.source.addressed(),
                    },
                    "target": {
                        "file_name": self.target_file.name,
                        "store_dir": self.target_file.folder,
                        "agents": [each.addressed() for each in self.targets],
                    },
                }
            ],
        }


@dataclass(frozen=True, slots=True)
class Record:
    """How far the source is with the upload, or one target with its download."""

    side: Side
    agent_id: str
    container_id: str
    error_code: int
    error_msg: str = ""
    progress: int = 0
    """Per cent; a success is 100, whatever GSE tells."""
    speed: int = 0
    """KB/s."""
    size: int = 0
    """Bytes."""
    status_info: str = ""
    target: Place | None = None
    """Where the file goes, as far as it is told."""

    @property
    def key(self) -> Key:
        """Whose record it is."""
        return self.agent_id, self.container_id

    @property
    def verdict(self) -> Verdict:
        """What it says."""
        return upload_verdict(self.error_code) if self.side is Side.UPLOAD else verdict(self.error_code)

    @property
    def message(self) -> str:
        """What happened, for people: our reading of the code, and GSE's own words."""
        told = (self.error_msg or self.status_info).strip()
        return sanitize_text(f"{meaning(self.error_code)} GSE says: {told}" if told else meaning(self.error_code))

    @classmethod
    def read(cls, entry: object) -> Record | None:
        """The record in one entry of a result; None for what says nothing: no code, or nobody's."""
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), Mapping):
            return None
        code, content = _code(entry.get("error_code")), entry["content"]
        side = _side(content)
        whose = "source" if side is Side.UPLOAD else "dest"
        agent_id = _text(content.get(f"{whose}_agent_id"))
        if code is None or not (agent_id or side is Side.UPLOAD):
            return None
        return cls(
            side=side,
            agent_id=agent_id,
            container_id=bare_container(_text(content.get(f"{whose}_container_id"))),
            error_code=code,
            error_msg=_message(entry),
            progress=100 if code == 0 else min(100, _amount(content.get("progress"))),
            speed=_amount(content.get("speed")),
            size=_amount(content.get("size")),
            status_info=_text(content.get("status_info")),
            target=Place(_text(content.get("dest_file_dir")), _text(content.get("dest_file_name"))),
        )


@dataclass(frozen=True, slots=True)
class Results:
    """What GSE tells of a task: the source's record, and one record for each target that it knows of."""

    upload: Record | None
    downloads: Mapping[Key, Record]

    @classmethod
    def of(cls, records: Iterable[Record], file: Place | None = None) -> Results:
        """Of several records for one side the one that is most final counts, in whatever order they come.

        Args:
            records: As they came.
            file: What is brought, and where: records of other files are none of ours.
        """
        upload: Record | None = None
        downloads: dict[Key, Record] = {}
        for record in records:
            if record.side is Side.UPLOAD:
                upload = _more_final(upload, record)
            elif file is None or file.may_be(record.target):
                downloads[record.key] = _more_final(downloads.get(record.key), record)
        return cls(upload, downloads)


_FINALITY = {Verdict.RUNNING: 0, Verdict.RETRYABLE: 1, Verdict.FATAL: 1, Verdict.SUCCESS: 2}


def _more_final(known: Record | None, new: Record) -> Record:
    return known if known and _FINALITY[known.verdict] > _FINALITY[new.verdict] else new


RUNNING_CODES = frozenset({115, 1000115})
TERMINATED_CODES = frozenset({126, 1000126})
UNREADABLE_CODES = frozenset({104, 123, 127, 705, 706, 708, 709})
RETRYABLE_CODES = frozenset(
    {101, 102, 103, 105, 106, 107, 108, 109, 111, 112, 114, 117, 118, 120, 701, 702, 703, 704, 707, 710, 1000101}
)


def verdict(error_code: int) -> Verdict:
    """What a target's code says. A code that nobody documents is final: to send again would be a guess."""
    if error_code == 0:
        return Verdict.SUCCESS
    if error_code in RUNNING_CODES:
        return Verdict.RUNNING
    return Verdict.RETRYABLE if error_code in RETRYABLE_CODES else Verdict.FATAL


def upload_verdict(error_code: int) -> Verdict:
    """What the source's code says. A file that it could not get is ours to mend: verify it again, then send again."""
    return Verdict.RETRYABLE if error_code in UNREADABLE_CODES else verdict(error_code)


_MEANINGS = {
    0: "The file has arrived.",
    117: "The agent is down or does not answer; see whether GSE's agent runs on that host.",
    119: "The file is larger than GSE carries.",
    120: "GSE's own time for the task ran out.",
    122: "There is no such user on the host; name one that exists in target_user.",
    1326: "The user's password is wrong on the host.",
    **dict.fromkeys(RUNNING_CODES, "The file is on its way."),
    **dict.fromkeys(TERMINATED_CODES, "The transfer was terminated before it was done."),
    **dict.fromkeys(UNREADABLE_CODES, "The file could not be read or written there."),
    **dict.fromkeys((701, 702, 703, 704, 707, 710), "The transfer between the agents broke."),
}


def meaning(error_code: int) -> str:
    """A code of GSE in plain English."""
    return _MEANINGS.get(error_code) or f"GSE could not do it (code {error_code})."


def bare_container(container_id: str) -> str:
    """The id without the runtime that Kubernetes puts before it: `docker://4f1a…` is `4f1a…`."""
    return container_id.rpartition("://")[2]


def _side(content: Mapping[str, Any]) -> Side:
    """`type` if it is told, else `mode`; a record with neither is a target's if it names one."""
    match content.get("type"), content.get("mode"):
        case ("upload" | "download") as side, _:
            return Side(side)
        case _, 0:
            return Side.UPLOAD
        case _, 1:
            return Side.DOWNLOAD
        case _:
            return Side.DOWNLOAD if content.get("dest_agent_id") else Side.UPLOAD


def _number(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _amount(value: object) -> int:
    """A number of something, within what a database can hold."""
    return min(NUMBER_MAX, max(0, _number(value) or 0))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _code(value: object) -> int | None:
    """A record's code; what is no number that we can keep stands for a failure without one. None says nothing."""
    if isinstance(value, str):
        return int(value) if _NUMERAL.fullmatch(value.strip()) else UNKNOWN_CODE
    number = _number(value)
    return number if number is None or abs(number) < 2**31 else UNKNOWN_CODE


def _message(entry: Mapping[str, Any]) -> str:
    code, message = entry.get("error_code"), _text(entry.get("error_msg"))
    is_lost = _code(code) == UNKNOWN_CODE and code != UNKNOWN_CODE
    return f"code {str(code)[:40]!r} {message}".strip() if is_lost else message

"""The models of GSE's HTTP interface: transfer requests, result records, and the meaning of codes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, StrEnum
from typing import Any

from pydantic import BaseModel

from domain.faults import sanitize_and_shorten_text

NUMBER_MAX = 2**53
CODE_BOUND = 2**31
"""The database has no room for larger codes."""
UNKNOWN_CODE = -1
"""The code instead of a text that is no number, and of a number beyond the bound."""
_NUMERAL = re.compile(r"-?[0-9]{1,9}", re.ASCII)
AGENT_RUNNING = 2
"""The only state in which an agent transfers files."""

_ABSENT_STATES = {
    -2: "GSE does not know this agent",
    6: "the agent is being stopped",
    7: "the agent was uninstalled",
}
"""States in which an agent certainly receives nothing. All others, including unknown ones, may be temporary."""


def explain_certain_agent_absence(agent_id: str, state: int | None) -> str | None:
    """Return why an agent certainly receives nothing; None if it may.

    An agent with an id of the old form, `cloud:ip`, may exist under another id.
    """
    if state == -2 and ":" in agent_id:
        return None
    return _ABSENT_STATES.get(state) if state is not None else None


AgentKey = tuple[str, str]
"""(agent id, container id); not joined by a colon, because agent ids of the old form `cloud:ip` contain one."""


class GseVerdict(Enum):
    """What a code means for its target, or for the upload that all targets wait for."""

    SUCCESS = "success"
    RUNNING = "running"
    RETRYABLE = "retryable"
    FATAL = "fatal"


class UploadOrDownload(StrEnum):
    """Whether a record is the source's, which uploads, or a target's, which downloads."""

    UPLOAD = "upload"
    DOWNLOAD = "download"


@dataclass(frozen=True, slots=True)
class GseAgentWithUser:
    """A host, or a container on it, and the user who reads or writes the file there."""

    agent_id: str
    container_id: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "container_id", strip_container_runtime(self.container_id))

    @property
    def key(self) -> AgentKey:
        """The key of its records in GSE's results."""
        return self.agent_id, self.container_id

    def to_id_fields(self) -> dict[str, str]:
        """Return its fields in requests without a user."""
        return {"bk_agent_id": self.agent_id, "bk_container_id": self.container_id}

    def to_agent_and_user_fields(self) -> dict[str, str]:
        """Return its fields in requests with the user who reads or writes the file."""
        return {"user": self.user, **self.to_id_fields()}


@dataclass(frozen=True, slots=True)
class FolderAndFileName:
    """A file in a folder."""

    folder: str
    name: str

    def matches_reported_parts(self, reported: FolderAndFileName | None) -> bool:
        """Return whether a record's location may be this one; what the record leaves out matches."""
        if reported is None:
            return True
        is_name = not reported.name or _split_path(reported.name)[-1:] == _split_path(self.name)[-1:]
        return is_name and (not reported.folder or _split_path(reported.folder) == _split_path(self.folder))


def _split_path(path: str) -> list[str]:
    return [step for step in re.split(r"[/\\]+", path) if step]


@dataclass(frozen=True, slots=True)
class GseTransferRequest:
    """One GSE task: one file from one source to many targets, to the same place on each."""

    source: GseAgentWithUser
    source_file: FolderAndFileName
    targets: Sequence[GseAgentWithUser]
    target_file: FolderAndFileName
    timeout_seconds: int
    """GSE ends the task after that."""

    def to_body(self) -> dict[str, Any]:
        """Return the body of the HTTP request."""
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
                        "agent": self.source.to_agent_and_user_fields(),
                    },
                    "target": {
                        "file_name": self.target_file.name,
                        "store_dir": self.target_file.folder,
                        "agents": [each.to_agent_and_user_fields() for each in self.targets],
                    },
                }
            ],
        }


@dataclass(frozen=True, slots=True)
class GseProgress:
    """The progress of the source's upload, or of one target's download."""

    side: UploadOrDownload
    agent_id: str
    container_id: str
    error_code: int
    error_msg: str = ""
    progress: int = 0
    """Per cent; always 100 for a success."""
    speed: int = 0
    """KB/s."""
    size: int = 0
    """Bytes."""
    status_info: str = ""
    target: FolderAndFileName | None = None
    """The location of the file on the target, as far as the record has it."""

    @property
    def key(self) -> AgentKey:
        """The agent that the record is about."""
        return self.agent_id, self.container_id

    @property
    def verdict(self) -> GseVerdict:
        """What its code means."""
        return (
            judge_upload_code(self.error_code)
            if self.side is UploadOrDownload.UPLOAD
            else judge_download_code(self.error_code)
        )

    @property
    def message(self) -> str:
        """A sentence for users: the meaning of the code, and GSE's own message."""
        detail = (self.error_msg or self.status_info).strip()
        return sanitize_and_shorten_text(
            f"{explain_code(self.error_code)} GSE says: {detail}" if detail else explain_code(self.error_code)
        )

    @classmethod
    def parse(cls, entry: object) -> GseProgress | None:
        """Return the record in an entry of a result; None if the entry has no code or no agent."""
        if not isinstance(entry, Mapping) or not isinstance(entry.get("content"), Mapping):
            return None
        code, content = _parse_error_code_or_unknown_code(entry.get("error_code")), entry["content"]
        side = _parse_side(content)
        whose = "source" if side is UploadOrDownload.UPLOAD else "dest"
        agent_id = _parse_text(content.get(f"{whose}_agent_id"))
        if code is None or not (agent_id or side is UploadOrDownload.UPLOAD):
            return None
        return cls(
            side=side,
            agent_id=agent_id,
            container_id=strip_container_runtime(_parse_text(content.get(f"{whose}_container_id"))),
            error_code=code,
            error_msg=_parse_error_message(entry),
            progress=100 if code == 0 else min(100, _parse_integer_within_database_range(content.get("progress"))),
            speed=_parse_integer_within_database_range(content.get("speed")),
            size=_parse_integer_within_database_range(content.get("size")),
            status_info=_parse_text(content.get("status_info")),
            target=FolderAndFileName(
                _parse_text(content.get("dest_file_dir")), _parse_text(content.get("dest_file_name"))
            ),
        )


@dataclass(frozen=True, slots=True)
class GseRecordsByAgent:
    """The results of a GSE task: the record of the source, and one record for each target that GSE knows."""

    upload: GseProgress | None
    downloads: Mapping[AgentKey, GseProgress]

    @classmethod
    def from_records(cls, records: Iterable[GseProgress], file: FolderAndFileName | None = None) -> GseRecordsByAgent:
        """Keep one record for each agent: of several, the most final one, in whatever order they come.

        Args:
            records: The records of a task.
            file: The location of the file on the targets; records of other files are left out.
        """
        upload: GseProgress | None = None
        downloads: dict[AgentKey, GseProgress] = {}
        for record in records:
            if record.side is UploadOrDownload.UPLOAD:
                upload = _choose_more_final_record(upload, record)
            elif file is None or file.matches_reported_parts(record.target):
                downloads[record.key] = _choose_more_final_record(downloads.get(record.key), record)
        return cls(upload, downloads)


_FINALITY = {GseVerdict.RUNNING: 0, GseVerdict.RETRYABLE: 1, GseVerdict.FATAL: 1, GseVerdict.SUCCESS: 2}


class FailedGseCalls(BaseModel):
    """Calls to GSE about one task that failed in a row, and when the next one comes."""

    task_number: int
    answer: str
    """What GSE answered to the last of them, and what to do."""
    tries: int
    again_at: float
    """By when GSE is asked again, in seconds since 1970."""

    @property
    def next_attempt_at(self) -> datetime:
        """By when GSE is asked again."""
        return datetime.fromtimestamp(self.again_at, UTC)

    def describe(self) -> str:
        """Return a sentence for people: what GSE answered, how often it was tried, and what comes next."""
        times = "once" if self.tries == 1 else f"{self.tries} times in a row"
        return (
            f"{self.answer} It was asked {times}, and is asked again by {self.next_attempt_at:%H:%M:%S} UTC "
            "until the job's time is over."
        )


def _choose_more_final_record(known: GseProgress | None, new: GseProgress) -> GseProgress:
    return known if known and _FINALITY[known.verdict] > _FINALITY[new.verdict] else new


RUNNING_CODES = frozenset({115, 1000115})
TERMINATED_CODES = frozenset({126, 1000126})
UNREADABLE_CODES = frozenset({104, 123, 127, 705, 706, 708, 709})
RETRYABLE_CODES = frozenset(
    {101, 102, 103, 105, 106, 107, 108, 109, 111, 112, 114, 117, 118, 120, 701, 702, 703, 704, 707, 710, 1000101}
)


def judge_download_code(error_code: int) -> GseVerdict:
    """Return what a target's code means. An undocumented code is fatal: sending again would be a guess."""
    if error_code == 0:
        return GseVerdict.SUCCESS
    if error_code in RUNNING_CODES:
        return GseVerdict.RUNNING
    return GseVerdict.RETRYABLE if error_code in RETRYABLE_CODES else GseVerdict.FATAL


def judge_upload_code(error_code: int) -> GseVerdict:
    """Return what the source's code means. If the file could not be read, it is verified and sent again."""
    return GseVerdict.RETRYABLE if error_code in UNREADABLE_CODES else judge_download_code(error_code)


_MEANINGS = {
    0: "The file has arrived.",
    117: "The agent is down or does not answer; see whether GSE's agent runs on that host.",
    119: "The file is larger than GSE allows.",
    120: "GSE's own timeout of the task has passed.",
    122: "There is no such user on the host; name one that exists in target_user.",
    1326: "The user's password is wrong on the host.",
    **dict.fromkeys(RUNNING_CODES, "The file is on its way."),
    **dict.fromkeys(TERMINATED_CODES, "The transfer was terminated before it was done."),
    **dict.fromkeys(UNREADABLE_CODES, "The file could not be read or written there."),
    **dict.fromkeys((701, 702, 703, 704, 707, 710), "The transfer between the agents failed."),
}


def explain_code(error_code: int) -> str:
    """Return a sentence about a code of GSE."""
    return _MEANINGS.get(error_code) or f"GSE reported an error (code {error_code})."


def strip_container_runtime(container_id: str) -> str:
    """Return a container id without the runtime that Kubernetes puts before it: `docker://4f1a…` is `4f1a…`."""
    return container_id.rpartition("://")[2]


def _parse_side(content: Mapping[str, Any]) -> UploadOrDownload:
    """Return the side by `type`, else by `mode`, else by whether the record names a target."""
    match content.get("type"), content.get("mode"):
        case ("upload" | "download") as side, _:
            return UploadOrDownload(side)
        case _, 0:
            return UploadOrDownload.UPLOAD
        case _, 1:
            return UploadOrDownload.DOWNLOAD
        case _:
            return UploadOrDownload.DOWNLOAD if content.get("dest_agent_id") else UploadOrDownload.UPLOAD


def _parse_integer(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parse_integer_within_database_range(value: object) -> int:
    """Return a non-negative number that the database can hold."""
    return min(NUMBER_MAX, max(0, _parse_integer(value) or 0))


def _parse_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parse_error_code_or_unknown_code(value: object) -> int | None:
    """Return a record's code, `UNKNOWN_CODE` for one that is no 32-bit number, and None for a missing one."""
    if isinstance(value, str):
        return int(value) if _NUMERAL.fullmatch(value.strip()) else UNKNOWN_CODE
    number = _parse_integer(value)
    return number if number is None or abs(number) < CODE_BOUND else UNKNOWN_CODE


def _parse_error_message(entry: Mapping[str, Any]) -> str:
    code, message = entry.get("error_code"), _parse_text(entry.get("error_msg"))
    is_lost = _parse_error_code_or_unknown_code(code) == UNKNOWN_CODE and code != UNKNOWN_CODE
    return f"code {str(code)[:40]!r} {message}".strip() if is_lost else message


_FIRST_POLL_PAUSES = (1.0, 1.0)
FEW_TARGETS = 100
"""Up to this many targets may have the file after a second, and a poll costs little."""
_POLL_PAUSES = ((2.0, 9), (5.0, 56))
"""Seconds between further polls, and how often; after these LAST_POLL_SECONDS."""
LAST_POLL_SECONDS = 10.0


class PollSchedule:
    """The pauses between polls of one shard: short at first where it has few targets, longer while none ends."""

    def __init__(self, targets: int) -> None:
        first = _FIRST_POLL_PAUSES if targets <= FEW_TARGETS else ()
        self._pauses: Iterator[float] = itertools.chain(first, _iterate_poll_pauses())

    def advance_to_next_pause(self, *, any_just_ended: bool) -> float:
        """Return the pause before the next poll; begin with 2 s again if targets ended since the last poll."""
        if any_just_ended:
            self._pauses = _iterate_poll_pauses()
        return next(self._pauses)


def _iterate_poll_pauses() -> Iterator[float]:
    first = (itertools.repeat(seconds, times) for seconds, times in _POLL_PAUSES)
    return itertools.chain(itertools.chain.from_iterable(first), itertools.repeat(LAST_POLL_SECONDS))

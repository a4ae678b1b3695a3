"""Names of the system: its task queues, workflows and activities, and the ids of jobs and tasks.

The ids have the forms that clients know; they are read from the right, because paths hold colons. A task has no record
of its own. The UUID at its end says which job its target is in (the number of the time window), which target it is,
and, by a few bits that only this installation can make, that it was issued here:

    window number 32 | target key 60 | salt 16 | check 14      (a UUID of version 8)
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from domain.transfers.models import FileByBizAppAndPath, TransferSpec

EXCLUDE_PROJECT, STATUS, COUNT_TARGETS = "exclude_project", "status", "count_targets"

JOB_WORKFLOW = "TransferJob"

FILE_QUEUE = "transfers-files"

QUEUE = "transfers"
QUEUES = (QUEUE, FILE_QUEUE)
PURGE = "transfer_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "transfers"
JOIN = "join"
JOB_FULL = "TransferJobFull"
"""The type of the error by which a job refuses a batch."""


TASK, JOB = "AsyncDownloadTask", "AsyncDownloadJob"

_FORM = re.compile(r"(\w+):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9}):(.+):([^:]+)", re.ASCII | re.DOTALL)
_WINDOW_NUMBER = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([1-9][0-9]{0,3}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)

WINDOW_NUMBER_BITS, KEY_BITS, SALT_BITS, CHECK_BITS = 32, 60, 16, 14
_LOW_BITS, _MIDDLE_BITS = 62, 12
_VERSION, _VARIANT = 8, 0b10


@dataclass(frozen=True, slots=True)
class TransferJobKey:
    """Identifies a job: one file in one time window, or the nth retry of that."""

    file: FileByBizAppAndPath
    window_number: int
    retry: int = 0

    def __str__(self) -> str:
        retry = f".{self.retry}" if self.retry else ""
        return f"{JOB}:{self.file.biz_id}:{self.file.app_id}:{self.file.path}:{self.window_number}{retry}"


@dataclass(frozen=True, slots=True)
class TransferTaskKey:
    """Identifies a task: a target of a job, and a number that distinguishes requests for the same target."""

    job: TransferJobKey
    target_key: int
    salt: int


def parse_job_id(text: str) -> TransferJobKey | None:
    """Return the job that an id names; None if the id is malformed."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != JOB or (numbers := _WINDOW_NUMBER.fullmatch(match[5])) is None:
        return None
    job = TransferJobKey(_build_file_from_match(match), int(numbers[1]), int(numbers[2] or 0))
    return job if job.window_number < 2**WINDOW_NUMBER_BITS else None


def format_task_id(task: TransferTaskKey, secret: bytes, project_id: str) -> str:
    """Return the id of a task for callers of the project."""
    file = task.job.file
    bits = (task.job.window_number << KEY_BITS | task.target_key) << SALT_BITS | task.salt
    bits = bits << CHECK_BITS | _compute_check_bits(task, secret, project_id)
    return f"{TASK}:{file.biz_id}:{file.app_id}:{file.path}:{_format_uuid(bits)}"


def parse_task_id(text: str, secret: bytes, project_id: str) -> TransferTaskKey | None:
    """Return the task that an id names; None if the id was not issued to this project."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != TASK or not _UUID.fullmatch(match[5]):
        return None
    bits = _extract_bits(match[5])
    bits, check = _split_bits(bits, CHECK_BITS)
    bits, salt = _split_bits(bits, SALT_BITS)
    window_number, key = _split_bits(bits, KEY_BITS)
    task = TransferTaskKey(TransferJobKey(_build_file_from_match(match), window_number), key, salt)
    return task if check == _compute_check_bits(task, secret, project_id) else None


def compute_target_key(spec: TransferSpec, agent_id: str, container_id: str) -> int:
    """Return the key of a target, which is the same for repeated requests and unique within a job.

    With 60 bits, the chance of a collision among the 100,000 targets of the largest job is 1 to 200 million.
    """
    text = "\0".join((spec.project_id, spec.signature, spec.user, spec.folder, agent_id, container_id))
    return _hash_to_bits(text.encode(), KEY_BITS)


def compute_window_number(unix_seconds: float, window_seconds: int) -> int:
    """Return the number of the time window that contains a time."""
    return int(unix_seconds // window_seconds)


def compute_window_end(window_number: int, window_seconds: int) -> int:
    """Return when a window ends, in seconds since 1970."""
    return (window_number + 1) * window_seconds


def _build_file_from_match(match: re.Match[str]) -> FileByBizAppAndPath:
    return FileByBizAppAndPath(biz_id=int(match[2]), app_id=int(match[3]), path=match[4])


def _compute_check_bits(task: TransferTaskKey, secret: bytes, project_id: str) -> int:
    text = f"{project_id}\0{task.job}\0{task.target_key}\0{task.salt}"
    return _hash_to_bits(text.encode(), CHECK_BITS, secret)


def _hash_to_bits(data: bytes, width: int, secret: bytes = b"") -> int:
    digest = hashlib.blake2b(data, digest_size=8, key=secret).digest()
    return int.from_bytes(digest) >> (64 - width)


def _format_uuid(bits: int) -> str:
    """Format 122 bits as a UUID of version 8; without `uuid.UUID`, because every join formats one."""
    bits, low = _split_bits(bits, _LOW_BITS)
    high, middle = _split_bits(bits, _MIDDLE_BITS)
    text = f"{high << 80 | _VERSION << 76 | middle << 64 | _VARIANT << 62 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _extract_bits(name: str) -> int:
    number = int(name.replace("-", ""), 16)
    low = number & (1 << _LOW_BITS) - 1
    middle = number >> 64 & (1 << _MIDDLE_BITS) - 1
    return (number >> 80 << _MIDDLE_BITS | middle) << _LOW_BITS | low


def _split_bits(bits: int, width: int) -> tuple[int, int]:
    """Return all but the lowest bits, and the lowest bits."""
    return bits >> width, bits & (1 << width) - 1

"""Names of the system: its task queues, workflows and activities, and the ids of jobs and tasks.

The ids have the forms that clients know; they are read from the right, because paths hold colons. A task has no record
of its own. The UUID at its end says which job its target is in (the number of the time window), which target it is,
and, by a few bits that only this installation can make, that it was issued here:

    bucket 32 | target key 60 | salt 16 | check 14      (a UUID of version 8)
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from domain.transfers.models import Consignment, File

CLOSE_TO, STATUS, JOINED = "close_to", "status", "joined"

JOB_WORKFLOW = "TransferJob"

FILE_QUEUE = "transfers-files"

QUEUE = "transfers"
QUEUES = (QUEUE, FILE_QUEUE)
PURGE = "transfer_purge"
HOUSEKEEPING = (PURGE,)
SYSTEM = "transfers"
JOIN = "join"


TASK, JOB = "AsyncDownloadTask", "AsyncDownloadJob"

_FORM = re.compile(r"(\w+):(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,9}):(.+):([^:]+)", re.ASCII | re.DOTALL)
_BUCKET = re.compile(r"(0|[1-9][0-9]{0,9})(?:\.([1-9][0-9]{0,3}))?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.ASCII)

BUCKET_BITS, KEY_BITS, SALT_BITS, CHECK_BITS = 32, 60, 16, 14
_LOW_BITS, _MIDDLE_BITS = 62, 12
_VERSION, _VARIANT = 8, 0b10


@dataclass(frozen=True, slots=True)
class Job:
    """One file in one time window, or the nth retry of that."""

    file: File
    bucket: int
    retry: int = 0

    def __str__(self) -> str:
        retry = f".{self.retry}" if self.retry else ""
        return f"{JOB}:{self.file.biz_id}:{self.file.app_id}:{self.file.path}:{self.bucket}{retry}"


@dataclass(frozen=True, slots=True)
class Task:
    """One request: a target of a job, and a number that tells it from other requests for the same target."""

    job: Job
    target_key: int
    salt: int


def read_job(text: str) -> Job | None:
    """The job that a text names, if it has the form."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != JOB or (numbers := _BUCKET.fullmatch(match[5])) is None:
        return None
    bucket, retry = int(numbers[1]), int(numbers[2] or 0)
    return Job(_file(match), bucket, retry) if bucket < 2**BUCKET_BITS else None


def write_task(task: Task, secret: bytes, project_id: str) -> str:
    """The id that a caller of the project is given."""
    file = task.job.file
    bits = task.job.bucket
    for value, width in (
        (task.target_key, KEY_BITS),
        (task.salt, SALT_BITS),
        (_check(task, secret, project_id), CHECK_BITS),
    ):
        bits = bits << width | value
    return f"{TASK}:{file.biz_id}:{file.app_id}:{file.path}:{_uuid(bits)}"


def read_task(text: str, secret: bytes, project_id: str) -> Task | None:
    """The task that a text names, if we gave this id out, to this project."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] != TASK or not _UUID.fullmatch(match[5]):
        return None
    bits = _bits(uuid.UUID(match[5]))
    bits, check = _split(bits, CHECK_BITS)
    bits, salt = _split(bits, SALT_BITS)
    bucket, key = _split(bits, KEY_BITS)
    task = Task(Job(_file(match), bucket), key, salt)
    return task if check == _check(task, secret, project_id) else None


def target_key(consignment: Consignment, agent_id: str, container_id: str) -> int:
    """A number for a target: the same request gives the same, and no two targets of a job share one.

    60 bits: among the 100,000 targets of the largest job two meet with a chance of 1 to 200 million.
    """
    wanted = consignment
    text = "\0".join((wanted.project_id, wanted.signature, wanted.user, wanted.folder, agent_id, container_id))
    return _number(text.encode(), KEY_BITS)


def bucket_at(unix_seconds: float, window_seconds: int) -> int:
    """The number of the time window that a moment lies in."""
    return int(unix_seconds // window_seconds)


def closes_at(bucket: int, window_seconds: int) -> int:
    """The moment at which a window ends, in seconds since 1970."""
    return (bucket + 1) * window_seconds


def _file(match: re.Match[str]) -> File:
    return File(biz_id=int(match[2]), app_id=int(match[3]), path=match[4])


def _check(task: Task, secret: bytes, project_id: str) -> int:
    text = f"{project_id}\0{task.job}\0{task.target_key}\0{task.salt}"
    return _number(text.encode(), CHECK_BITS, secret)


def _number(data: bytes, width: int, secret: bytes = b"") -> int:
    digest = hashlib.blake2b(data, digest_size=8, key=secret).digest()
    return int.from_bytes(digest) >> (64 - width)


def _uuid(bits: int) -> str:
    """122 bits as a UUID, around its version and variant; written out, because every join makes one."""
    bits, low = _split(bits, _LOW_BITS)
    high, middle = _split(bits, _MIDDLE_BITS)
    text = f"{high << 80 | _VERSION << 76 | middle << 64 | _VARIANT << 62 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _bits(name: uuid.UUID) -> int:
    low = name.int & (1 << _LOW_BITS) - 1
    middle = name.int >> 64 & (1 << _MIDDLE_BITS) - 1
    return (name.int >> 80 << _MIDDLE_BITS | middle) << _LOW_BITS | low


def _split(bits: int, width: int) -> tuple[int, int]:
    """All but the lowest bits, and these."""
    return bits >> width, bits & (1 << width) - 1

"""What is said to a lane and what it answers: on the wire arrays, in the order of the fields here, all but `Rules`.

A lane is asked thousands of times a second, so these are msgspec's structs: decoding one costs a tenth of a
microsecond a field, and what has another type or lies outside its bounds is refused before the lane sees it.

Within a lane a task is named by its key, the 32 hexadecimal digits before `_{type}_{pos}`. Moments are milliseconds
since 1970 on the engine's clock. Texts that are too long to stay in a lane lie in the table `task_contents`, under the
task's id and a reference of 11 characters (`REF_CHARACTERS`, made from the text, so that the same text has the same).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated, Final

from msgspec import Meta, Struct

GROUP_MAX_BYTES: Final = 250_000
"""Of an encoded group: ten groups and their answers must fit one message to the engine, 4 MiB."""
GROUP_MAX_OPERATIONS: Final = 1_000
"""Operations of all kinds together; what a lane remembers of a sender's last group is a byte for each."""
REPLY_MAX_BYTES: Final = 900_000
"""Of tasks in one answer, and in all that a lane gives at one go."""
TEXT_MAX_BYTES: Final = 512
"""Of a content or a log as JSON writes it, quotes and escapes included; what is longer goes by reference."""
REF_CHARACTERS: Final = 11
STAGE_MAX_BYTES: Final = 32
"""Of a stage, which has neither quotes, backslashes nor control characters."""
USER_ID_MAX_BYTES: Final = 128
HOLD_LIMIT_MAX: Final = 2_000
PRIORITY_MAX_SECONDS: Final = 31_104_000
RETRIES_MAX: Final = 1_000_000
LEASE_MAX_SECONDS: Final = 7 * 86_400

Key = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Count = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_MAX_BYTES)]
Stage = Annotated[str, Meta(max_length=STAGE_MAX_BYTES, pattern=r'^[^\x00-\x1f\x7f"\\]*$')]
UserId = Annotated[str, Meta(max_length=USER_ID_MAX_BYTES)]
Priority = Annotated[int, Meta(ge=0, le=PRIORITY_MAX_SECONDS)]
Moment = Annotated[int, Meta(ge=0, le=2**53)]
LeaseSeconds = Annotated[int, Meta(ge=0, le=LEASE_MAX_SECONDS)]
LeaseNumber = Annotated[int, Meta(ge=0, le=2**53)]
HoldLimit = Annotated[int, Meta(ge=0, le=HOLD_LIMIT_MAX)]


class Status(IntEnum):
    """Where a task stands. The last three are final; the original knows the first four."""

    PENDING = 1
    RUNNING = 2
    SUCCESS = 3
    FAILED = 4
    CANCELLED = 5


FINAL: Final = (Status.SUCCESS, Status.FAILED, Status.CANCELLED)


class Code:
    """What became of an operation: one character of an answer's text, in the order of the operations."""

    OK: Final = "0"
    SAME: Final = "1"
    """It was so already: a create that is repeated, or a set or cancel that had been done."""
    CONFLICT: Final = "2"
    """A create with a known key and another user, priority or, until a worker had the task, content."""
    FULL: Final = "3"
    """The lane takes no more tasks, now or ever: create it in the next one."""
    MISSING: Final = "4"
    """No such task here: it is archived, or it never was."""
    FINAL: Final = "5"
    """The task has ended, and nothing changes that."""
    STALE: Final = "6"
    """Not this holder's task any more: its lease is over, or it was never given out."""
    NO_ROOM: Final = "7"
    """A set whose texts are too much for what the lane still has room for: send them by reference."""
    NO_LEASE: Final = "8"
    """A set that names no lease, of a type that demands one."""


class Refs(IntFlag):
    """Which texts of a task are not the text but the reference of it; and whether it must never come twice."""

    NONE = 0
    CONTENT = 1
    LOG = 2
    KEYED = 4
    """A caller chose its id and may send it again at any time: the lane knows it as long as it lives."""
    LATER = 8
    """It waits for the time at which its creator has it start."""


class Rules(Struct, frozen=True):
    """The configuration of a type, as a lane works by it; it takes up a version that is higher than its own."""

    version: Annotated[int, Meta(ge=0, le=2**53)] = 0
    schedule_limit: Annotated[int, Meta(ge=1, le=HOLD_LIMIT_MAX)] = 100
    """How many tasks a hold gives out at most."""
    max_retry_num: Count = 3
    max_retry_interval: Annotated[int, Meta(ge=-LEASE_MAX_SECONDS, le=LEASE_MAX_SECONDS)] = 30
    """Seconds: positive, delays double up to it; negative, each delay is so long; 0, at once."""
    max_processing_time: Annotated[int, Meta(ge=1, le=LEASE_MAX_SECONDS)] = 30
    """Seconds that a lease lasts unless a hold asks for another time."""
    paused: bool = False
    """Nothing is given out; the rest goes on."""
    lane_max_tasks: Annotated[int, Meta(ge=1)] = 5_000
    retry_interval: Annotated[int, Meta(ge=1, le=LEASE_MAX_SECONDS)] = 1
    """Seconds of the first delay where delays double."""
    lease_required: bool = False
    """Whoever sets a task must name the lease that hold gave."""


class Task(Struct, array_like=True, gc=False):
    """A task as it stands in its lane, as it is carried on, given out, read and archived."""

    key: str
    user_id: str
    priority: int
    """Seconds by which it is ahead of others."""
    status: int
    stage: str
    crt_retry_num: int
    content: str
    log: str
    refs: int
    """`Refs`: whether content and log are references."""
    order_time: int
    """The place in the queue: due from this moment on, the earlier the sooner."""
    create_time: int
    modify_time: int
    lease: int = 0
    """The number under which it was given out last; each is given once. After a time-out one that nobody knows."""
    lease_end: int = 0
    """While it runs: when the lane takes it back."""
    attempts: tuple[int, ...] = ()
    """Of those that did not end it: a row for `domain.tasks.attempts`. Empty where a task is given out."""


class NewTask(Struct, array_like=True, gc=False):
    """A task to be created, pending at once; `order_time` is now minus the priority."""

    key: Key
    user_id: UserId
    content: Text
    priority: Priority = 0
    stage: Stage = ""
    refs: int = 0
    start: Moment = 0
    """Not given out before this moment, and then as if created at it; one that is over is as good as none."""


class Hold(Struct, array_like=True, gc=False):
    """Give me up to so many tasks that are due, in their order."""

    limit: HoldLimit
    """0 stands for the type's `schedule_limit`, which bounds it in any case."""
    lease_seconds: LeaseSeconds = 0
    """0 stands for the type's `max_processing_time`."""


class Setting(Struct, array_like=True, gc=False):
    """What a worker says of a task that it holds. What is None stays; an empty text or a zero is set."""

    key: Key
    status: Annotated[int, Meta(ge=0, le=4)] = 0
    """3 and 4 end it; 1 throws it back; 0 or 2 keep it running, with a new lease."""
    lease: LeaseNumber | None = None
    """As the hold gave it. None: whoever holds it."""
    crt_retry_num: Count | None = None
    """With status 1: higher than before means that it failed, else it goes on to a next stage, at the queue's tail."""
    stage: Stage | None = None
    content: Text | None = None
    log: Text | None = None
    refs: int = 0
    """`Refs` of the content and the log given here."""
    failed: bool = False
    """With status 1: it failed, and the lane counts the retry."""
    is_unleased: bool = False
    """A worker says it that has named no lease, though one may be given here by who passes it on."""


class Beat(Struct, array_like=True, gc=False):
    """I am still at it: the lease begins anew."""

    key: Key
    lease: LeaseNumber | None = None
    lease_seconds: LeaseSeconds = 0


class Group(Struct, array_like=True):
    """Operations of one API process, done in this order: rules, sets, beats, cancels, creates, holds, reads."""

    sender: Annotated[str, Meta(min_length=1, max_length=40)]
    """A name of the process that no other one has or had."""
    number: Annotated[int, Meta(ge=1, le=2**53)]
    """Higher than that of the group before, of this sender in this lane. The last number again is the last group again:
    it is answered as the first time, and done only once. A lower one is too late and refused."""
    creates: Annotated[list[NewTask], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    holds: Annotated[list[Hold], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    sets: Annotated[list[Setting], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    beats: Annotated[list[Beat], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    cancels: Annotated[list[Key], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    """Pending and running tasks become cancelled; who holds one finds out at the next beat or set."""
    reads: Annotated[list[Key], Meta(max_length=GROUP_MAX_OPERATIONS)] = []
    rules: Rules | None = None


class Head(Struct, array_like=True):
    """How a lane stands, in a few numbers."""

    number: int = 0
    """Grows whenever anything changes, to tell the newer of two."""
    next_order_time: int | None = None
    """The earliest among pending tasks; due if it is not later than now."""
    next_lease_end: int | None = None
    """The earliest, or an earlier moment, at which a running task may be taken back."""
    due: int = 0
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    """These four and the cancelled ones are all tasks that were ever created here, archived ones too."""
    archived: int = 0
    """How many of the ended ones are in the archive, and no longer here."""
    held: int = 0
    """How often a task was given out."""
    retries: int = 0
    timeouts: int = 0
    full: bool = False
    """It takes no more tasks."""
    share: int = 0
    """How much of what it may take it has taken, tasks or bytes, in per cent."""
    cancelled: int = 0
    """Of all that were ever created here, as the four above."""


class GroupReply(Struct, array_like=True):
    """What became of a group; a text holds a `Code` for each operation, in the order asked."""

    head: Head
    now: int
    """The lane's clock."""
    version: int
    """Of the rules in force."""
    creates: str = ""
    holds: list[list[Task]] = []
    """Shorter than asked if the answer was full: what is missing was not done, so ask again."""
    sets: str = ""
    beats: str = ""
    cancels: str = ""
    reads: list[Task | None] = []
    """Shorter than asked if the answer was full. None: not here; then, and only then, ask the archive."""
    late: bool = False
    """The group is older than the sender's last one; nothing was done, and nobody should be waiting for it."""


class Look(Struct, array_like=True):
    """A query: tasks by key."""

    keys: Annotated[list[Key], Meta(max_length=2_000)]


class Seen(Struct, array_like=True):
    """The answer to `Look`: in the order asked, shorter if the answer was full, None for what is not here."""

    tasks: list[Task | None]
    head: Head


class Search(Struct, array_like=True):
    """A query: live tasks with these properties, the newest first. 0 and None stand for any."""

    status: Annotated[int, Meta(ge=0, le=5)] = 0
    stage: str | None = None
    user_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=HOLD_LIMIT_MAX)] = HOLD_LIMIT_MAX
    before: int = 0
    """Created before this moment, or at it with a key below `before_key`."""
    before_key: str = ""
    with_attempts: bool = True
    begin: int = -1
    """From 0: all live tasks from that one on, as they came, with no regard to what else is given."""


class Found(Struct, array_like=True):
    """The answer to `Search`: ended tasks that the archive has already may be among them."""

    tasks: list[Task]
    head: Head


class LaneStatus(Struct):
    """How a lane stands, with a name for each number."""

    version: int
    paused: bool
    full: bool
    due: int
    pending: int
    running: int
    success: int
    failed: int
    archived: int
    held: int
    retries: int
    timeouts: int
    bytes: int
    cancelled: int = 0

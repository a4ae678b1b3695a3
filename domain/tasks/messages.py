"""Messages between the API and a lane. They are JSON arrays in the order of the fields, except `TaskTypeRules`.

A lane receives thousands of operations a second, so these are msgspec structs: decoding takes about 0.1 µs a field, and
a value of another type or out of bounds is refused before the lane sees it.

Within a lane a task is identified by its key, the 32 hexadecimal digits before `_{type}_{pos}`. Times are milliseconds
since 1970 by the engine's clock. A text that is too long for a lane is stored in the table `task_contents`, under the
task's id and a reference of 11 characters derived from the text.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Annotated, Final, TypeAlias

from msgspec import Meta, Struct

BATCH_MAX_BYTES: Final = 250_000
"""Of an encoded batch: ten batches and their replies must fit one message to the engine, 4 MiB."""
BATCH_MAX_OPERATIONS: Final = 1_000
"""Operations of all kinds together. A lane remembers one byte for each operation of a sender's last batch."""
REPLY_MAX_BYTES: Final = 900_000
"""Of tasks in one reply, and in all replies that a lane gives in one workflow task."""
TEXT_MAX_BYTES: Final = 512
"""Of a content or a log as a JSON string, with quotes and escapes; a longer text is sent by reference."""
REF_CHARACTERS: Final = 11
STAGE_MAX_BYTES: Final = 32
"""Of a stage, which has neither quotes, backslashes nor control characters."""
USER_ID_MAX_BYTES: Final = 128
HOLD_LIMIT_MAX: Final = 2_000
PRIORITY_MAX_SECONDS: Final = 31_104_000
RETRIES_MAX: Final = 1_000_000
LEASE_MAX_SECONDS: Final = 7 * 86_400

KEY_CHARACTERS: Final = 32
"""Of a task's key, with which its id begins."""
Key = Annotated[str, Meta(pattern=f"^[0-9a-f]{{{KEY_CHARACTERS}}}$")]
Count = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_MAX_BYTES)]
Stage = Annotated[str, Meta(max_length=STAGE_MAX_BYTES, pattern=r'^[^\x00-\x1f\x7f"\\]*$')]
UserId = Annotated[str, Meta(max_length=USER_ID_MAX_BYTES)]
Priority = Annotated[int, Meta(ge=0, le=PRIORITY_MAX_SECONDS)]
Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]
LeaseSeconds = Annotated[int, Meta(ge=0, le=LEASE_MAX_SECONDS)]
LeaseNumber = Annotated[int, Meta(ge=0, le=2**53)]
HoldLimit = Annotated[int, Meta(ge=0, le=HOLD_LIMIT_MAX)]


class TaskStatus(IntEnum):
    """State of a task. The last three are final; flowSvr has the first four."""

    PENDING = 1
    RUNNING = 2
    SUCCESS = 3
    FAILED = 4
    CANCELLED = 5


FINAL: Final = (TaskStatus.SUCCESS, TaskStatus.FAILED, TaskStatus.CANCELLED)


class OperationCode:
    """Result of one operation: a reply concatenates these characters in the order of the operations."""

    OK: Final = "0"
    SAME: Final = "1"
    """Already done: a repeated create, or a set or cancel that had taken effect."""
    CONFLICT: Final = "2"
    """A create with a known key and another user, priority or, until a worker has held the task, content."""
    FULL: Final = "3"
    """The lane accepts no more tasks, now or later: create it in the next lane."""
    MISSING: Final = "4"
    """The lane does not have the task: it is archived, or never existed."""
    FINAL: Final = "5"
    """The task has ended; its state is final."""
    STALE: Final = "6"
    """The lease is not in force: it has expired, was passed to another holder, or was never granted."""
    NO_ROOM: Final = "7"
    """The texts of a set exceed the space left in the lane: send them by reference."""
    NO_LEASE: Final = "8"
    """A set without a lease, for a type that requires one."""
    REMOVED: Final = "9"
    """A create for a type that is removed, or about to be."""


OperationCodeText: TypeAlias = str
"""One of the values of `OperationCode`."""


class TaskFlags(IntFlag):
    """Flags of a task: which of its texts are references, and how its creation is treated."""

    NONE = 0
    CONTENT = 1
    LOG = 2
    KEYED = 4
    """The caller chose its id and may repeat the create at any time: the lane remembers the key as long as it runs."""
    LATER = 8
    """It waits for the start time that its creator set."""


class TaskTypeRules(Struct, frozen=True):
    """Configuration of a type as a lane applies it. A lane adopts rules whose version is higher than its own."""

    version: Annotated[int, Meta(ge=0, le=2**53)] = 0
    schedule_limit: Annotated[int, Meta(ge=1, le=HOLD_LIMIT_MAX)] = 100
    """Maximum number of tasks of one hold."""
    max_retry_num: Count = 3
    max_retry_interval: Annotated[int, Meta(ge=-LEASE_MAX_SECONDS, le=LEASE_MAX_SECONDS)] = 30
    """Seconds. Positive: delays double up to it. Negative: every delay is its absolute value. 0: no delay."""
    max_processing_time: Annotated[int, Meta(ge=1, le=LEASE_MAX_SECONDS)] = 30
    """Seconds of a lease, unless the hold requests another duration."""
    paused: bool = False
    """Holds return no task; all else continues."""
    lane_max_tasks: Annotated[int, Meta(ge=1)] = 5_000
    retry_interval: Annotated[int, Meta(ge=1, le=LEASE_MAX_SECONDS)] = 1
    """Seconds of the first delay, where delays double."""
    lease_required: bool = False
    """A set must carry the lease that the hold returned."""
    removed: bool = False
    """The lane refuses creates; all else continues."""


class Task(Struct, array_like=True, gc=False):
    """A task as its lane keeps it, returns it and archives it."""

    key: str
    user_id: str
    priority: int
    """Seconds by which it moves ahead in the queue."""
    status: int
    stage: str
    crt_retry_num: int
    content: str
    log: str
    flags: int
    """`TaskFlags`, e.g. whether content and log are references."""
    order_time: int
    """Its place in the queue: it is due from this time on, and earlier times go first."""
    create_time: int
    modify_time: int
    lease: int = 0
    """Number of its last lease; each number is used once. An expired lease is replaced by an unused number."""
    lease_end: int = 0
    """When the lease of a running task expires."""
    attempts: tuple[int, ...] = ()
    """Attempts that did not end it, encoded by `domain.tasks.attempts`. Empty in replies to a hold."""


class CreateOperation(Struct, array_like=True, gc=False):
    """Create a pending task. Its `order_time` is the current time minus the priority."""

    key: Key
    user_id: UserId
    content: Text
    priority: Priority = 0
    stage: Stage = ""
    flags: int = 0
    start: Milliseconds = 0
    """The task is not returned by a hold before this time, and then queued as if created at it; ignored if past."""


class HoldOperation(Struct, array_like=True, gc=False):
    """Lease up to `limit` due tasks, in queue order."""

    limit: HoldLimit
    """0 means the type's `schedule_limit`, which is also the upper bound."""
    lease_seconds: LeaseSeconds = 0
    """0 means the type's `max_processing_time`."""


class SetOperation(Struct, array_like=True, gc=False):
    """Set the state of a held task. None leaves a field unchanged; an empty text and a zero are written."""

    key: Key
    status: Annotated[int, Meta(ge=0, le=4)] = 0
    """3 and 4 end the task, 1 returns it to the queue, 0 and 2 keep it running and extend its lease."""
    lease: LeaseNumber | None = None
    """The lease that the hold returned. None matches any holder."""
    crt_retry_num: Count | None = None
    """With status 1: a higher number than before marks a failed attempt, else the task goes on to its next stage."""
    stage: Stage | None = None
    content: Text | None = None
    log: Text | None = None
    flags: int = 0
    """`TaskFlags` of the content and the log in this message."""
    failed: bool = False
    """With status 1: the attempt failed, and the lane counts the retry."""
    is_unleased: bool = False
    """The worker sent no lease, even if the API has filled one in."""


class HeartbeatOperation(Struct, array_like=True, gc=False):
    """Renew the lease of a running task."""

    key: Key
    lease: LeaseNumber | None = None
    lease_seconds: LeaseSeconds = 0


class LaneBatch(Struct, array_like=True):
    """Operations of one API process. They are applied as rules, sets, heartbeats, cancels, creates, holds, reads."""

    sender: Annotated[str, Meta(min_length=1, max_length=40)]
    """Unique name of the API process."""
    number: Annotated[int, Meta(ge=1, le=2**53)]
    """Increases with each batch of this sender to this lane. A repeated number is answered as the first time without
    being applied again; a lower one is refused as late."""
    creates: Annotated[list[CreateOperation], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    holds: Annotated[list[HoldOperation], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    sets: Annotated[list[SetOperation], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    heartbeats: Annotated[list[HeartbeatOperation], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    cancels: Annotated[list[Key], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    """Pending and running tasks become cancelled; a holder learns of it at its next heartbeat or set."""
    reads: Annotated[list[Key], Meta(max_length=BATCH_MAX_OPERATIONS)] = []
    rules: TaskTypeRules | None = None


class LaneHead(Struct, array_like=True):
    """Summary of a lane: when its next task is due, and its counters."""

    number: int = 0
    """Increases with every change, so that the newer of two heads is known."""
    next_order_time: int | None = None
    """The earliest `order_time` of its pending tasks, due or not."""
    next_lease_end: int | None = None
    """No lease expires before this time."""
    due: int = 0
    pending: int = 0
    running: int = 0
    success: int = 0
    failed: int = 0
    """Pending, running, success, failed and cancelled sum up to all tasks ever created here, archived ones included."""
    archived: int = 0
    """Ended tasks that the archive has and the lane has forgotten."""
    held: int = 0
    """How many leases were granted."""
    retries: int = 0
    timeouts: int = 0
    full: bool = False
    """It accepts no more tasks."""
    fill_percent: int = 0
    """Share of its capacity in use, by tasks or by bytes, whichever is higher."""
    cancelled: int = 0


class LaneBatchReply(Struct, array_like=True):
    """Results of a batch. A text holds one `OperationCode` for each operation, in order."""

    head: LaneHead
    now: int
    """The lane's clock."""
    version: int
    """Of the rules in force."""
    creates: str = ""
    holds: list[list[Task]] = []
    """Shorter than the request if the reply was full: the missing operations were not applied and can be repeated."""
    sets: str = ""
    heartbeats: str = ""
    cancels: str = ""
    reads: list[Task | None] = []
    """Shorter than the request if the reply was full. None: not in this lane; only then may the archive be read."""
    late: bool = False
    """The batch is older than the sender's last one, so nothing was applied."""


class TaskLookup(Struct, array_like=True):
    """Query: tasks by key."""

    keys: Annotated[list[Key], Meta(max_length=2_000)]


class TaskLookupReply(Struct, array_like=True):
    """Tasks in the order of the keys, None for each that the lane does not have; cut off if the reply was full."""

    tasks: list[Task | None]
    head: LaneHead


class TaskSearch(Struct, array_like=True):
    """Query: live tasks with these properties, newest first. 0 and None match any value."""

    status: Annotated[int, Meta(ge=0, le=5)] = 0
    stage: str | None = None
    user_id: str | None = None
    limit: Annotated[int, Meta(ge=1, le=HOLD_LIMIT_MAX)] = HOLD_LIMIT_MAX
    before: int = 0
    """Created before this time, or at it with a key below `before_key`."""
    before_key: str = ""
    with_attempts: bool = True
    offset: int = -1
    """From 0 on: return all live tasks from this index on, in order of creation, and ignore the other properties."""


class TaskSearchReply(Struct, array_like=True):
    """Tasks that match; ended tasks that are already archived may be among them."""

    tasks: list[Task]
    head: LaneHead


class LaneStatus(Struct):
    """Counters of a lane by name, for people who read the query `status`."""

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

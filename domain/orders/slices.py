"""Slices: their states, why one is read, when one that failed is read again, and backfills, which read many again."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from domain.faults import FaultRecord, format_count
from domain.orders.windows import TimeWindow


class SliceState(StrEnum):
    """State of a slice."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SPLIT = "split"


class RereadState(StrEnum):
    """State of the last requested reading of a complete slice."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class SliceReadPurpose(StrEnum):
    """Why a slice is read."""

    FIRST = "first"
    """To complete it."""
    AGAIN = "again"
    """Because an operator asked for it: a failed slice is completed by it, a complete one stays complete."""
    SWEEP = "sweep"
    """Later, to find what the first reading missed."""


class SliceReadOutcome(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    SPLIT = "split"
    OVER = "over"
    """Another reading has finished the slice, or it was split or skipped."""


class SliceResumePoint(BaseModel):
    """Where a reading stopped: the answers that it had received."""

    model_config = ConfigDict(frozen=True)

    key: str
    older: str | None = None
    """Key that this one replaces; deleted when this one is loaded."""
    kept_at: AwareDatetime
    declared_revision: int = 0
    """That of the platform when they were received."""


WAITS_MAX: Final = 1_000
WAITED_MAX_SECONDS: Final = 2 * 86_400.0
"""Limits of consecutive waits without progress; after them each wait counts as a failure. A daily quota is available
again within that time."""
WAIT_MAX_SECONDS: Final = 86_400.0
"""Upper bound of a single wait, whatever a platform asks for."""
EXPIRED_WAIT_MAX_SECONDS: Final = 60.0
"""Longest interval between two checks whether refused credentials work again."""
OWN_LIMIT_WAIT_MAX_SECONDS: Final = 60.0
"""Longest interval between two checks whether our own limiter has room: an operator may have raised a limit."""
OUTAGE_WAIT_MAX_SECONDS: Final = 300.0
"""Longest interval between two attempts while the database or the object store is out: each may read a whole window of
its platform before it fails."""
DOUBLINGS_MAX: Final = 20
CRASHES_MAX: Final = 10
"""Workers that may be lost while they read a slice before the slice counts as the cause."""


class SliceFailureKind(StrEnum):
    """Why an attempt failed."""

    FAILED = "failed"
    """The next attempt may succeed."""
    REFUSED = "refused"
    """No attempt will succeed until something is corrected."""
    EXPIRED = "expired"
    """The account's credentials are refused: the slice waits, without limit, until they work."""
    TOLD_TO_WAIT = "told_to_wait"
    """The platform or this installation asked to wait; that is not a failure."""
    CRASHED = "crashed"
    """The worker was lost or stopped."""


class SliceAttemptFailure(BaseModel):
    """One attempt that failed; histories have it as the detail of an error."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    kind: SliceFailureKind = Field(alias="trouble")
    fault: FaultRecord
    wait_seconds: float = 0.0
    is_own_limit: bool = False
    """Whether the wait is this installation's own: its limiter asked for it, or one of its components is out."""
    is_outage: bool = False
    """Whether it is the latter: each wait in a row is twice as long as the one before."""
    resume_point: SliceResumePoint | None = Field(default=None, alias="place")
    """Where the next attempt can continue."""
    gained: int = 0
    """Answers that it received beyond those of earlier attempts."""


class SliceRetryState(BaseModel):
    """Failures and waits of a slice so far."""

    failures: int = 0
    waits: int = 0
    """Consecutive waits without progress."""
    waited_seconds: float = 0.0
    crashes: int = 0
    expired: int = 0
    """Consecutive attempts with refused credentials and without progress."""
    outages: int = 0
    """Consecutive attempts that an outage of this installation's components ended."""

    def record_failure_and_compute_pause(
        self, failure: SliceAttemptFailure, retries: int, retryintv: float
    ) -> float | None:
        """Return the seconds until the next attempt; None where there is none, and the slice has failed."""
        if failure.gained:
            self.waits, self.waited_seconds, self.expired = 0, 0.0, 0
        self.expired = self.expired + 1 if failure.kind is SliceFailureKind.EXPIRED else 0
        self.outages = self.outages + 1 if failure.is_outage else 0
        wait_seconds = min(failure.wait_seconds, WAIT_MAX_SECONDS)
        match failure.kind:
            case SliceFailureKind.REFUSED:
                return None
            case SliceFailureKind.EXPIRED:
                doubled = max(retryintv, 0.1) * 2.0 ** min(self.expired - 1, DOUBLINGS_MAX)
                return min(EXPIRED_WAIT_MAX_SECONDS, doubled)
            case SliceFailureKind.TOLD_TO_WAIT if failure.is_outage:
                return min(OUTAGE_WAIT_MAX_SECONDS, wait_seconds * 2.0 ** min(self.outages - 1, DOUBLINGS_MAX))
            case SliceFailureKind.TOLD_TO_WAIT if failure.is_own_limit:
                # Never a failure of the platform, however long a quota of ours stays used up.
                return min(OWN_LIMIT_WAIT_MAX_SECONDS, max(wait_seconds, 0.1))
            case SliceFailureKind.TOLD_TO_WAIT if self.waits < WAITS_MAX and self.waited_seconds < WAITED_MAX_SECONDS:
                self.waits, self.waited_seconds = self.waits + 1, self.waited_seconds + wait_seconds
                return max(wait_seconds, 0.1)
            case SliceFailureKind.CRASHED if self.crashes < CRASHES_MAX:
                self.crashes += 1
                return 0.0
        self.failures += 1
        if self.failures > retries:
            return None
        return max(self.failures * retryintv, wait_seconds)


FAILURES_STOP: Final = 3
"""Consecutive failed slices after which a backfill stops: the platform would refuse the others too."""
BATCH_SLICES: Final = 20
"""Slices of a backfill that are read at the same time."""
REQUESTED_BY_SCHEDULE: Final = "Temporal's schedule"
"""`requested_by` of a backfill that was started in the Temporal Web UI, which passes no name on."""
BACKFILL_TERMINATED: Final = FaultRecord(
    code="backfill_ended",
    message="The workflow of the backfill was ended in Temporal before all its slices were read.",
    hint="Ask for the time again.",
)
SLICE_TERMINATED: Final = FaultRecord(
    code="slice_ended", message="The workflow of the slice was ended in Temporal before it was read.", hint="Redo it."
)
SLICE_REPLACED: Final = FaultRecord(
    code="slice_no_longer_open",
    message="The slice was split or skipped before it was read again.",
    hint="Ask for the time again.",
)


# fmt: off
SliceCause: TypeAlias = Literal[
    "platform_busy", "platform_credentials", "platform_failed", "platform_refused", "platform_rows_max",
    "platform_zone", "slice_ended", "slice_no_longer_open", "slice_timeout", "worker_lost", "worker_stopped",
]
# fmt: on
"""The code of the fault of a slice."""


class BackfillState(StrEnum):
    """State of a backfill."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class FailedSlice(BaseModel):
    """A slice that could not be read again, and why."""

    model_config = ConfigDict(frozen=True)

    window: TimeWindow
    fault: FaultRecord


class BackfillProgress(BaseModel):
    """Progress of a backfill."""

    model_config = ConfigDict(frozen=True)

    read: int = 0
    failed: int = 0
    failed_in_row: int = 0
    read_to: AwareDatetime | None = None
    """Every slice of the backfill that begins before this has been tried."""
    first_failed: FailedSlice | None = None

    def add_slice(self, window: TimeWindow, fault: FaultRecord | None) -> BackfillProgress:
        """Return the progress after the next slice, in order of time, has ended."""
        if fault is None:
            return self.model_copy(update={"read": self.read + 1, "failed_in_row": 0, "read_to": window.end})
        return self.model_copy(
            update={
                "failed": self.failed + 1,
                "failed_in_row": self.failed_in_row + 1,
                "read_to": window.end,
                "first_failed": self.first_failed or FailedSlice(window=window, fault=fault),
            }
        )

    @property
    def has_too_many_consecutive_failures(self) -> bool:
        """Whether enough consecutive slices have failed that the others are not tried."""
        return self.failed_in_row >= FAILURES_STOP

    @property
    def fault(self) -> FaultRecord | None:
        """The fault of the backfill, taken from its first failed slice; None where every slice was read."""
        if self.first_failed is None:
            return None
        cause, window = self.first_failed.fault, self.first_failed.window
        some = format_count(self.failed, "slice")
        stopped = (
            f" After {FAILURES_STOP} failures in a row the rest was not tried."
            if self.has_too_many_consecutive_failures
            else ""
        )
        return FaultRecord(
            code=cause.code,
            message=f"{some} could not be read again, the first {window}: {cause.message}{stopped}",
            hint=cause.hint or "Mend the cause, then ask for the time again.",
            retryable=cause.retryable,
        )

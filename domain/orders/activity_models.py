"""Inputs and results of the workflows and activities of orders."""

from __future__ import annotations

from datetime import date
from typing import Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from domain.faults import FaultRecord
from domain.orders.config import PlatformSettings
from domain.orders.slices import (
    BackfillProgress,
    BackfillState,
    FailedSlice,
    SliceReadOutcome,
    SliceReadPurpose,
    SliceResumePoint,
    SliceRetryState,
)
from domain.orders.windows import LiveOrHistory, TimeWindow
from domain.secrets import SealedText


class _ImmutableModelBase(BaseModel):
    model_config = ConfigDict(frozen=True, validate_by_name=True, serialize_by_alias=True)


class PlatformInput(_ImmutableModelBase):
    """A platform, by its name."""

    platform: str


class MeasureClockSkewInput(PlatformInput):
    """Which platform's clock is read, and whether a failed attempt is recorded at once."""

    records_failure: bool = True
    """Not while an earlier reading of the same cycle is good enough."""


class PlatformAndCycleRunFlags(PlatformInput):
    """One run of a platform's schedule."""

    heeds_pause: bool = False
    """Whether the run belongs to the platform's schedule, and claims nothing while that is paused."""
    continued: bool = False
    """Whether the run continues one whose history had grown long."""


class ClockSkew(PlatformInput):
    """How far a platform's clock is ahead of the database's."""

    skew_seconds: float
    is_alarm_due: bool = False
    """Whether it is too far off, and no alarm of that is recorded."""


class PlatformFaultInput(PlatformInput):
    """Why a platform's clock could not be read, or why it refuses the credentials."""

    asked_at: AwareDatetime
    """When the failed request began: credentials that worked later are not reported as refused."""

    fault: FaultRecord


class ClaimSlicesInput(PlatformInput):
    """Which platform's next slices are claimed."""

    skew_seconds: float | None
    """How far the platform's clock is ahead of ours; None where it cannot be read: nothing new is claimed then."""
    heeds_pause: bool = False
    scheduled_at: AwareDatetime | None = None
    """When this run was due: before `claimed_to`, the slices of that time are read again."""
    running: list[TimeWindow] = []
    """Slices that the cycle is reading."""


class SliceJob(_ImmutableModelBase):
    """One slice to be read."""

    window: TimeWindow
    track: LiveOrHistory = LiveOrHistory.LIVE
    purpose: SliceReadPurpose = SliceReadPurpose.FIRST
    suffix: str = ""
    further: list[TimeWindow] = []
    """Small slices that the same reading goes on with; what it leaves of them is claimed again."""

    @property
    def windows(self) -> list[TimeWindow]:
        """The slice and the further ones."""
        return [self.window, *self.further]


class ClaimSlicesResult(_ImmutableModelBase):
    """Slices to read next."""

    project_id: str
    jobs: list[SliceJob]
    threads: int
    is_paused: bool = False
    rereads: bool = False
    """Whether this run was due in the past: its slices are read again, and no watermark moves."""


class SliceWorkflowState(_ImmutableModelBase):
    """State of a slice's workflow that continues as new."""

    attempt: int
    ladder: SliceRetryState
    resume_point: SliceResumePoint | None = Field(alias="place")


class SliceInput(PlatformInput):
    """Input of a slice's workflow."""

    project_id: str
    job: SliceJob
    so_far: SliceWorkflowState | None = None
    """State of the runs before this one; None in the first."""


class ReadSliceInput(PlatformInput):
    """Input of one attempt at a slice."""

    window: TimeWindow
    purpose: SliceReadPurpose
    settings: PlatformSettings
    resume_point: SliceResumePoint | None = Field(default=None, alias="place")
    """Where the previous attempt stopped."""
    holder: str
    """Identifies the attempt in the ledger: once a later attempt has taken the slice, this one can no longer commit.

    It is the workflow's id, a slash, and the attempt's id, which has no slash.
    """
    further: list[TimeWindow] = []
    """Small slices that are read next, where all goes well."""

    @property
    def attempt_id(self) -> str:
        """The id of the attempt within the slice's workflow."""
        return self.holder.rpartition("/")[2]


class ReadSliceResult(_ImmutableModelBase):
    """Result of an attempt at a slice."""

    ending: SliceReadOutcome
    orders: int = 0
    changed: int = 0
    total: int | None = None
    passes: int = 0
    pages: int = 0
    outside: int = 0
    undated: int = 0
    missed: int = 0
    halves: list[SliceJob] = []
    further_done: int = 0
    """How many of the further slices are read."""


class FailSliceInput(PlatformInput):
    """Moves a slice into the failed set."""

    reader: str
    """The workflow that gives the slice up; nothing changes where another workflow has begun to read it since."""

    window: TimeWindow
    purpose: SliceReadPurpose
    fault: FaultRecord
    attempts: int


class SliceResult(_ImmutableModelBase):
    """Result of a slice's workflow."""

    done: bool
    orders: int = 0
    halves: int = 0
    further_done: int = 0
    fault: FaultRecord | None = None


class SliceStatus(_ImmutableModelBase):
    """Status of a slice's workflow."""

    purpose: SliceReadPurpose = SliceReadPurpose.FIRST
    attempt: int = 0
    pause_seconds: float | None = None
    next_attempt_at: AwareDatetime | None = None
    fault: FaultRecord | None = None


class OrderCycleStatus(_ImmutableModelBase):
    """Status of a cycle."""

    running: list[TimeWindow] = []
    finished: int = 0
    """Slices that were read."""
    failed: int = 0

    def add_result(self, result: SliceResult) -> Self:
        """Count the slices of a reading. One that replaced itself by its halves, or was taken over, is not finished."""
        is_read = result.done and not result.halves
        return self.model_copy(
            update={
                "finished": self.finished + is_read + result.further_done,
                "failed": self.failed + (result.fault is not None),
            }
        )


class PlatformAlarm(PlatformInput):
    """A message for the administrator of a platform."""

    project_id: str
    notify: SealedText
    type: str
    message: str


class ServedPlatformsResult(_ImmutableModelBase):
    """Platforms by whether a worker answered for them."""

    served: list[str] = []
    unserved: list[str] = []


class OrderWatchPatienceInput(_ImmutableModelBase):
    """Input of the watch."""

    patience_seconds: float = 20.0
    """Seconds to wait for an answer, twice, before a platform counts as unserved."""


class AlarmsToAnnounce(_ImmutableModelBase):
    """Alarms to announce."""

    alarms: list[PlatformAlarm] = []


class PlatformNumbersResult(_ImmutableModelBase):
    """The names of all platforms."""

    platforms: list[str] = []


class ReportReadingProgress(_ImmutableModelBase):
    """How far the platform's orders of a report have been read."""

    number: int
    """Parts written to the object store so far."""
    read_to: AwareDatetime


class ReportInput(PlatformInput):
    """A day to compare."""

    day: date
    window: TimeWindow
    """The part of the day that is compared: what is fetched and complete."""
    zone_minutes: int = 0
    """Offset of the platform's zone from UTC; the day and its hours are those of this zone."""
    complete_to: AwareDatetime | None = None
    so_far: ReportReadingProgress | None = None
    """State of the runs before this one; None in the first."""


class NextReportPartInput(_ImmutableModelBase):
    """The next part of a report to be read."""

    order: ReportInput
    folder: str
    """Prefix of the parts in the object store until they are compared."""
    after: ReportReadingProgress


class OrderReportFigures(_ImmutableModelBase):
    """Figures of a report; the workbook has the ids."""

    platform: str
    day: date
    made_at: AwareDatetime
    complete_to: AwareDatetime | None
    window: TimeWindow
    """The part of the day that was compared: nothing outside of it counts as missing."""
    zone_minutes: int = 0
    listed: int
    """Orders that the platform lists for that part."""
    stored: int
    """Orders that are stored for it."""
    missing: int
    """Listed by the platform, and not stored or only in an older version."""
    not_listed: int | None
    """Stored and no longer listed; None where the platform filters by creation time, which is not stored."""
    key: str


class BackfillInput(PlatformInput):
    """A time whose complete slices are read again."""

    backfill_id: str
    project_id: str
    window: TimeWindow
    requested_by: str
    requested_at: AwareDatetime
    progress: BackfillProgress | None = None
    """Progress of the runs before this one; None in the first."""


class BackfillBatchInput(PlatformInput):
    """Progress of a backfill, which asks for its next slices."""

    backfill_id: str
    window: TimeWindow
    progress: BackfillProgress = BackfillProgress()
    unread: tuple[FailedSlice, ...] = ()
    """Slices of the last batch whose workflow was terminated before it could record the failure itself."""


class BackfillSlicesToRead(BaseModel):
    """The slices that a backfill reads next; empty when it is finished."""

    model_config = ConfigDict(frozen=True)

    jobs: list[SliceJob] = []


class EndBackfillInput(PlatformInput):
    """End of a backfill, for its record."""

    backfill_id: str
    progress: BackfillProgress = BackfillProgress()
    fault: FaultRecord | None = None


class BackfillStatus(BaseModel):
    """Status of a backfill's workflow."""

    model_config = ConfigDict(frozen=True)

    state: BackfillState = BackfillState.RUNNING
    progress: BackfillProgress = BackfillProgress()
    fault: FaultRecord | None = None

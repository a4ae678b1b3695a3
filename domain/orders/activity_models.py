"""Inputs and results of the workflows and activities of orders."""

from __future__ import annotations

from datetime import date

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.faults import FaultRecord
from domain.orders.backfills import BackfillProgress, BackfillState, FailedSlice
from domain.orders.config import PlatformSettings
from domain.orders.slices import ReadOutcome, ReadPurpose, ResumePoint, RetryState
from domain.orders.watermarks import SliceTrack
from domain.orders.windows import TimeWindow
from domain.sealed import SealedText


class _FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class PlatformInput(_FrozenModel):
    """Which platform."""

    platform: str


class OrderCycleInput(PlatformInput):
    """What a run of a platform's schedule is to do."""

    heeds_pause: bool = False
    """Whether it belongs to the platform's schedule, and claims nothing while that is paused."""
    continued: bool = False
    """Whether it goes on from a run before it, whose history had grown long."""


class ClockSkew(PlatformInput):
    """How far a platform's clock is before the database's."""

    skew_seconds: float


class NoteFailureInput(PlatformInput):
    """Tells why a platform's clock could not be read, or its credentials are refused."""

    asked_at: AwareDatetime
    """When that was begun to be asked: what has come right since then is right."""

    fault: FaultRecord


class ClaimInput(PlatformInput):
    """Asks for the slices that are next."""

    skew_seconds: float | None
    """How far the platform's clock is before ours; None where it cannot be read, and nothing new can be claimed."""
    heeds_pause: bool = False
    scheduled_at: AwareDatetime | None = None
    """When this run was due: before `claimed_to`, it re-reads the slices of that time."""
    running: list[TimeWindow] = []
    """Slices that the cycle has going."""


class SliceJob(_FrozenModel):
    """One slice to be read."""

    window: TimeWindow
    track: SliceTrack = SliceTrack.LIVE
    purpose: ReadPurpose = ReadPurpose.FIRST
    suffix: str = ""


class ClaimResult(_FrozenModel):
    """What to read next."""

    project_id: str
    jobs: list[SliceJob]
    threads: int
    is_paused: bool = False
    rereads: bool = False
    """Whether this run's time is over already: its slices are read again, and no mark moves."""


class SliceProgress(_FrozenModel):
    """Where a slice stands that goes on in another run."""

    attempt: int
    ladder: RetryState
    place: ResumePoint | None


class SliceInput(PlatformInput):
    """One slice's workflow."""

    project_id: str
    job: SliceJob
    so_far: SliceProgress | None = None
    """What the runs before this one came to, where their history had grown long."""


class ReadSliceInput(PlatformInput):
    """One attempt at a slice."""

    window: TimeWindow
    purpose: ReadPurpose
    settings: PlatformSettings
    place: ResumePoint | None = None
    """Where the attempt before had to stop."""
    holder: str
    """Names the attempt: who comes later has another one, and what this one still writes changes nothing."""


class ReadSliceResult(_FrozenModel):
    """What an attempt came to."""

    ending: ReadOutcome
    orders: int = 0
    changed: int = 0
    total: int | None = None
    passes: int = 0
    pages: int = 0
    outside: int = 0
    undated: int = 0
    missed: int = 0
    halves: list[SliceJob] = []


class FailSliceInput(PlatformInput):
    """Puts a slice into the failed set."""

    reader: str
    """The workflow that gives it up: where another one has begun to read it since, it is not given up."""

    window: TimeWindow
    purpose: ReadPurpose
    fault: FaultRecord
    attempts: int


class SliceResult(_FrozenModel):
    """How a slice's workflow ended."""

    done: bool
    orders: int = 0
    halves: int = 0
    fault: FaultRecord | None = None


class SliceStatus(_FrozenModel):
    """Where a slice stands."""

    purpose: ReadPurpose = ReadPurpose.FIRST
    attempt: int = 0
    pause_seconds: float | None = None
    fault: FaultRecord | None = None


class OrderCycleStatus(_FrozenModel):
    """Where a cycle stands."""

    running: list[TimeWindow] = []
    finished: int = 0
    failed: int = 0


class Alarm(PlatformInput):
    """Something that a person should know."""

    project_id: str
    notify: SealedText
    type: str
    message: str


class ClockResult(_FrozenModel):
    """What a look at a platform's clock told."""

    clock: ClockSkew
    alarm: Alarm | None = None


class PresenceResult(_FrozenModel):
    """Platforms, by whether somebody answered for them."""

    served: list[str] = []
    unserved: list[str] = []


class WatchInput(_FrozenModel):
    """How a watch looks for who serves each platform."""

    patience_seconds: float = 20.0
    """How long it waits for an answer, twice, before it takes a platform for unserved."""


class AlarmsResult(_FrozenModel):
    """What is to be told."""

    alarms: list[Alarm] = []


class PlatformsResult(_FrozenModel):
    """All platforms."""

    platforms: list[str] = []


class ReportProgress(_FrozenModel):
    """How far a comparison has been read."""

    number: int
    """Parts that lie in the store."""
    read_to: AwareDatetime


class ReportInput(PlatformInput):
    """Asks for a comparison of a day."""

    day: date
    window: TimeWindow
    """The part of the day that is compared: what is fetched and complete."""
    zone_minutes: int = 0
    """How far the platform's zone is before UTC, in which the day and its hours are told."""
    complete_to: AwareDatetime | None = None
    so_far: ReportProgress | None = None
    """What the runs before this one came to, where their history had grown long."""


class ReportPartInput(_FrozenModel):
    """Asks for the next part of a comparison to be read."""

    order: ReportInput
    folder: str
    """Where the parts lie in the store until they are compared."""
    after: ReportProgress


class ReportResult(_FrozenModel):
    """What a comparison of a day found. The workbook has the ids."""

    platform: str
    day: date
    made_at: AwareDatetime
    complete_to: AwareDatetime | None
    window: TimeWindow
    """The part of the day that was compared: nothing outside of it is called missing."""
    zone_minutes: int = 0
    told: int
    """Orders that the platform tells for that part."""
    stored: int
    """Orders that we have for it."""
    missing: int
    """Told, and not here at all or only older."""
    only_here: int | None
    """Here, and not told any more; None where the platform is asked by creation, of which only it knows the day."""
    key: str


class BackfillInput(PlatformInput):
    """Asks for the complete slices of a time to be read again."""

    backfill_id: str
    project_id: str
    window: TimeWindow
    asked_by: str
    asked_at: AwareDatetime
    progress: BackfillProgress | None = None
    """What the runs before this one came to, where their history had grown long."""


class BackfillBatchInput(PlatformInput):
    """Notes how far a backfill is, and asks for the slices that are next."""

    backfill_id: str
    window: TimeWindow
    progress: BackfillProgress = BackfillProgress()
    unread: tuple[FailedSlice, ...] = ()
    """Slices of the last batch whose workflow could not say itself in the ledger that it has failed."""


class BackfillBatchResult(BaseModel):
    """The slices of a backfill that are read next; none where it is over."""

    model_config = ConfigDict(frozen=True)

    jobs: list[SliceJob] = []


class EndBackfillInput(PlatformInput):
    """Closes the record of a backfill."""

    backfill_id: str
    progress: BackfillProgress = BackfillProgress()
    fault: FaultRecord | None = None


class BackfillStatus(BaseModel):
    """How a backfill stands, as its workflow says."""

    model_config = ConfigDict(frozen=True)

    state: BackfillState = BackfillState.RUNNING
    progress: BackfillProgress = BackfillProgress()
    fault: FaultRecord | None = None

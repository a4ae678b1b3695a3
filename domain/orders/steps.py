"""What the steps of the room are given and give back."""

from __future__ import annotations

from datetime import date
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.faults import FaultRecord
from domain.orders.config import Effective
from domain.orders.marks import Track
from domain.orders.places import Place
from domain.orders.retrying import Ladder
from domain.orders.windows import Window
from domain.sealed import Sealed


class Purpose(StrEnum):
    """Why a slice is read."""

    FIRST = "first"
    """To complete it."""
    AGAIN = "again"
    """Because somebody asked; a slice that has failed is completed by it, a complete one stays so."""
    SWEEP = "sweep"
    """Later, to find what the first reading missed."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Named(_Model):
    """Which platform."""

    platform: str


class CycleOrder(Named):
    """What a run of a platform's schedule is to do."""

    heeds_pause: bool = False
    """Whether it belongs to the platform's schedule, and claims nothing while that is paused."""
    continued: bool = False
    """Whether it goes on from a run before it, whose history had grown long."""


class Clock(Named):
    """How far a platform's clock is before the database's."""

    skew_seconds: float


class Failure(Named):
    """Tells why a platform's clock could not be read, or its credentials are refused."""

    asked_at: AwareDatetime
    """When that was begun to be asked: what has come right since then is right."""

    fault: FaultRecord


class ClaimOrder(Named):
    """Asks for the slices that are next."""

    skew_seconds: float | None
    """How far the platform's clock is before ours; None where it cannot be read, and nothing new can be claimed."""
    heeds_pause: bool = False
    scheduled_at: AwareDatetime | None = None
    """When this run was due: before `claimed_to`, it re-reads the slices of that time."""
    running: list[Window] = []
    """Slices that the cycle has going."""


class Job(_Model):
    """One slice to be read."""

    window: Window
    track: Track = Track.LIVE
    purpose: Purpose = Purpose.FIRST
    suffix: str = ""


class Claimed(_Model):
    """What to read next."""

    project_id: str
    jobs: list[Job]
    threads: int
    is_paused: bool = False
    rereads: bool = False
    """Whether this run's time is over already: its slices are read again, and no mark moves."""


class SoFar(_Model):
    """Where a slice stands that goes on in another run."""

    attempt: int
    ladder: Ladder
    place: Place | None


class SliceOrder(Named):
    """One slice's workflow."""

    project_id: str
    job: Job
    so_far: SoFar | None = None
    """What the runs before this one came to, where their history had grown long."""


class ReadOrder(Named):
    """One attempt at a slice."""

    window: Window
    purpose: Purpose
    settings: Effective
    place: Place | None = None
    """Where the attempt before had to stop."""
    holder: str
    """Names the attempt: who comes later has another one, and what this one still writes changes nothing."""


class Ending(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    SPLIT = "split"
    OVER = "over"
    """Somebody else has finished the slice, split it or skipped it."""


class Read(_Model):
    """What an attempt came to."""

    ending: Ending
    orders: int = 0
    changed: int = 0
    total: int | None = None
    passes: int = 0
    pages: int = 0
    outside: int = 0
    undated: int = 0
    missed: int = 0
    halves: list[Job] = []


class FailOrder(Named):
    """Puts a slice into the failed set."""

    reader: str
    """The workflow that gives it up: where another one has begun to read it since, it is not given up."""

    window: Window
    purpose: Purpose
    fault: FaultRecord
    attempts: int


class Sliced(_Model):
    """How a slice's workflow ended."""

    done: bool
    orders: int = 0
    halves: int = 0
    fault: FaultRecord | None = None


class SliceStatus(_Model):
    """Where a slice stands."""

    purpose: Purpose = Purpose.FIRST
    attempt: int = 0
    pause_seconds: float | None = None
    fault: FaultRecord | None = None


class CycleStatus(_Model):
    """Where a cycle stands."""

    running: list[Window] = []
    finished: int = 0
    failed: int = 0


class Alarm(Named):
    """Something that a person should know."""

    project_id: str
    notify: Sealed
    type: str
    message: str


class ClockReading(_Model):
    """What a look at a platform's clock told."""

    clock: Clock
    alarm: Alarm | None = None


class Presence(_Model):
    """Platforms, by whether somebody answered for them."""

    served: list[str] = []
    unserved: list[str] = []


class WatchOrder(_Model):
    """How a watch looks for who serves each platform."""

    patience_seconds: float = 20.0
    """How long it waits for an answer, twice, before it takes a platform for unserved."""


class Alarms(_Model):
    """What is to be told."""

    alarms: list[Alarm] = []


class Watched(_Model):
    """All platforms."""

    platforms: list[str] = []


class ReportPart(_Model):
    """How far a comparison has been read."""

    number: int
    """Parts that lie in the store."""
    read_to: AwareDatetime


class ReportOrder(Named):
    """Asks for a comparison of a day."""

    day: date
    window: Window
    """The part of the day that is compared: what is fetched and complete."""
    zone_minutes: int = 0
    """How far the platform's zone is before UTC, in which the day and its hours are told."""
    complete_to: AwareDatetime | None = None
    so_far: ReportPart | None = None
    """What the runs before this one came to, where their history had grown long."""


class ReportStep(_Model):
    """Asks for the next part of a comparison to be read."""

    order: ReportOrder
    folder: str
    """Where the parts lie in the store until they are compared."""
    after: ReportPart


class Report(_Model):
    """What a comparison of a day found. The workbook has the ids."""

    platform: str
    day: date
    made_at: AwareDatetime
    complete_to: AwareDatetime | None
    window: Window
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

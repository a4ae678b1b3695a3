"""Backfills: the complete slices of a time read again, with a record of who asked, how far it is and how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.faults import FaultRecord
from domain.orders.steps import Job, Named
from domain.orders.windows import Window

FAILURES_STOP: Final = 3
"""Slices in a row that fail before a backfill reads no more: the platform would refuse the others too."""
BATCH: Final = 20
"""Slices of a backfill that are read at a time."""
SCHEDULE: Final = "Temporal's schedule"
"""Who asked for a backfill that was begun in the Temporal Web UI, which passes no name on."""
ENDED_BY_HAND: Final = FaultRecord(
    code="backfill_ended",
    message="The workflow of the backfill was ended in Temporal before all its slices were read.",
    hint="Ask for the time again.",
)
SLICE_ENDED_BY_HAND: Final = FaultRecord(
    code="slice_ended", message="The workflow of the slice was ended in Temporal before it was read.", hint="Redo it."
)
SLICE_LEFT: Final = FaultRecord(
    code="slice_left",
    message="The slice was split or skipped before it was read again.",
    hint="Ask for the time again.",
)


class BackfillState(StrEnum):
    """How a backfill stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class FailedSlice(BaseModel):
    """A slice that could not be read again, and why."""

    model_config = ConfigDict(frozen=True)

    window: Window
    fault: FaultRecord


class Progress(BaseModel):
    """How far a backfill is."""

    model_config = ConfigDict(frozen=True)

    read: int = 0
    failed: int = 0
    failed_in_row: int = 0
    read_to: AwareDatetime | None = None
    """Every slice of the backfill that begins before this has been tried."""
    first_failed: FailedSlice | None = None

    def add(self, window: Window, fault: FaultRecord | None) -> Progress:
        """Return the progress after the end of the next slice in order of time."""
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
    def is_hopeless(self) -> bool:
        """Whether so many slices in a row have failed that the others are not tried."""
        return self.failed_in_row >= FAILURES_STOP

    @property
    def fault(self) -> FaultRecord | None:
        """Why the backfill has failed: the cause of the first slice that did; None where every slice was read."""
        if self.first_failed is None:
            return None
        cause, window = self.first_failed.fault, self.first_failed.window
        some = "1 slice" if self.failed == 1 else f"{self.failed} slices"
        stopped = f" After {FAILURES_STOP} failures in a row the rest was not tried." if self.is_hopeless else ""
        return FaultRecord(
            code=cause.code,
            message=f"{some} could not be read again, the first {window}: {cause.message}{stopped}",
            hint=cause.hint or "Mend the cause, then ask for the time again.",
            retryable=cause.retryable,
        )


class BackfillOrder(Named):
    """Asks for the complete slices of a time to be read again."""

    backfill_id: str
    project_id: str
    window: Window
    asked_by: str
    asked_at: AwareDatetime
    progress: Progress | None = None
    """What the runs before this one came to, where their history had grown long."""


class BackfillStep(Named):
    """Notes how far a backfill is, and asks for the slices that are next."""

    backfill_id: str
    window: Window
    progress: Progress = Progress()
    unread: tuple[FailedSlice, ...] = ()
    """Slices of the last batch whose workflow could not say itself in the ledger that it has failed."""


class BackfillBatch(BaseModel):
    """The slices of a backfill that are read next; none where it is over."""

    model_config = ConfigDict(frozen=True)

    jobs: list[Job] = []


class BackfillEnd(Named):
    """Closes the record of a backfill."""

    backfill_id: str
    progress: Progress = Progress()
    fault: FaultRecord | None = None


class BackfillStatus(BaseModel):
    """How a backfill stands, as its workflow says."""

    model_config = ConfigDict(frozen=True)

    state: BackfillState = BackfillState.RUNNING
    progress: Progress = Progress()
    fault: FaultRecord | None = None

"""Backfills: their progress, and the fault that one ends with."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict

from domain.faults import FaultRecord
from domain.orders.windows import TimeWindow

FAILURES_STOP: Final = 3
"""Consecutive failed slices after which a backfill stops: the platform would refuse the others too."""
BATCH_SLICES: Final = 20
"""Slices of a backfill that are read at the same time."""
ASKED_BY_SCHEDULE: Final = "Temporal's schedule"
"""`asked_by` of a backfill that was started in the Temporal Web UI, which passes no name on."""
BACKFILL_TERMINATED: Final = FaultRecord(
    code="backfill_ended",
    message="The workflow of the backfill was ended in Temporal before all its slices were read.",
    hint="Ask for the time again.",
)
SLICE_TERMINATED: Final = FaultRecord(
    code="slice_ended", message="The workflow of the slice was ended in Temporal before it was read.", hint="Redo it."
)
SLICE_REPLACED: Final = FaultRecord(
    code="slice_left",
    message="The slice was split or skipped before it was read again.",
    hint="Ask for the time again.",
)


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

    def add(self, window: TimeWindow, fault: FaultRecord | None) -> BackfillProgress:
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
    def is_hopeless(self) -> bool:
        """Whether enough consecutive slices have failed that the others are not tried."""
        return self.failed_in_row >= FAILURES_STOP

    @property
    def fault(self) -> FaultRecord | None:
        """The fault of the backfill, taken from its first failed slice; None where every slice was read."""
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

"""Inputs and results of the workflows and activities of addresses."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from domain.addresses.messages import Topic
from domain.addresses.operations import Module
from domain.addresses.ordering import CycleStep


class IntakeMessageCounts(BaseModel):
    """Counts of received messages; each message is in exactly one of them."""

    model_config = ConfigDict(frozen=True)

    new: int = 0
    repeated: int = 0
    """Delivered before, or the same event under another number."""
    unreadable: int = 0
    """Put into quarantine."""

    def add(self, other: IntakeMessageCounts) -> IntakeMessageCounts:
        return IntakeMessageCounts(
            new=self.new + other.new,
            repeated=self.repeated + other.repeated,
            unreadable=self.unreadable + other.unreadable,
        )


class IntakeTopicAndCarriedCounts(BaseModel):
    """The topic to pull, and the counts of the runs that this one continues."""

    model_config = ConfigDict(frozen=True)

    topic: Topic
    taken: IntakeMessageCounts = IntakeMessageCounts()
    slice_seconds: float = 60.0


class PullTopicInput(BaseModel):
    """Pull a topic for a number of seconds."""

    model_config = ConfigDict(frozen=True)

    topic: Topic
    seconds: float


class PulledMessageCountsOrOff(BaseModel):
    model_config = ConfigDict(frozen=True)

    taken: IntakeMessageCounts = IntakeMessageCounts()
    is_off: bool = False
    """Whether this installation does not pull."""


class CyclePhase(StrEnum):
    """The phases of a cycle, in their order."""

    LOAD = "load"
    SWAP = "swap"
    WRITE = "createUpdate"
    WAIT = "waiting_swap"
    DELETE = "delete"
    ARCHIVE = "archive"
    IDLE = "idle"


class _ImmutableModelBase(BaseModel):
    model_config = ConfigDict(frozen=True)


class CycleMessageTotals(_ImmutableModelBase):
    """Counts of messages over all cycles of a run."""

    cycles: int = 0
    loaded: int = 0
    done: int = 0
    failed: int = 0
    superseded: int = 0

    def subtract(self, before: CycleMessageTotals) -> CycleMessageTotals:
        """Return what was added since."""
        return CycleMessageTotals(
            cycles=self.cycles - before.cycles,
            loaded=self.loaded - before.loaded,
            done=self.done - before.done,
            failed=self.failed - before.failed,
            superseded=self.superseded - before.superseded,
        )

    def add(
        self, *, cycles: int = 0, loaded: int = 0, done: int = 0, failed: int = 0, superseded: int = 0
    ) -> CycleMessageTotals:
        return CycleMessageTotals(
            cycles=self.cycles + cycles,
            loaded=self.loaded + loaded,
            done=self.done + done,
            failed=self.failed + failed,
            superseded=self.superseded + superseded,
        )


class EndedCycleToArchive(_ImmutableModelBase):
    """A cycle that is over but for its archive: its id, its counts, and how long it took."""

    cycle_id: str
    totals: CycleMessageTotals
    seconds: float


class CarriedCycleTotals(_ImmutableModelBase):
    so_far: CycleMessageTotals = CycleMessageTotals()
    """Totals of the runs that this one continues."""


class AddressCycleStatus(_ImmutableModelBase):
    phase: CyclePhase = CyclePhase.LOAD
    cycle_id: str = ""
    totals: CycleMessageTotals = CycleMessageTotals()
    paused: bool = False


class IdOfCycleToBegin(_ImmutableModelBase):
    cycle_id: str


class CyclePlanResult(_ImmutableModelBase):
    """The messages of a cycle: ids in the log, grouped into steps of one activity each."""

    cycle_id: str = ""
    """The cycle that owns these messages: an interrupted cycle keeps its id."""
    swaps: list[CycleStep] = []
    writes: list[CycleStep] = []
    deletes: list[CycleStep] = []
    waiting: int = 0
    """Swaps that failed in an earlier cycle; they are tried after the createUpdates."""
    loaded: int = 0
    superseded: int = 0
    step_concurrency: int = 1
    """Steps that run in parallel, where order does not matter."""
    resumed: bool = False
    paused: bool = False
    config_version: int = 0
    """The version of the configuration that all of its steps use."""


class ApplyStepInput(_ImmutableModelBase):
    cycle_id: str
    phase: CyclePhase
    step: CycleStep
    config_version: int = 0

    @property
    def is_phase_without_later_retry(self) -> bool:
        """Whether a failure in this phase is a failure in this cycle: a fresh swap is tried twice."""
        return self.phase is not CyclePhase.SWAP


class AppliedMessageCounts(_ImmutableModelBase):
    done: int = 0
    failed: int = 0
    superseded: int = 0


class ListWaitingSwapsInput(_ImmutableModelBase):
    """Ask for the swaps of a cycle that are unfinished after the createUpdates."""

    cycle_id: str
    config_version: int = 0


class StepsOfWaitingSwaps(_ImmutableModelBase):
    """Those swaps, in steps to run one after the other."""

    steps: list[CycleStep] = []


PURGE_MAX: Final = 500


class LogicalDeleteCheckCounts(BaseModel):
    model_config = ConfigDict(frozen=True)

    checked_at: AwareDatetime
    listed: int = 0
    removable: int = 0
    purged: int = 0
    unanswered: list[Module] = []
    """Modules that failed to answer at least once; what only they may still need stays listed."""


class PurgeAddressesInput(BaseModel):
    model_config = ConfigDict(frozen=True)

    address_ids: list[int] = Field(max_length=PURGE_MAX)
    who: str
    reason: str | None = None


class AddressIdsByPurgeOutcome(BaseModel):
    """The outcome for each address; one that is in no list was no longer listed."""

    model_config = ConfigDict(frozen=True)

    purged: list[int] = []
    in_use: list[int] = []
    superseded: list[int] = []
    failed: list[int] = []


class ComparisonIdInput(BaseModel):
    model_config = ConfigDict(frozen=True)

    comparison_id: str


class ModuleComparisonCounts(BaseModel):
    """The counts of a comparison; the addresses are in the workbook."""

    model_config = ConfigDict(frozen=True)

    comparison_id: str
    made_at: AwareDatetime
    compared: int
    """UPRNs that at least one module has."""
    uprns_by_module: dict[Module, int]
    different: int
    presence_differs: int
    address_id_differs: int
    record_differs: int
    in_workbook: int
    """Differences in the workbook."""
    with_unfinished_message: int
    """Of these: those that an unfinished message may explain."""
    key: str

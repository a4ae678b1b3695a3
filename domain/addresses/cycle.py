"""What the steps of a cycle are given and give back."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from domain.addresses.queues import Step


class Phase(StrEnum):
    """What a cycle does, in this order."""

    LOAD = "load"
    SWAP = "swap"
    WRITE = "createUpdate"
    WAIT = "waiting swap"
    DELETE = "delete"
    ARCHIVE = "archive"
    IDLE = "idle"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Totals(_Model):
    """What became of messages."""

    cycles: int = 0
    loaded: int = 0
    done: int = 0
    failed: int = 0
    superseded: int = 0

    def plus(self, *, cycles: int = 0, loaded: int = 0, done: int = 0, failed: int = 0, superseded: int = 0) -> Totals:
        """These, and more."""
        return Totals(
            cycles=self.cycles + cycles,
            loaded=self.loaded + loaded,
            done=self.done + done,
            failed=self.failed + failed,
            superseded=self.superseded + superseded,
        )


class CycleOrder(_Model):
    """What a run of the schedule is to do."""

    so_far: Totals = Totals()
    """Of the runs that it goes on from, whose history had grown long."""


class CycleStatus(_Model):
    """Where a run stands."""

    phase: Phase = Phase.LOAD
    cycle_id: str = ""
    totals: Totals = Totals()
    paused: bool = False


class LoadOrder(_Model):
    """Asks for the messages of a cycle."""

    cycle_id: str


class Plan(_Model):
    """What a cycle applies: ids in the log, in steps of one activity each."""

    cycle_id: str = ""
    """Whose messages these are: a cycle that was broken off keeps its id."""
    swaps: list[Step] = []
    writes: list[Step] = []
    deletes: list[Step] = []
    waiting: int = 0
    """Swaps that failed in an earlier cycle: they are tried after the createUpdates."""
    loaded: int = 0
    superseded: int = 0
    runs: int = 1
    """How many steps run at a time, where order does not count."""
    resumed: bool = False
    paused: bool = False
    config_version: int = 0
    """The version of the configuration that all of its steps go by."""


class ApplyOrder(_Model):
    """One step."""

    cycle_id: str
    phase: Phase
    step: Step
    config_version: int = 0

    @property
    def is_last(self) -> bool:
        """Whether what fails now has failed this cycle: a swap is tried once more after the createUpdates."""
        return self.phase is not Phase.SWAP


class Applied(_Model):
    """What a step came to."""

    done: int = 0
    failed: int = 0
    superseded: int = 0


class QueueOrder(_Model):
    """Asks for the swaps of a cycle that are not done after the createUpdates."""

    cycle_id: str
    config_version: int = 0


class Queued(_Model):
    """Those swaps, in steps that follow each other."""

    steps: list[Step] = []

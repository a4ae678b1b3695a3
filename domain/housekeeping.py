"""Housekeeping: each system removes on its own queue what is past its retention."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue

WORKFLOW: Final = "HousekeepingWorkflow"


class HousekeepingInput(BaseModel):
    """The activities that a run of housekeeping calls."""

    model_config = ConfigDict(frozen=True)

    activities: tuple[str, ...]
    """Their registered names; they run one after the other."""


class HousekeepingResult(BaseModel):
    """What a run of housekeeping removed."""

    removed: dict[str, JsonValue]
    """The result of each activity, by its name."""


def build_schedule_id(system: str) -> str:
    """Return the id of a system's housekeeping schedule; the ids of its runs begin with it."""
    return f"{system}-housekeeping"

"""Housekeeping: each system removes on its own queue what nobody may ask for any more."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, JsonValue

WORKFLOW: Final = "HousekeepingWorkflow"


class HousekeepingOrder(BaseModel):
    """What is to be removed."""

    model_config = ConfigDict(frozen=True)

    activities: tuple[str, ...]
    """By their names, run one after the other."""


class HousekeepingReport(BaseModel):
    """What was removed."""

    removed: dict[str, JsonValue]
    """The figures of each activity, by its name."""


def schedule_id(system: str) -> str:
    """The id of a system's schedule; its runs are named after it."""
    return f"{system}-housekeeping"

"""States of slices, as operators ask for them."""

from __future__ import annotations

from enum import StrEnum


class SliceState(StrEnum):
    """What became of a slice."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SPLIT = "split"


class RereadState(StrEnum):
    """How it stands with the last time that somebody asked for a complete slice again."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

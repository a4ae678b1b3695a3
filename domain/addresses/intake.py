"""Intake: what its steps are given and give back."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from domain.addresses.messages import Topic


class Taken(BaseModel):
    """What became of messages: each is in exactly one of these counts."""

    model_config = ConfigDict(frozen=True)

    new: int = 0
    repeated: int = 0
    """Delivered before, or the same event under another number."""
    unreadable: int = 0
    """In quarantine."""

    def plus(self, other: Taken) -> Taken:
        """Both together."""
        return Taken(
            new=self.new + other.new,
            repeated=self.repeated + other.repeated,
            unreadable=self.unreadable + other.unreadable,
        )


class IntakeOrder(BaseModel):
    """Which topic is pulled, and what earlier runs of this workflow took in."""

    model_config = ConfigDict(frozen=True)

    topic: Topic
    taken: Taken = Taken()
    slice_seconds: float = 60.0


class PullOrder(BaseModel):
    """Pull a topic for a while."""

    model_config = ConfigDict(frozen=True)

    topic: Topic
    seconds: float


class PullReport(BaseModel):
    """What came of it."""

    model_config = ConfigDict(frozen=True)

    taken: Taken = Taken()
    is_off: bool = False
    """Whether this installation pulls nothing."""

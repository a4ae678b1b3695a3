"""Intake: what its steps are given and give back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
from pydantic import BaseModel, ConfigDict

from domain.addresses.messages import Topic

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)


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


class Message(msgspec.Struct, frozen=True, rename="camel"):
    """A message as it was published."""

    message_id: str = ""
    data: bytes = b""
    publish_time: str = ""

    @property
    def published_at(self) -> datetime | None:
        """Return the time by Pub/Sub's clock; None where it cannot be read or is no time of our days.

        It is information only: PostgreSQL rounds the last microsecond of the year 9999 to one that no driver can
        read, and a list that shows such a row would fail for ever.
        """
        try:
            moment = datetime.fromisoformat(self.publish_time)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return moment if EARLIEST <= moment <= LATEST else None

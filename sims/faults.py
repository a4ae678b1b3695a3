"""The faults that a stand-in can be asked for, drawn from a seed, so that every run fails in the same places."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b

from pydantic import BaseModel, Field, field_validator


class Kind(StrEnum):
    """What may go wrong with one answer."""

    SERVER_ERROR = "5xx"
    TOO_MANY = "429"
    NOT_FOUND = "404"
    RESET = "reset"  # the connection ends in the middle of the body
    SLOW = "slow"  # right, but after `slow_ms`
    SHORT = "short"  # half of the rows are missing
    TOTAL = "total"  # a total that differs from page to page and from attempt to attempt
    BROKEN_JSON = "broken_json"  # the text ends in the middle
    NOT_JSON = "not_json"
    NO_DATA = "no_data"
    NOT_OBJECTS = "not_objects"  # rows are arrays


class Faults(BaseModel):
    """Which answers go wrong, and how: `?faults=5xx,reset&rate=0.1&fail_first=2`."""

    faults: tuple[Kind, ...] = ()
    rate: float = Field(default=1.0, ge=0, le=1, description="share of the answers that go wrong")
    only_page: int | None = Field(default=None, ge=0, description="the one page that goes wrong; by default any")
    fail_first: int | None = Field(
        default=None, ge=0, description="attempts on a page that may go wrong; later ones work"
    )
    retry_after: str = Field(default="1", description="what a 429 says of when to come back")
    slow_ms: int = Field(default=2_000, ge=0)
    seed: int = 0

    @field_validator("faults", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(filter(None, value.split(","))) if isinstance(value, str) else value

    def pick(self, page: int, attempt: int) -> Kind | None:
        """The fault of this attempt (from 1) on this page, if any."""
        if self.only_page not in (None, page):
            return None
        if not self.faults or (self.fail_first is not None and attempt > self.fail_first):
            return None
        draw = blake2b(f"{self.seed}/{page}/{attempt}".encode(), digest_size=16).digest()
        if int.from_bytes(draw[:8]) >= self.rate * 2**64:
            return None
        return self.faults[int.from_bytes(draw[8:]) % len(self.faults)]

"""What housekeeping reports."""

from __future__ import annotations

from pydantic import BaseModel


class Kept(BaseModel):
    """How many files expired, and whether there may be more."""

    expired: int
    more: bool


class Swept(BaseModel):
    """What nobody would have come back to."""

    uploads: int
    objects: int

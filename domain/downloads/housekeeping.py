"""What housekeeping reports."""

from __future__ import annotations

from pydantic import BaseModel


class Swept(BaseModel):
    """What nobody would have come back to."""

    uploads: int
    objects: int

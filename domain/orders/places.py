"""Places: where the reading of a slice stopped."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Place(BaseModel):
    """Where a reading stopped: what it had been told by then."""

    model_config = ConfigDict(frozen=True)

    key: str
    older: str | None = None
    """What this one replaces; it may go when this one is taken up."""
    kept_at: AwareDatetime

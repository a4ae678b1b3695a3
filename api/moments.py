"""Moments as callers write them: in full, with a zone, and where the database can follow."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

from api import sentences

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _sensible(moment: datetime) -> datetime:
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("it is outside 1970–2200; choose a time in that range.")
    return moment


def _written_out(moment: object) -> object:
    # pydantic would take a bare number for seconds since 1970.
    if not isinstance(moment, str) or _DATE.match(moment) is None:
        raise ValueError(f"{sentences.shown(moment)} is not a time such as 2026-01-31T08:00:00Z; send one like it.")
    return moment


Moment = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_sensible)]
"""In a query, where everything is text."""
BodyMoment = Annotated[AwareDatetime, AfterValidator(_sensible)]
"""In JSON, whose reader takes no number for a moment."""


def require_order(start: datetime | None, end: datetime | None, names: tuple[str, str] = ("start", "end")) -> None:
    """Refuse a time whose end is not after its start; raises ValueError. A bound that is None is open."""
    if start is not None and end is not None and start >= end:
        first, last = names
        raise ValueError(f"{first} {start.isoformat()} is not before {last} {end.isoformat()}; send a later {last}.")

"""Timestamps in requests: with date, time and zone, in a range that the database can store."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator

from api.http import validation

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _check_range(timestamp: datetime) -> datetime:
    if not EARLIEST_TIMESTAMP <= timestamp <= LATEST_TIMESTAMP:
        raise ValueError("it is outside 1970–2200; choose a time in that range.")
    return timestamp


def _check_text(timestamp: object) -> object:
    # pydantic would take a bare number for seconds since 1970.
    if not isinstance(timestamp, str) or _DATE.match(timestamp) is None:
        raise ValueError(
            f"{validation.format_value(timestamp)} is not a time such as 2026-01-31T08:00:00Z; send one like it."
        )
    return timestamp


QueryTimestamp = Annotated[AwareDatetime, BeforeValidator(_check_text), AfterValidator(_check_range)]
"""A timestamp in a query, where every value is text."""
BodyTimestamp = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A timestamp in a JSON body; strict parsing refuses numbers by itself."""


def require_start_before_end(
    start: datetime | None, end: datetime | None, names: tuple[str, str] = ("start", "end")
) -> None:
    """Raise ValueError if the start of a range is not before its end; a bound that is None is open."""
    if start is not None and end is not None and start >= end:
        first, last = names
        raise ValueError(f"{first} {start.isoformat()} is not before {last} {end.isoformat()}; send a later {last}.")

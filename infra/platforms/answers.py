"""What the head of an answer says, whoever gave it: busy or not, for how long, and what time it is."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from infra.http import Answer

BUSY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


def date_of(answer: Answer) -> datetime | None:
    """When it was given, by the clock of who gave it."""
    return _date(answer.headers.get("Date", ""))


def retry_after_seconds(answer: Answer) -> float | None:
    """How long it asks us to wait."""
    value = answer.headers.get("Retry-After", "")
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    if (moment := _date(value)) is not None:
        return max(0.0, (moment - (date_of(answer) or datetime.now(UTC))).total_seconds())
    return None


def _date(value: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None

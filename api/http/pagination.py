"""Pagination: lists are sent newest first, and each page holds the cursor of the next one."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import Field

from api.http.models import Request, Response
from domain.faults import Invalid

Item = TypeVar("Item")
Row = TypeVar("Row")

_CURSOR = re.compile(r"(\S{1,40}) ([0-9A-Za-z_-]{1,2500})", re.ASCII)


class PageQuery(Request):
    """The query that selects a page of a list."""

    limit: int = Field(default=50, ge=1, le=200, description="how many entries at most")
    cursor: str | None = Field(default=None, max_length=400, description="`next_cursor` of the page before")

    @property
    def after(self) -> Position | None:
        """The position at which the page before ended.

        Raises:
            Invalid: The cursor was not issued by this API.
        """
        return None if self.cursor is None else decode_cursor(self.cursor)


class PageResponse(Response, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="send this as `cursor` for the next page; null on the last")


Position = tuple[datetime, str]


def build_page(
    rows: Sequence[Row], limit: int, build_item: Callable[[Row], Item], get_position: Callable[[Row], Position]
) -> PageResponse[Item]:
    """Return a page; one row more than `limit` means that another page follows."""
    page_rows = rows[:limit]
    more = len(rows) > limit
    return PageResponse[Item](
        items=[build_item(row) for row in page_rows],
        next_cursor=encode_cursor(get_position(page_rows[-1])) if more else None,
    )


def parse_numeric_id_or_zero(name: str) -> int:
    """Return the numeric id in a position; 0 for a forged one, so that the list ends."""
    return min(int(name), 2**63 - 1) if re.fullmatch(r"\d{1,19}", name, re.ASCII) else 0


def encode_cursor(position: Position) -> str:
    """Return the cursor of a position."""
    time, name = position
    return base64.urlsafe_b64encode(f"{time.isoformat()} {name}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> Position:
    """Return the position of a cursor; raise Invalid if this API did not issue it."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        match = _CURSOR.fullmatch(text)
        time = datetime.fromisoformat(match[1]) if match else None
        # An offset may move a time past the last date that the database can store.
        time = time.astimezone(UTC) if time and time.tzinfo else None
    except (binascii.Error, ValueError, OverflowError):
        match = time = None
    if match is None or time is None:
        raise Invalid(
            "cursor_invalid", "This cursor was not issued by this API.", "Send next_cursor of the page before as it is."
        )
    return time, match[2]

"""Paging: lists come newest first, a page at a time, each page naming where the next one starts."""

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

_CURSOR = re.compile(r"(\S{1,40}) ([0-9A-Za-z_-]{1,200})", re.ASCII)


class PageQuery(Request):
    """Which page of a list."""

    limit: int = Field(default=50, ge=1, le=200, description="how many entries at most")
    cursor: str | None = Field(default=None, max_length=400, description="`next_cursor` of the page before")

    @property
    def after(self) -> Position | None:
        """Where the page before ended.

        Raises:
            Invalid: The cursor is none of ours.
        """
        return None if self.cursor is None else decode_cursor(self.cursor)


class PageResponse(Response, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="send this as `cursor` for the next page; null on the last")


Position = tuple[datetime, str]


def build_page(
    rows: Sequence[Row], limit: int, show: Callable[[Row], Item], where: Callable[[Row], Position]
) -> PageResponse[Item]:
    """A page from one row more than it holds: the surplus row says that another page follows."""
    shown = rows[:limit]
    more = len(rows) > limit
    return PageResponse[Item](
        items=[show(row) for row in shown], next_cursor=encode_cursor(where(shown[-1])) if more else None
    )


def parse_numeric_id(name: str) -> int:
    """The id that a position names, where ids are numbers; 0 for what somebody made up, which ends the list."""
    return min(int(name), 2**63 - 1) if re.fullmatch(r"\d{1,19}", name, re.ASCII) else 0


def encode_cursor(position: Position) -> str:
    """A position as opaque text."""
    moment, name = position
    return base64.urlsafe_b64encode(f"{moment.isoformat()} {name}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> Position:
    """The position that a cursor of ours stands for."""
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        match = _CURSOR.fullmatch(text)
        moment = datetime.fromisoformat(match[1]) if match else None
        # An offset may carry a time past the end of the calendar, where the database cannot follow.
        moment = moment.astimezone(UTC) if moment and moment.tzinfo else None
    except (binascii.Error, ValueError, OverflowError):
        match = moment = None
    if match is None or moment is None:
        raise Invalid(
            "cursor_invalid", "This cursor is not one of ours.", "Send next_cursor of the page before as it is."
        )
    return moment, match[2]

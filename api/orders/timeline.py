"""The time line: a platform's slices in so many parts of a time, whatever their number, and the marks above them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Self

from pydantic import AwareDatetime, Field, model_validator

from api.http import timestamps
from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.http.timestamps import QueryTimestamp
from api.orders.room import PlatformPath, routes
from domain.faults import Invalid, Missing
from stores.orders import ledger, platforms, slices
from stores.tables.orders import OrderPlatform

UNBEGUN_SHOWN: Final = timedelta(hours=1)
"""How much time is shown of a platform that has claimed nothing yet."""


class TimelineWanted(Request):
    """Which time, and how fine."""

    start: QueryTimestamp | None = Field(default=None, description="the platform's beginning if it is left out")
    end: QueryTimestamp | None = Field(default=None, description="the platform's now if it is left out")
    parts: int = Field(default=240, ge=1, le=1_000, description="into how many parts the time is cut")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        timestamps.require_start_before_end(self.start, self.end)
        return self


class Part(Response):
    """What became of the slices that touch a part of the time."""

    number: int = Field(description="counted from 0; a part that no slice touches is left out")
    slices: int
    open: int
    failed: int
    done: int
    skipped: int
    swept: int = Field(description="of those done, how many were read again by the delayed sweep")
    missed: int = Field(description="orders that only the sweep found, in slices that begin here")
    orders: int = Field(description="orders of the slices that begin here")


class Timeline(Response):
    """A time of a platform, with its marks."""

    platform: str
    start: AwareDatetime
    end: AwareDatetime
    part_seconds: float
    platform_now: AwareDatetime = Field(description="the platform's clock, as near as it is known")
    settled_to: AwareDatetime = Field(description="what is younger is not read yet, by `settle_lag`")
    starts_at: AwareDatetime | None
    history_to: AwareDatetime | None = Field(description="up to here history is claimed")
    live_from: AwareDatetime | None = Field(description="from here on the present is claimed")
    claimed_to: AwareDatetime | None
    complete_to: AwareDatetime | None
    parts: list[Part]


@routes.get(
    "/v1/platforms/{platform}/timeline", access=Access.ADMIN, problems={"not_found": Missing, "window_invalid": Invalid}
)
async def read_timeline(call: Call, path: PlatformPath, query: TimelineWanted) -> Timeline:
    """Draw a platform's slices over time: what is claimed, complete, failed, skipped and swept in each part."""
    async with call.services.database.session() as session:
        here = await platforms.load(session, path.platform)
        now = await ledger.database_now(session) + timedelta(seconds=here.row.skew_seconds or 0.0)
    start, end = _span(here.row, query, now)
    parts = await slices.list_timeline(call.services.database, path.platform, start, end, query.parts)
    return Timeline(
        platform=path.platform,
        start=start,
        end=end,
        part_seconds=(end - start).total_seconds() / query.parts,
        platform_now=now,
        settled_to=now - timedelta(seconds=here.settings.settle_lag),
        **{name: getattr(here.row, name) for name in ("starts_at", "history_to", "live_from")},
        **{name: getattr(here.row, name) for name in ("claimed_to", "complete_to")},
        parts=[Part.model_validate(part, from_attributes=True) for part in parts],
    )


def _span(row: OrderPlatform, query: TimelineWanted, now: datetime) -> tuple[datetime, datetime]:
    end = query.end or max(now, row.claimed_to or now)
    start = query.start or row.starts_at or end - UNBEGUN_SHOWN
    if start >= end:
        missing = "end" if query.end is None else "start"
        raise Invalid(
            "window_invalid",
            f"Without `{missing}`, the time would go from {start.isoformat()} to {end.isoformat()}, which holds none.",
            f"Send `{missing}` too.",
            field="start" if query.end is None else "end",
        )
    return start, end

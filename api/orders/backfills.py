"""Backfills: the complete slices of a time read again, and the record of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from secrets import token_hex
from typing import Final, Self

from pydantic import AwareDatetime, Field, model_validator

from api.http import pagination, timestamps
from api.http.models import Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.http.timestamps import BodyTimestamp
from api.orders.room import PlatformPath, routes
from domain.faults import Conflict, FaultRecord, Invalid, Missing
from domain.orders import names, windows
from domain.orders.activity_models import BackfillInput
from domain.orders.backfills import BackfillState
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders import backfills, claims, platforms
from stores.tables.orders import OrderBackfill
from workflows.orders import handle

BACKFILL_MAX: Final = timedelta(hours=12)


class Times(Request):
    """A time to read again, and who wants it."""

    start: BodyTimestamp
    end: BodyTimestamp
    who: str = Field(
        default="",
        max_length=200,
        description="your name, for the record; left out, it says whether the console or the admin key asked",
    )

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        timestamps.require_start_before_end(self.start, self.end)
        if self.end - self.start > BACKFILL_MAX:
            raise ValueError(
                f"start {self.start.isoformat()} and end {self.end.isoformat()} are {self.end - self.start} apart; "
                f"send at most {BACKFILL_MAX.total_seconds() / 3600:.0f} hours at a time."
            )
        return self

    @property
    def window(self) -> TimeWindow:
        """The whole seconds that hold the time."""
        start, last = windows.floor_to_second(self.start), windows.floor_to_second(self.end)
        return TimeWindow(start=start, end=last if last == self.end else last + windows.SECOND)


class BackfillPath(PlatformPath):
    """Names one backfill of a platform."""

    backfill_id: str = Field(pattern=r"^[0-9a-f]{1,64}$")


class BackfillsWanted(PageQuery):
    """Which backfills to list."""

    state: BackfillState | None = None


class ShownBackfill(Response):
    """The record of a backfill."""

    platform: str
    backfill_id: str
    asked_by: str = Field(description="the name that was sent, or where the request came from")
    asked_at: AwareDatetime
    window: TimeWindow = Field(description="the time that is read again")
    state: BackfillState = Field(description="`failed` if any of its slices could not be read again")
    slices: int = Field(description="complete slices of the time when it began")
    read: int = Field(description="of them, how many were read again")
    failed: int = Field(description="of them, how many could not be; each of them says why in its `reread`")
    read_to: AwareDatetime | None = Field(description="up to here every slice was tried; null before the first")
    finished_at: AwareDatetime | None
    fault: FaultRecord | None = Field(description="the cause of the first slice that failed")
    workflow_id: str = Field(description="where Temporal shows it")


@routes.post(
    "/v1/platforms/{platform}/backfill",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "window_invalid": Invalid, "backfill_running": Conflict},
)
async def backfill(call: Call, path: PlatformPath, body: Times) -> ShownBackfill:
    """Read the complete slices of a time again; no mark moves.

    The answer is the record of the backfill, which says how far it is and how it ended. A time that is being read again
    already has one record: it is answered once more.
    """
    window = body.window
    async with call.services.database.session() as session:
        platform = (await platforms.load(session, path.platform)).row
        if not await claims.count_rereadable(session, path.platform, window.start, window.end):
            raise Invalid(
                "window_invalid",
                f"No slice of {window.start.isoformat()} to {window.end.isoformat()} is complete, so that none can be "
                "read again.",
                "Choose a time before `complete_to`; slices that are open are read by themselves, failed ones by redo.",
            )
    order = BackfillInput(
        platform=path.platform,
        project_id=platform.project_id,
        backfill_id=token_hex(8),
        window=window,
        asked_by=body.who.strip() or ("the console" if call.caller.until else "the admin key"),
        asked_at=datetime.now(UTC),
    )
    workflow_id = names.backfill_id(path.platform, window)
    if not await handle.start_backfill(call.services.engine, order):
        return await _running(call, workflow_id)
    # The workflow does the same first of all: who has this answer finds the record, even if no worker runs.
    await backfills.enter(call.services.database, order, workflow_id)
    return await read_backfill(call, BackfillPath(platform=path.platform, backfill_id=order.backfill_id))


@routes.get(
    "/v1/platforms/{platform}/backfills",
    access=Access.ADMIN,
    problems={"not_found": Missing, "cursor_invalid": Invalid},
)
async def browse_backfills(call: Call, path: PlatformPath, query: BackfillsWanted) -> PageResponse[ShownBackfill]:
    """List the backfills of a platform, newest first."""
    async with call.services.database.session() as session:
        await platforms.load(session, path.platform)
        rows = await backfills.list_page(session, path.platform, query.state, query.after, query.limit)
    return pagination.build_page(rows, query.limit, shown_backfill, lambda row: (row.asked_at, row.backfill_id))


@routes.get("/v1/platforms/{platform}/backfills/{backfill_id}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_backfill(call: Call, path: BackfillPath) -> ShownBackfill:
    """See how far a backfill is, or how it ended."""
    async with call.services.database.session() as session:
        row = await backfills.find(session, path.platform, path.backfill_id)
    if row is None:
        raise Missing(
            "not_found",
            f"Platform {path.platform} has no backfill {path.backfill_id}.",
            f"GET /v1/platforms/{path.platform}/backfills lists those that there are.",
        )
    return shown_backfill(row)


async def newest_backfill(session: Session, platform: str) -> ShownBackfill | None:
    """The backfill that was asked for last, if there is one."""
    row = await backfills.find_newest(session, platform)
    return None if row is None else shown_backfill(row)


def shown_backfill(row: OrderBackfill) -> ShownBackfill:
    """Show a record as callers see it."""
    other = {"window", "fault"}
    same = {name: getattr(row, name) for name in ShownBackfill.model_fields if name not in other}
    fault = None if row.fault is None else FaultRecord.model_validate(row.fault)
    return ShownBackfill(window=TimeWindow(start=row.start_at, end=row.end_at), fault=fault, **same)


async def _running(call: Call, workflow_id: str) -> ShownBackfill:
    """The record of the backfill of the same time that is under way."""
    async with call.services.database.session() as session:
        row = await backfills.find_running(session, workflow_id)
    if row is None:
        raise Conflict(
            "backfill_running",
            "This time is being read again since a moment, and has no record yet.",
            "GET …/backfills lists it in a second.",
        )
    return shown_backfill(row)

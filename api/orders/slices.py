"""Slices: the ledger, and what to do about those that failed: read again, split, or skip with a reason."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from http import HTTPStatus

from pydantic import Field
from sqlalchemy import ColumnElement
from sqlmodel import and_, col, select, tuple_
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.orders import configuration, ledger
from api import paging
from api.models import Request
from api.moments import Moment
from api.orders import answers
from api.orders.answers import ShownSlice, SliceState
from api.orders.room import PlatformPath, routes
from api.paging import Page, PageQuery
from api.routes import Access, Call
from domain.faults import Conflict, Invalid, Missing
from domain.orders import places
from domain.orders.marks import Track
from domain.orders.steps import Job, Purpose, SliceOrder
from domain.orders.windows import Window
from infra.database import Session
from infra.tables.orders import OrderPlatform, OrderSlice
from workflows.orders import OrderSlice as OrderSliceWorkflow
from workflows.orders import schedules
from workflows.orders.cycle import attributes

_STAMP = "%Y%m%dT%H%M%SZ"
_SLICE = r"^\d{8}T\d{6}Z:\d{8}T\d{6}Z$"
_PROBLEMS = {"not_found": Missing, "slice_not_failed": Conflict}


class SlicePath(PlatformPath):
    """Names one slice, as the ledger and workflow ids do."""

    slice: str = Field(pattern=_SLICE, examples=["20261120T100000Z:20261120T101000Z"])

    @property
    def window(self) -> Window:
        """What it names.

        Raises:
            Missing: No slice can have this name.
        """
        try:
            start, end = (datetime.strptime(each, _STAMP).replace(tzinfo=UTC) for each in self.slice.split(":"))
            return Window(start=start, end=end)
        except ValueError:
            raise _no_slice(self) from None


class Wanted(PageQuery):
    """Which slices to list."""

    state: SliceState | None = None
    start: Moment | None = Field(default=None, description="only slices that end after this")
    end: Moment | None = Field(default=None, description="only slices that begin before this")


class Skip(Request):
    """Why a slice is skipped."""

    reason: str = Field(min_length=3, max_length=500, description="kept in the ledger")


@routes.get("/v1/platforms/{platform}/slices", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse_slices(call: Call, path: PlatformPath, query: Wanted) -> Page[ShownSlice]:
    """List a platform's slices, the latest first; `state=failed` is the failed set."""
    statement = (
        select(OrderSlice)
        .where(OrderSlice.platform == path.platform)
        .order_by(col(OrderSlice.start_at).desc(), col(OrderSlice.slice_id).desc())
        .limit(query.limit + 1)
    )
    if query.state is not None:
        statement = statement.where(_is_in(query.state))
    if query.start is not None:
        statement = statement.where(col(OrderSlice.end_at) > query.start)
    if query.end is not None:
        statement = statement.where(col(OrderSlice.start_at) < query.end)
    if query.after:
        start_at, slice_id = query.after
        number = int(slice_id) if re.fullmatch(r"\d{1,18}", slice_id) else 0
        statement = statement.where(tuple_(OrderSlice.start_at, OrderSlice.slice_id) < (start_at, number))
    async with call.services.database.session() as session:
        await configuration.standing(session, path.platform)
        rows = (await session.exec(statement)).all()
    return paging.page(rows, query.limit, answers.shown_slice, lambda row: (row.start_at, str(row.slice_id)))


@routes.get("/v1/platforms/{platform}/slices/{slice}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_slice(call: Call, path: SlicePath) -> ShownSlice:
    """Show a slice as the ledger has it."""
    async with call.services.database.session() as session:
        return answers.shown_slice(await _found(session, path))


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/redo",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "slice_not_ended": Conflict},
)
async def redo(call: Call, path: SlicePath) -> ShownSlice:
    """Read a slice again: one that failed is completed by it, one that is complete stays so."""
    async with call.services.database.session() as session:
        row = await _found(session, path)
        platform = await session.get_one(OrderPlatform, path.platform)
        shown = answers.shown_slice(row)
    if shown.state not in (SliceState.FAILED, SliceState.DONE):
        raise Conflict(
            "slice_not_ended",
            f"This slice is {shown.state}; what failed or is done can be read again.",
            "An open slice is read by itself; the halves of a split one are slices of their own.",
        )
    suffix = f"redo-{int(time.time())}"
    job = Job(window=shown.window, track=Track.LIVE, purpose=Purpose.AGAIN, suffix=suffix)
    try:
        await call.services.engine.start_workflow(
            OrderSliceWorkflow.run,
            SliceOrder(platform=path.platform, project_id=platform.project_id, job=job),
            id=places.slice_id(path.platform, job.window, suffix),
            task_queue=places.QUEUE,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=attributes(platform.project_id, "running"),
            static_summary=f"redo {job.window}",
        )
    except WorkflowAlreadyStartedError:
        return shown
    return shown


@routes.post("/v1/platforms/{platform}/slices/{slice}/split", access=Access.ADMIN, problems=_PROBLEMS)
async def split(call: Call, path: SlicePath) -> ShownSlice:
    """Replace a failed slice by its halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await session.get(OrderPlatform, path.platform, with_for_update=True)
        row = await _failed(session, path)
        halves = path.window.halves()
        if halves is None:
            raise Conflict("slice_not_failed", "A slice of one second cannot be split.", "Redo or skip it.")
        await ledger.split(session, row, halves)
        shown = answers.shown_slice(row)
    if platform is not None:
        schedule = await schedules.find_platform(call.services.engine, path.platform, platform.project_id)
        await schedule.trigger()
    return shown


@routes.post("/v1/platforms/{platform}/slices/{slice}/skip", access=Access.ADMIN, problems=_PROBLEMS)
async def skip(call: Call, path: SlicePath, body: Skip) -> ShownSlice:
    """Give a failed slice up: its orders may be missing, and `complete_to` may pass it."""
    async with call.services.database.session() as session:
        platform = await session.get(OrderPlatform, path.platform, with_for_update=True)
        row = await _failed(session, path)
        row.skipped_at, row.reason = await ledger.database_now(session), body.reason
        session.add(row)
        if platform is not None:
            await ledger.complete(session, platform)
        return answers.shown_slice(row)


async def _found(session: Session, path: SlicePath) -> OrderSlice:
    row = await ledger.find(session, path.platform, path.window, lock=True)
    if row is None:
        raise _no_slice(path)
    return row


async def _failed(session: Session, path: SlicePath) -> OrderSlice:
    row = await _found(session, path)
    state = answers.shown_slice(row).state
    if state is not SliceState.FAILED:
        raise Conflict(
            "slice_not_failed",
            f"This slice is {state}; only one in the failed set can be split or skipped.",
            "GET …/slices?state=failed lists them.",
        )
    return row


def _no_slice(path: SlicePath) -> Missing:
    return Missing(
        "not_found",
        f"Platform {path.platform} has no slice {path.slice}.",
        f"GET /v1/platforms/{path.platform}/slices lists those that there are.",
    )


def _is_in(state: SliceState) -> ColumnElement[bool]:
    match state:
        case SliceState.SPLIT:
            return col(OrderSlice.split_at).is_not(None)
        case SliceState.SKIPPED:
            return col(OrderSlice.skipped_at).is_not(None)
        case SliceState.DONE:
            return col(OrderSlice.done_at).is_not(None)
        case SliceState.FAILED:
            return and_(ledger.unfinished(), col(OrderSlice.failed_at).is_not(None))
        case SliceState.OPEN:
            return and_(ledger.unfinished(), col(OrderSlice.failed_at).is_(None))

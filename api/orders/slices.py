"""Slices: the ledger of what is claimed, and what became of it."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from sqlalchemy import ColumnElement
from sqlmodel import and_, col, select, tuple_

from api import moments, paging
from api.moments import Moment
from api.orders import answers
from api.orders.answers import RereadState, ShownSlice, SliceState
from api.orders.room import PlatformPath, routes
from api.paging import Page, PageQuery
from api.routes import Access, Call
from domain.faults import Invalid, Missing
from domain.orders import windows
from domain.orders.windows import Window
from infra.database import Session
from stores.orders import configuration, ledger
from stores.tables.orders import OrderSlice


def _named(name: object) -> object:
    if isinstance(name, str):
        windows.named(name)
    return name


SliceName = Annotated[
    str,
    Field(pattern=r"^\d{8}T\d{6}Z:\d{8}T\d{6}Z$", examples=["20261120T100000Z:20261120T101000Z"]),
    BeforeValidator(_named),
]


class SlicePath(PlatformPath):
    """Names one slice, as the ledger and workflow ids do."""

    slice: SliceName

    @property
    def window(self) -> Window:
        """What it names."""
        return windows.named(self.slice)


class Wanted(PageQuery):
    """Which slices to list."""

    state: SliceState | None = None
    reread: RereadState | None = Field(default=None, description="only complete slices that were asked for again")
    stale: Literal["true"] | None = Field(default=None, description="only those that were reported to take too long")
    start: Moment | None = Field(default=None, description="only slices that end after this")
    end: Moment | None = Field(default=None, description="only slices that begin before this")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        moments.require_order(self.start, self.end)
        return self


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
    if query.reread is not None:
        statement = statement.where(_is_reread(query.reread))
    if query.stale is not None:
        statement = statement.where(col(OrderSlice.stale_told_at).is_not(None))
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
        return answers.shown_slice(await find(session, path))


async def find(session: Session, path: SlicePath) -> OrderSlice:
    """A slice's row, locked.

    Raises:
        Missing: There is none of this name.
    """
    row = await ledger.find(session, path.platform, path.window, lock=True)
    if row is None:
        raise unknown(path.platform, path.slice)
    return row


def unknown(platform: str, name: str) -> Missing:
    """What is told of an id that names no slice of the platform."""
    return Missing(
        "not_found",
        f"Platform {platform} has no slice {name}.",
        f"GET /v1/platforms/{platform}/slices lists those that there are; one that was split has halves instead.",
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


def _is_reread(state: RereadState) -> ColumnElement[bool]:
    since, ended, fault = col(OrderSlice.reread_since), col(OrderSlice.reread_at), col(OrderSlice.reread_fault)
    match state:
        case RereadState.RUNNING:
            return since.is_not(None)
        case RereadState.SUCCEEDED:
            return and_(since.is_(None), ended.is_not(None), fault.is_(None))
        case RereadState.FAILED:
            return and_(since.is_(None), ended.is_not(None), fault.is_not(None))

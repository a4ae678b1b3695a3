"""Asking passively: one download, or a list of them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field
from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, or_, select, tuple_

from api import paging, sentences
from api.downloads import answers
from api.downloads.answers import DownloadAnswer, ListedDownload
from api.downloads.room import TaskPath, board, routes
from api.paging import Page, PageQuery
from api.routes import Access, Call
from domain.downloads.request import FileType
from domain.downloads.status import State
from domain.faults import Invalid
from infra.tables.downloads import Download

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


class Wanted(PageQuery):
    """Which downloads to list."""

    state: State | None = None
    type: FileType | None = None
    operator_id: str | None = Field(default=None, max_length=64)
    file_name: str | None = Field(default=None, min_length=1, max_length=200, description="a part of it, in any case")
    created_after: Moment | None = Field(default=None, description="at or after this time")
    created_before: Moment | None = Field(default=None, description="before this time")


@routes.get("/v1/downloads", access=Access.PROJECT, problems={"cursor_invalid": Invalid})
async def browse(call: Call, query: Wanted) -> Page[ListedDownload]:
    """List the project's downloads, newest first.

    A download appears as soon as a worker takes it up. How far a running one is, is told when it is asked for alone.
    """
    statement = (
        select(Download)
        .where(Download.project_id == call.project_id, *_conditions(query))
        .order_by(col(Download.created_at).desc(), col(Download.task_id).desc())
        .limit(query.limit + 1)
    )
    if query.after:
        statement = statement.where(tuple_(Download.created_at, Download.task_id) < query.after)
    async with call.services.database.session() as session:
        rows = (await session.exec(statement)).all()
    return paging.page(rows, query.limit, answers.listed, lambda row: (row.created_at, row.task_id))


@routes.get("/v1/downloads/{task_id}", access=Access.PROJECT)
async def read(call: Call, path: TaskPath) -> DownloadAnswer:
    """Ask how a download goes.

    While it runs, the figures come from the running workflow and its fetchers, and are at most half a second old.
    """
    return await board(call).read(call.project_id, path.task_id)


def _conditions(query: Wanted) -> list[ColumnElement[bool]]:
    exact = {Download.type: query.type, Download.operator_id: query.operator_id}
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if query.state is not None:
        conditions.append(_is_in(query.state))
    if query.file_name is not None:
        conditions.append(col(Download.file_name).icontains(query.file_name, autoescape=True))
    if query.created_after is not None:
        conditions.append(col(Download.created_at) >= query.created_after)
    if query.created_before is not None:
        conditions.append(col(Download.created_at) < query.created_before)
    return conditions


def _is_in(state: State) -> ColumnElement[bool]:
    """A file whose time is over has expired, whether or not it was swept away already."""
    recorded = col(Download.state) == state
    overdue = col(Download.expires_at) <= func.now()
    match state:
        case State.SUCCEEDED:
            return and_(recorded, ~overdue)
        case State.EXPIRED:
            return or_(recorded, and_(col(Download.state) == State.SUCCEEDED, overdue))
        case _:
            return recorded

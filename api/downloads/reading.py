"""Asking passively: one download, or a list of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, or_, select, tuple_

from api import auth, paging
from api.downloads import answers
from api.downloads.answers import DownloadAnswer, ListedDownload
from api.downloads.pending import pending
from api.downloads.room import TaskPath, board, routes
from api.moments import Moment
from api.paging import Page, PageQuery, Position
from api.routes import Access, Call
from domain.downloads.request import FileType
from domain.downloads.status import State
from domain.faults import Invalid, Missing
from stores.tables.downloads import Download


class Wanted(PageQuery):
    """Which downloads to list."""

    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    task_id: str | None = Field(default=None, max_length=64)
    state: State | None = None
    status: State | None = Field(default=None, description="the same as `state`; send one of them")
    type: FileType | None = None
    operator_id: str | None = Field(default=None, max_length=64)
    file_name: str | None = Field(default=None, min_length=1, max_length=200, description="a part of it, in any case")
    created_after: Moment | None = Field(default=None, description="at or after this time")
    created_before: Moment | None = Field(default=None, description="before this time")

    @property
    def in_state(self) -> State | None:
        """The state under either name."""
        return self.state or self.status

    @model_validator(mode="after")
    def _one_state(self) -> Self:
        if self.state and self.status and self.state is not self.status:
            raise ValueError(f"it asks for state {self.state} and status {self.status}; send one of them.")
        return self


@routes.get("/v1/downloads", access=Access.PROJECTS, problems={"cursor_invalid": Invalid, "not_found": Missing})
async def browse(call: Call, query: Wanted) -> Page[ListedDownload]:
    """List downloads, newest first.

    A download appears as soon as a worker takes it up, before that under `state=pending` only. How far a running one
    is, is told when it is asked for alone. The admin key sees those of all projects where it names none.
    """
    if query.project_id is not None and call.scope not in (None, query.project_id):
        raise auth.not_here()
    project_id = query.project_id or call.scope
    found = await _recorded(call, query, project_id)
    if query.in_state is State.PENDING:
        waiting = await pending(call.services, project_id)
        found = sorted([*found, *(one for one in waiting if _is_wanted(one, query))], key=_position, reverse=True)
    return paging.page(found, query.limit, lambda one: one, _position)


async def _recorded(call: Call, query: Wanted, project_id: str | None) -> list[ListedDownload]:
    """What the catalogue holds: a page, and one more if another page follows."""
    statement = (
        select(Download)
        .where(*_conditions(query, project_id))
        .order_by(col(Download.created_at).desc(), col(Download.task_id).desc())
        .limit(query.limit + 1)
    )
    if query.after:
        statement = statement.where(tuple_(Download.created_at, Download.task_id) < query.after)
    async with call.services.database.session() as session:
        return [answers.listed(row) for row in await session.exec(statement)]


def _position(one: ListedDownload) -> Position:
    return one.created_at, one.task_id


def _is_wanted(one: ListedDownload, query: Wanted) -> bool:
    """The filters once more, for what is not in the catalogue."""
    return (
        query.task_id in (None, one.task_id)
        and query.type in (None, one.type)
        and query.operator_id in (None, one.operator_id)
        and (query.file_name or "").lower() in one.file_name.lower()
        and (query.created_after is None or one.created_at >= query.created_after)
        and (query.created_before is None or one.created_at < query.created_before)
        and (query.after is None or _position(one) < query.after)
    )


@routes.get("/v1/downloads/{task_id}", access=Access.PROJECT)
async def read(call: Call, path: TaskPath) -> DownloadAnswer:
    """Ask how a download goes.

    While it runs, the figures come from the running workflow and its fetchers, and are at most half a second old.
    """
    return await board(call).read(call.project_id, path.task_id)


def _conditions(query: Wanted, project_id: str | None) -> list[ColumnElement[bool]]:
    exact = {
        Download.project_id: project_id,
        Download.task_id: query.task_id,
        Download.type: query.type,
        Download.operator_id: query.operator_id,
    }
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if query.in_state is not None:
        conditions.append(_is_in(query.in_state))
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

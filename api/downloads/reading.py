"""Asking passively: one download, or a list of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from api.downloads import answers
from api.downloads.answers import DownloadAnswer, ListedDownload
from api.downloads.pending import pending
from api.downloads.room import TaskPath, board, routes
from api.http import auth, pagination, timestamps
from api.http.pagination import PageQuery, PageResponse, Position
from api.http.routes import Access, Call
from api.http.timestamps import QueryTimestamp
from domain.downloads.models import FileType, State
from domain.faults import Invalid, Missing
from stores.downloads import searching
from stores.downloads.searching import DownloadFilter


class Wanted(PageQuery):
    """Which downloads to list."""

    project_id: str | None = Field(default=None, max_length=64, description="your own, if you send it at all")
    task_id: str | None = Field(default=None, max_length=64)
    state: State | None = None
    status: State | None = Field(default=None, description="the same as `state`; send one of them")
    type: FileType | None = None
    operator_id: str | None = Field(default=None, max_length=64)
    file_name: str | None = Field(default=None, min_length=1, max_length=200, description="a part of it, in any case")
    created_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    created_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @property
    def in_state(self) -> State | None:
        """The state under either name."""
        return self.state or self.status

    @model_validator(mode="after")
    def _one_state(self) -> Self:
        if self.state and self.status and self.state is not self.status:
            raise ValueError(f"it asks for state {self.state} and status {self.status}; send one of them.")
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(
            self.created_after, self.created_before, ("created_after", "created_before")
        )
        return self


@routes.get("/v1/downloads", access=Access.PROJECTS, problems={"cursor_invalid": Invalid, "not_found": Missing})
async def browse(call: Call, query: Wanted) -> PageResponse[ListedDownload]:
    """List downloads, newest first.

    A download appears as soon as a worker takes it up, before that under `state=pending` only. How far a running one
    is, is told when it is asked for alone. The admin key sees those of all projects where it names none.
    """
    if query.project_id is not None and call.scope not in (None, query.project_id):
        raise auth.build_not_found()
    project_id = query.project_id or call.scope
    found = await _recorded(call, query, project_id)
    if query.in_state is State.PENDING:
        waiting = await pending(call.services, project_id)
        found = sorted([*found, *(one for one in waiting if _is_wanted(one, query))], key=_position, reverse=True)
    return pagination.build_page(found, query.limit, lambda one: one, _position)


async def _recorded(call: Call, query: Wanted, project_id: str | None) -> list[ListedDownload]:
    """What the catalogue holds: a page, and one more if another page follows."""
    wanted = DownloadFilter(
        project_id=project_id,
        task_id=query.task_id,
        state=query.in_state,
        type=query.type,
        operator_id=query.operator_id,
        file_name=query.file_name,
        created_after=query.created_after,
        created_before=query.created_before,
    )
    rows = await searching.list_page(call.services.database, wanted, query.after, query.limit)
    return [answers.listed(row) for row in rows]


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

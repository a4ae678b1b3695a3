"""Reads of the catalogue: one download, a page of a list, and which of them run or have a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, or_, select

from domain.downloads.models import FileType, State
from infra.database import Database
from stores.shared import keyset
from stores.shared.projects import is_live
from stores.tables.downloads import Download
from stores.tables.projects import Project


@dataclass(frozen=True, slots=True)
class DownloadFilter:
    """Which downloads a list shows; None where it does not matter."""

    project_id: str | None = None
    task_id: str | None = None
    state: State | None = None
    type: FileType | None = None
    operator_id: str | None = None
    file_name: str | None = None
    """A part of the name, in any case."""

    created_after: datetime | None = None
    """The moment itself included."""

    created_before: datetime | None = None


async def find(database: Database, project_id: str, task_id: str) -> Download | None:
    """A project's download; there is no row before it was first processed."""
    query = select(Download).where(Download.task_id == task_id, Download.project_id == project_id)
    async with database.session() as session:
        return (await session.exec(query)).one_or_none()


async def find_of_live_project(database: Database, project_id: str, task_id: str) -> Download | None:
    """A project's download, unless the project was revoked."""
    query = (
        select(Download)
        .join(Project, col(Project.project_id) == Download.project_id)
        .where(Download.task_id == task_id, Download.project_id == project_id)
        .where(is_live(Project.revoked_at))
    )
    async with database.session() as session:
        return (await session.exec(query)).one_or_none()


async def list_page(
    database: Database, wanted: DownloadFilter, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Download]:
    """Downloads, newest first, and one more if another page follows."""
    statement = select(Download).where(*_conditions(wanted))
    statement = keyset.select_page(statement, (Download.created_at, Download.task_id), after, limit)
    async with database.session() as session:
        return (await session.exec(statement)).all()


async def list_unfinished(database: Database, project_id: str, *, ended_within: timedelta, limit: int) -> Sequence[str]:
    """The ids of a project's downloads that run or ended a moment ago, newest first."""
    running = col(Download.state).in_([State.PENDING, State.RUNNING])
    just_ended = col(Download.finished_at) > func.now() - ended_within
    query = select(Download.task_id).where(Download.project_id == project_id, or_(running, just_ended))
    async with database.session() as session:
        return (await session.exec(query.order_by(col(Download.created_at).desc()).limit(limit))).all()


async def list_recorded(database: Database, task_ids: Collection[str]) -> set[str]:
    """Those of these ids that have a row."""
    statement = select(Download.task_id).where(col(Download.task_id).in_(task_ids))
    async with database.session() as session:
        return set((await session.exec(statement)).all())


def _conditions(wanted: DownloadFilter) -> list[ColumnElement[bool]]:
    exact = {
        Download.project_id: wanted.project_id,
        Download.task_id: wanted.task_id,
        Download.type: wanted.type,
        Download.operator_id: wanted.operator_id,
    }
    conditions = [col(column) == value for column, value in exact.items() if value is not None]
    if wanted.state is not None:
        conditions.append(_is_in(wanted.state))
    if wanted.file_name is not None:
        conditions.append(col(Download.file_name).icontains(wanted.file_name, autoescape=True))
    if wanted.created_after is not None:
        conditions.append(col(Download.created_at) >= wanted.created_after)
    if wanted.created_before is not None:
        conditions.append(col(Download.created_at) < wanted.created_before)
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

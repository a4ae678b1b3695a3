"""Openings in the database: which transfers each project may send."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import text
from sqlmodel import col, delete, exists, select

from domain.transfers.openings import SendPermission
from infra.database import Session
from stores.tables.transfers import SendPermissionRow

_LOCK: Final = text("LOCK TABLE transfer_openings IN SHARE ROW EXCLUSIVE MODE")


async def lock_openings_until_commit(session: Session) -> None:
    """Exclude other writers until the transaction ends, since two could open one biz and app for two projects."""
    await session.execute(_LOCK)


async def list_openings_of_project(session: Session, project_id: str) -> list[SendPermission]:
    """Return the openings of a project, in the order of the request that set them."""
    statement = select(SendPermissionRow).where(SendPermissionRow.project_id == project_id)
    rows = await session.exec(statement.order_by(col(SendPermissionRow.id)))
    return [_build_opening(row) for row in rows]


async def find_openings_or_none_if_unrestricted(session: Session, project_id: str) -> list[SendPermission] | None:
    """Return the openings of a project; None while no project has any."""
    own = await list_openings_of_project(session, project_id)
    return own if own or await has_any_opening(session) else None


async def list_openings_of_other_projects(
    session: Session, project_id: str, biz_ids: Collection[int]
) -> list[tuple[str, SendPermission]]:
    """Return the openings of other projects for these businesses, each with its project."""
    statement = select(SendPermissionRow).where(
        SendPermissionRow.project_id != project_id, col(SendPermissionRow.biz_id).in_(biz_ids)
    )
    rows = await session.exec(statement.order_by(col(SendPermissionRow.id)))
    return [(row.project_id, _build_opening(row)) for row in rows]


async def has_any_opening(session: Session) -> bool:
    """Return whether any project has an opening."""
    return bool((await session.exec(select(exists(select(SendPermissionRow.id))))).one())


async def replace_openings(session: Session, project_id: str, openings: Sequence[SendPermission]) -> None:
    """Replace the openings of a project."""
    await session.exec(delete(SendPermissionRow).where(col(SendPermissionRow.project_id) == project_id))
    session.add_all(_build_row(project_id, each) for each in openings)
    await session.flush()


def _build_opening(row: SendPermissionRow) -> SendPermission:
    return SendPermission(
        biz_id=row.biz_id,
        app_id=row.app_id,
        path_prefixes=tuple(row.path_prefixes),
        folder_prefixes=tuple(row.folder_prefixes),
        users=tuple(row.users),
        hosts=tuple(row.hosts),
    )


def _build_row(project_id: str, opening: SendPermission) -> SendPermissionRow:
    return SendPermissionRow(
        project_id=project_id,
        biz_id=opening.biz_id,
        app_id=opening.app_id,
        path_prefixes=list(opening.path_prefixes),
        folder_prefixes=list(opening.folder_prefixes),
        users=list(opening.users),
        hosts=list(opening.hosts),
    )

"""Permissions in the database: which transfers each project may send."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import text
from sqlmodel import col, delete, exists, select

from domain.transfers.permissions import TransferPermission
from infra.database import Session
from stores.tables.transfers import TransferPermissionRow

_LOCK: Final = text("LOCK TABLE transfer_openings IN SHARE ROW EXCLUSIVE MODE")


async def lock_permissions_until_commit(session: Session) -> None:
    """Exclude other writers until the transaction ends, since two could open one biz and app for two projects."""
    await session.execute(_LOCK)


async def list_permissions_of_project(session: Session, project_id: str) -> list[TransferPermission]:
    """Return the permissions of a project, in the order of the request that set them."""
    statement = select(TransferPermissionRow).where(TransferPermissionRow.project_id == project_id)
    rows = await session.exec(statement.order_by(col(TransferPermissionRow.id)))
    return [_build_permission(row) for row in rows]


async def find_permissions_or_none_if_unrestricted(
    session: Session, project_id: str
) -> list[TransferPermission] | None:
    """Return the permissions of a project; None while no project has any."""
    own = await list_permissions_of_project(session, project_id)
    return own if own or await has_any_permission(session) else None


async def list_permissions_of_other_projects(
    session: Session, project_id: str, biz_ids: Collection[int]
) -> list[tuple[str, TransferPermission]]:
    """Return the permissions of other projects for these businesses, each with its project."""
    statement = select(TransferPermissionRow).where(
        TransferPermissionRow.project_id != project_id, col(TransferPermissionRow.biz_id).in_(biz_ids)
    )
    rows = await session.exec(statement.order_by(col(TransferPermissionRow.id)))
    return [(row.project_id, _build_permission(row)) for row in rows]


async def has_any_permission(session: Session) -> bool:
    """Return whether any project has a permission."""
    return bool((await session.exec(select(exists(select(TransferPermissionRow.id))))).one())


async def replace_permissions(session: Session, project_id: str, permissions: Sequence[TransferPermission]) -> None:
    """Replace the permissions of a project."""
    await session.exec(delete(TransferPermissionRow).where(col(TransferPermissionRow.project_id) == project_id))
    session.add_all(_build_row(project_id, each) for each in permissions)
    await session.flush()


def _build_permission(row: TransferPermissionRow) -> TransferPermission:
    return TransferPermission(
        biz_id=row.biz_id,
        app_id=row.app_id,
        path_prefixes=tuple(row.path_prefixes),
        folder_prefixes=tuple(row.folder_prefixes),
        users=tuple(row.users),
        hosts=tuple(row.hosts),
    )


def _build_row(project_id: str, permission: TransferPermission) -> TransferPermissionRow:
    return TransferPermissionRow(
        project_id=project_id,
        biz_id=permission.biz_id,
        app_id=permission.app_id,
        path_prefixes=list(permission.path_prefixes),
        folder_prefixes=list(permission.folder_prefixes),
        users=list(permission.users),
        hosts=list(permission.hosts),
    )

"""What is opened for projects to send."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import text
from sqlmodel import col, delete, exists, select

from domain.transfers.openings import Opening
from infra.database import Session
from stores.tables.transfers import TransferOpening

_LOCK: Final = text("LOCK TABLE transfer_openings IN SHARE ROW EXCLUSIVE MODE")


async def lock(session: Session) -> None:
    """Let no other transaction open anything: two at once could open one pair of biz and app for two projects."""
    await session.execute(_LOCK)


async def list_of_project(session: Session, project_id: str) -> list[Opening]:
    """What is opened for a project, in the order in which it was sent."""
    statement = select(TransferOpening).where(TransferOpening.project_id == project_id)
    rows = await session.exec(statement.order_by(col(TransferOpening.id)))
    return [_opening(row) for row in rows]


async def list_of_others(session: Session, project_id: str, biz_ids: Collection[int]) -> list[tuple[str, Opening]]:
    """What is opened of these bizes for other projects, and for which."""
    statement = select(TransferOpening).where(
        TransferOpening.project_id != project_id, col(TransferOpening.biz_id).in_(biz_ids)
    )
    rows = await session.exec(statement.order_by(col(TransferOpening.id)))
    return [(row.project_id, _opening(row)) for row in rows]


async def is_any(session: Session) -> bool:
    """Whether anything is opened for any project."""
    return bool((await session.exec(select(exists(select(TransferOpening.id))))).one())


async def replace(session: Session, project_id: str, openings: Sequence[Opening]) -> None:
    """Open this for a project, in the place of what was opened before."""
    await session.exec(delete(TransferOpening).where(col(TransferOpening.project_id) == project_id))
    session.add_all(_row(project_id, each) for each in openings)
    await session.flush()


def _opening(row: TransferOpening) -> Opening:
    return Opening(
        biz_id=row.biz_id,
        app_id=row.app_id,
        path_prefixes=tuple(row.path_prefixes),
        folder_prefixes=tuple(row.folder_prefixes),
        users=tuple(row.users),
        hosts=tuple(row.hosts),
    )


def _row(project_id: str, opening: Opening) -> TransferOpening:
    return TransferOpening(
        project_id=project_id,
        biz_id=opening.biz_id,
        app_id=opening.app_id,
        path_prefixes=list(opening.path_prefixes),
        folder_prefixes=list(opening.folder_prefixes),
        users=list(opening.users),
        hosts=list(opening.hosts),
    )

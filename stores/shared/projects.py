"""Projects and their keys, with the database's clock, which all replicas share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlmodel import col, func, or_, select

from infra.database import Database, Session
from stores.shared import keyset
from stores.tables.projects import ApiKey, Project

LAST_USED_PRECISION = timedelta(minutes=1)  # so that a busy key costs a write a minute, not one a call

# Not through the ORM: these are asked for every call.
_KEY = """
    SELECT k.project_id, k.hash, coalesce(k.last_used_at <= now() - $2::interval, true) AS unseen,
        coalesce(least(k.revoked_at, p.revoked_at) > now(), true) AS live
    FROM api_keys k JOIN projects p ON p.id = k.project_id WHERE k.id = $1
"""
_USED = "UPDATE api_keys SET last_used_at = now() WHERE id = $1"
_EXISTS = "SELECT true FROM projects WHERE id = $1"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What a call is checked against."""

    project_id: str
    secret_hash: bytes
    is_live: bool
    """Whether neither the key nor its project is revoked by now."""

    is_use_due: bool
    """Whether its last use is to be noted."""


async def find_key_record(database: Database, key_id: str) -> KeyRecord | None:
    """A key of any project, revoked ones too."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_KEY, key_id, LAST_USED_PRECISION)
    return None if row is None else KeyRecord(row["project_id"], row["hash"], row["live"], row["unseen"])


async def note_use(database: Database, key_id: str) -> None:
    """Note that a key was used now."""
    async with database.connection() as connection:
        await connection.execute(_USED, key_id)


async def exists(database: Database, project_id: str) -> bool:
    """Whether there is such a project, revoked or not."""
    async with database.connection() as connection:
        return bool(await connection.fetchval(_EXISTS, project_id))


async def find(session: Session, project_id: str, *, lock: bool = False) -> Project | None:
    """One project; locked, no other call makes or revokes its keys meanwhile."""
    return await session.get(Project, project_id, with_for_update=lock)


async def find_name(database: Database, project_id: str | None) -> str | None:
    """The name of a project."""
    if project_id is None:
        return None
    async with database.session() as session:
        return (await session.exec(select(Project.name).where(Project.project_id == project_id))).one_or_none()


async def list_page(session: Session, after: tuple[datetime, str] | None, limit: int) -> Sequence[Project]:
    """Projects, newest first, and one more if another page follows."""
    statement = keyset.select_page(select(Project), (Project.created_at, Project.project_id), after, limit)
    return (await session.exec(statement)).all()


async def add(session: Session, project_id: str, name: str) -> Project:
    """Add a project, made now."""
    project = Project(project_id=project_id, name=name, created_at=await _read_clock(session))
    session.add(project)
    await session.flush()
    return project


async def revoke(session: Session, project_id: str) -> Project | None:
    """Revoke a project now, unless it is already."""
    project = await find(session, project_id, lock=True)
    if project is not None:
        project.revoked_at = project.revoked_at or await _read_clock(session)
    return project


async def find_key(session: Session, project_id: str, key_id: str) -> ApiKey | None:
    """A key of a project, locked."""
    statement = select(ApiKey).where(ApiKey.project_id == project_id, ApiKey.key_id == key_id)
    return (await session.exec(statement.with_for_update())).one_or_none()


async def list_keys(
    session: Session, project_id: str, after: tuple[datetime, str] | None, limit: int
) -> Sequence[ApiKey]:
    """A project's keys, newest first, revoked ones too, and one more if another page follows."""
    statement = select(ApiKey).where(ApiKey.project_id == project_id)
    statement = keyset.select_page(statement, (ApiKey.created_at, ApiKey.key_id), after, limit)
    return (await session.exec(statement)).all()


async def count_live_keys(session: Session, project_id: str) -> int:
    """How many of a project's keys are not revoked."""
    live = select(func.count()).select_from(ApiKey).where(ApiKey.project_id == project_id, is_live(ApiKey.revoked_at))
    return (await session.exec(live)).one()


async def add_key(session: Session, project_id: str, key_id: str, secret_hash: bytes, last4: str) -> ApiKey:
    """Add a key, made now."""
    key = ApiKey(
        key_id=key_id,
        project_id=project_id,
        secret_hash=secret_hash,
        last4=last4,
        created_at=await _read_clock(session),
    )
    session.add(key)
    return key


async def revoke_key(session: Session, key: ApiKey, *, after: timedelta = timedelta()) -> None:
    """Revoke a key now or a while later, unless it is revoked earlier."""
    ends_at = await _read_clock(session) + after
    key.revoked_at = min(key.revoked_at or ends_at, ends_at)


def is_live(revoked_at: datetime | None) -> ColumnElement[bool]:
    """Whether what this column ends still holds now."""
    return or_(col(revoked_at).is_(None), col(revoked_at) > func.now())


async def _read_clock(session: Session) -> datetime:
    """The time at which the transaction began: the same for all that it writes."""
    return (await session.exec(select(func.now()))).one()

"""Projects, their keys and their idempotency keys. Times are those of the database's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import col, func, or_, select

from domain.secrets import ApiKeyText, KeyRight, derive_pepper_id, digest_secret
from infra.database import Database, Session
from stores import keyset
from stores.tables.shared import ApiKey, IdempotencyKey, Project

LAST_USED_PRECISION = timedelta(minutes=1)  # a busy key costs a write a minute, not one a request

# Each is alone in its transaction and goes to the driver, most of them at every request; what changes projects and keys
# goes through the session of its caller: ADR 0019.
_KEY = """
    SELECT k.project_id, k.hash, k.key_right, k.systems, k.expires_at,
        coalesce(k.last_used_at <= now() - $2::interval, true) AS unseen, p.quotas::text,
        coalesce(least(k.revoked_at, p.revoked_at, k.expires_at) > now(), true) AS live
    FROM api_keys k JOIN projects p ON p.id = k.project_id WHERE k.id = $1
"""
_USED = "UPDATE api_keys SET last_used_at = now() WHERE id = $1"
_REHASHED = "UPDATE api_keys SET last_used_at = now(), hash = $2, pepper_id = $3 WHERE id = $1"
_KEYS_OF_OTHER_PEPPERS = """
    SELECT k.id FROM api_keys k JOIN projects p ON p.id = k.project_id
    WHERE k.pepper_id IS DISTINCT FROM $1 AND coalesce(least(k.revoked_at, p.revoked_at, k.expires_at) > now(), true)
    ORDER BY k.id
"""
_QUOTAS = "SELECT quotas::text FROM projects WHERE id = $1"
_PURGE_IDEMPOTENCY_KEYS = """
    DELETE FROM idempotency_keys WHERE (project_id, key) IN
        (SELECT project_id, key FROM idempotency_keys WHERE created_at < $1 ORDER BY created_at LIMIT $2)
"""


@dataclass(frozen=True, slots=True)
class KeyCredential:
    """What a request's key is checked against."""

    project_id: str
    secret_hash: bytes
    is_live: bool
    """Whether neither the key nor its project is revoked, and the key has not expired."""

    is_use_due: bool
    """Whether the time of its last use is to be written."""

    right: KeyRight
    systems: frozenset[str] | None
    """The systems that it may use; None for all."""

    expires_at: datetime | None
    """From when on it is refused; None for never."""

    quota_overrides: str
    """The quotas that were set for its project, as JSON."""


@dataclass(frozen=True, slots=True)
class KeyPermissions:
    """What a key may do, where, and until when."""

    right: KeyRight
    systems: frozenset[str] | None = None
    """The systems that it may use; None for all."""

    expires_at: datetime | None = None
    name: str | None = None
    """For people."""


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The fingerprint of the first request with an idempotency key, and the download that it created."""

    fingerprint: bytes
    task_id: str


async def find_key_credential(database: Database, key_id: str) -> KeyCredential | None:
    """Return a key of any project, also a revoked one."""
    rows = await database.look_up(_KEY, key_id, LAST_USED_PRECISION)
    if not rows:
        return None
    row = rows[0]
    systems = None if row["systems"] is None else frozenset(row["systems"])
    return KeyCredential(
        row["project_id"],
        row["hash"],
        row["live"],
        row["unseen"],
        KeyRight(row["key_right"]),
        systems,
        row["expires_at"],
        row["quotas"],
    )


async def record_time_of_key_use(database: Database, key_id: str) -> None:
    """Write the time of a key's last use."""
    async with database.connection() as connection:
        await connection.execute(_USED, key_id)


async def record_key_use_and_rehash(database: Database, key_id: str, secret_hash: bytes, pepper_id: str) -> None:
    """Write the time of a key's last use, and the hash of its secret under the current pepper."""
    async with database.connection() as connection:
        await connection.execute(_REHASHED, key_id, secret_hash, pepper_id)


async def list_keys_of_other_peppers(database: Database, pepper_id: str) -> list[str]:
    """Return the ids of valid keys whose hash is not known to be under this pepper."""
    async with database.connection() as connection:
        return [row["id"] for row in await connection.fetch(_KEYS_OF_OTHER_PEPPERS, pepper_id)]


async def get_overrides_json_if_project_exists(database: Database, project_id: str) -> str | None:
    """Return the quotas that were set for a project, revoked or not, as JSON; None if it does not exist."""
    rows = await database.look_up(_QUOTAS, project_id)
    return rows[0]["quotas"] if rows else None


async def find_project(session: Session, project_id: str, *, lock: bool = False) -> Project | None:
    """Return a project; with a lock, no other request creates or revokes its keys meanwhile."""
    return await session.get(Project, project_id, with_for_update=lock)


async def find_project_name(database: Database, project_id: str | None) -> str | None:
    """Return the name of a project."""
    if project_id is None:
        return None
    async with database.session() as session:
        return (await session.exec(select(Project.name).where(Project.project_id == project_id))).one_or_none()


async def list_project_page_plus_one(
    session: Session, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Project]:
    """Return projects, newest first, and one more if another page follows."""
    statement = keyset.select_page_plus_one(select(Project), (Project.created_at, Project.project_id), after, limit)
    return (await session.exec(statement)).all()


async def create_project(session: Session, project_id: str, name: str) -> Project:
    """Create a project."""
    project = Project(project_id=project_id, name=name, created_at=await _read_transaction_begin_time(session))
    session.add(project)
    await session.flush()
    return project


async def revoke_project(session: Session, project_id: str) -> Project | None:
    """Revoke a project unless it is revoked already."""
    project = await find_project(session, project_id, lock=True)
    if project is not None:
        project.revoked_at = project.revoked_at or await _read_transaction_begin_time(session)
    return project


async def find_and_lock_key(session: Session, project_id: str, key_id: str) -> ApiKey | None:
    """Return a key of a project, locked."""
    statement = select(ApiKey).where(ApiKey.project_id == project_id, ApiKey.key_id == key_id)
    return (await session.exec(statement.with_for_update())).one_or_none()


async def list_key_page_plus_one(
    session: Session, project_id: str, after: tuple[datetime, str] | None, limit: int
) -> Sequence[ApiKey]:
    """Return a project's keys, newest first, also revoked ones, and one more if another page follows."""
    statement = select(ApiKey).where(ApiKey.project_id == project_id)
    statement = keyset.select_page_plus_one(statement, (ApiKey.created_at, ApiKey.key_id), after, limit)
    return (await session.exec(statement)).all()


async def count_live_keys(session: Session, project_id: str) -> int:
    """Return how many of a project's keys are neither revoked nor expired."""
    live = (
        select(func.count())
        .select_from(ApiKey)
        .where(
            ApiKey.project_id == project_id,
            build_null_or_future_condition(ApiKey.revoked_at),
            build_null_or_future_condition(ApiKey.expires_at),
        )
    )
    return (await session.exec(live)).one()


async def insert_api_key(
    session: Session, project_id: str, key: ApiKeyText, pepper: str, permissions: KeyPermissions
) -> ApiKey:
    """Create a key."""
    row = ApiKey(
        key_id=key.key_id,
        project_id=project_id,
        secret_hash=digest_secret(pepper, key.secret),
        pepper_id=derive_pepper_id(pepper),
        last4=key.text[-4:],
        name=permissions.name,
        key_right=permissions.right,
        systems=None if permissions.systems is None else sorted(permissions.systems),
        expires_at=permissions.expires_at,
        created_at=await _read_transaction_begin_time(session),
    )
    session.add(row)
    return row


async def revoke_key(session: Session, key: ApiKey, *, after: timedelta = timedelta()) -> None:
    """Revoke a key now or after a time, unless it is revoked earlier."""
    ends_at = await _read_transaction_begin_time(session) + after
    key.revoked_at = min(key.revoked_at or ends_at, ends_at)


async def claim_idempotency_key(
    database: Database, project_id: str, key: str, claim: IdempotencyClaim
) -> IdempotencyClaim:
    """Claim an idempotency key for a download if it is new; return the claim that holds it.

    Waits for another transaction that claims the same key and is not committed yet.
    """
    claimed = insert(IdempotencyKey).values(
        project_id=project_id, key=key, fingerprint=claim.fingerprint, task_id=claim.task_id
    )
    # One statement, which changes nothing of a row that is there: housekeeping may delete it before a second one.
    claimed = claimed.on_conflict_do_update(
        index_elements=["project_id", "key"], set_={"task_id": IdempotencyKey.task_id}
    )
    async with database.session() as session:
        holder = await session.exec(claimed.returning(col(IdempotencyKey.fingerprint), col(IdempotencyKey.task_id)))
        return IdempotencyClaim(*holder.one())


async def purge_idempotency_keys(database: Database, before: datetime, limit: int) -> int:
    """Delete idempotency keys that were claimed before a time; return how many."""
    async with database.connection() as connection:
        deleted = await connection.execute(_PURGE_IDEMPOTENCY_KEYS, before, limit)
    return int(deleted.rpartition(" ")[2])


def build_null_or_future_condition(ended_at: datetime | None) -> ColumnElement[bool]:
    """Return the condition that the end of a row, by revocation or expiry, has not come yet."""
    return or_(col(ended_at).is_(None), col(ended_at) > func.now())


async def _read_transaction_begin_time(session: Session) -> datetime:
    """Return the time at which the transaction began, which is the same for all that it writes."""
    return (await session.exec(select(func.now()))).one()

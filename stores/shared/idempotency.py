"""Idempotency keys: which download a caller's key stands for."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.dialects.postgresql import insert
from sqlmodel import select

from infra.database import Database
from stores.tables.idempotency import IdempotencyKey


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """What a key was first sent with."""

    fingerprint: bytes
    task_id: str


async def claim(database: Database, project_id: str, key: str, wanted: KeyOwner) -> KeyOwner:
    """Keep a key for a download if it is new; return the download that owns it.

    Another transaction that claims the same key and is not committed yet is waited for.
    """
    made = insert(IdempotencyKey).values(
        project_id=project_id, key=key, fingerprint=wanted.fingerprint, task_id=wanted.task_id
    )
    owner = select(IdempotencyKey.fingerprint, IdempotencyKey.task_id).where(
        IdempotencyKey.project_id == project_id, IdempotencyKey.key == key
    )
    async with database.session() as session:
        await session.exec(made.on_conflict_do_nothing())
        return KeyOwner(*(await session.exec(owner)).one())

"""The audit log: the actions of callers, each written before it is done and completed with its status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import JsonValue
from sqlmodel import col, select

from infra.database import Database, Session
from stores import keyset
from stores.tables.shared import AuditEntry

# Every action of a caller runs the first two, so they go to the driver; lists go through a session: ADR 0019.
_ADD = """
    INSERT INTO audit_log (project_id, actor, action, path, who, reason, request_id, given)
    VALUES (
        coalesce($1, (SELECT project_id FROM order_platforms WHERE platform = $9)), $2, $3, $4, $5, $6, $7, $8::jsonb
    ) RETURNING id
"""
_COMPLETE = "UPDATE audit_log SET status = $2, code = $3 WHERE id = $1"
_PURGE = "DELETE FROM audit_log WHERE id IN (SELECT id FROM audit_log WHERE happened_at < $1 ORDER BY id LIMIT $2)"


@dataclass(frozen=True, slots=True)
class NewAuditEntry:
    """An action that a caller is about to do."""

    project_id: str | None
    actor: str
    """`key <id>` or `admin <name>`."""

    name: str
    """The route."""

    path: str
    who: str | None
    """The operator's name, where the request names one."""

    reason: str | None
    request_id: str
    given: Mapping[str, JsonValue] | None = None
    """Ids and values that the request gives, without secrets."""

    platform: str | None = None
    """The platform that is addressed: its project is that of the action, where no other is."""


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries are listed; None for all."""

    project_id: str | None = None
    actor: str | None = None
    action: str | None = None
    happened_after: datetime | None = None
    """This moment is included."""
    happened_before: datetime | None = None


async def add_audit_entry(database: Database, action: NewAuditEntry) -> int:
    """Write an action that is about to be done; return the id of its entry."""
    async with database.connection() as connection:
        entry_id: int = await connection.fetchval(
            _ADD,
            action.project_id,
            action.actor,
            action.name,
            action.path,
            action.who,
            action.reason,
            action.request_id,
            None if action.given is None else json.dumps(action.given),
            action.platform,
        )
    return entry_id


async def write_outcome_of_audited_action(database: Database, entry_id: int, status: int, code: str | None) -> None:
    """Write the status with which an action was answered, and the code of its refusal."""
    async with database.connection() as connection:
        await connection.execute(_COMPLETE, entry_id, status, code)


async def list_audit_entry_page_plus_one(
    session: Session, filters: AuditFilter, after: tuple[datetime, int] | None, limit: int
) -> Sequence[AuditEntry]:
    """Return entries, newest first, and one more if another page follows."""
    statement = select(AuditEntry)
    if filters.project_id is not None:
        statement = statement.where(AuditEntry.project_id == filters.project_id)
    if filters.actor is not None:
        statement = statement.where(AuditEntry.actor == filters.actor)
    if filters.action is not None:
        statement = statement.where(AuditEntry.action == filters.action)
    if filters.happened_after is not None:
        statement = statement.where(col(AuditEntry.happened_at) >= filters.happened_after)
    if filters.happened_before is not None:
        statement = statement.where(col(AuditEntry.happened_at) < filters.happened_before)
    statement = keyset.select_page_plus_one(statement, (AuditEntry.happened_at, AuditEntry.id), after, limit)
    return (await session.exec(statement)).all()


async def purge_audit_entries(database: Database, before: datetime, limit: int) -> int:
    """Delete entries from before a time; return how many."""
    async with database.connection() as connection:
        deleted = await connection.execute(_PURGE, before, limit)
    return int(deleted.rpartition(" ")[2])

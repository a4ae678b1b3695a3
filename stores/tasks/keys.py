"""Keys: the task ids that callers choose, each with the task that was created for it.

A create with a key reads and writes here, so these statements go to the driver directly, many keys at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from infra.database import Database

# A second claim of a key waits for the first to commit; the read that follows returns what that wrote.
_CLAIM = """
    INSERT INTO task_keys (type, key, task_id, digest)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) ORDER BY 1, 2
    ON CONFLICT DO NOTHING
"""
_READ = """
    SELECT k.type, k.key, k.task_id, k.digest FROM task_keys k
    JOIN unnest($1::text[], $2::text[]) AS n (type, key) ON k.type = n.type AND k.key = n.key
"""
_FIND = """
    SELECT k.task_id FROM task_types t JOIN task_keys k ON k.type = t.type
    WHERE k.key = $1 AND ($2::text IS NULL OR t.project_id = $2) ORDER BY t.type LIMIT $3
"""
_MOVE = "UPDATE task_keys SET task_id = $4 WHERE type = $1 AND key = $2 AND task_id = $3"


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """A key, the id of its task, and the digest of the create request."""

    type: str
    key: str
    task_id: str
    digest: bytes


async def claim(database: Database, claims: Sequence[KeyClaim]) -> dict[tuple[str, str], KeyClaim]:
    """Insert the claims whose keys are free; return the claims that are stored then, by type and key."""
    types, keys = [each.type for each in claims], [each.key for each in claims]
    async with database.connection() as connection:
        await connection.execute(
            _CLAIM, types, keys, [each.task_id for each in claims], [each.digest for each in claims]
        )
        rows = await connection.fetch(_READ, types, keys)
    return {(row["type"], row["key"]): KeyClaim(*row) for row in rows}


async def find(database: Database, key: str, project_id: str | None, limit: int) -> list[str]:
    """Return the ids of the tasks of a key, in the types of a project or of all."""
    async with database.connection() as connection:
        return [row["task_id"] for row in await connection.fetch(_FIND, key, project_id, limit)]


async def move(database: Database, before: KeyClaim, task_id: str) -> None:
    """Assign a key to another task, unless it was reassigned already."""
    async with database.connection() as connection:
        await connection.execute(_MOVE, before.type, before.key, before.task_id, task_id)

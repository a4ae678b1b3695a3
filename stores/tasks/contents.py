"""What is stored before a lane receives a task: its long texts, and the key that its caller chose.

A text has its task's id and a reference. It is written before the task is created, so it may never become a task's.
Each text is checked once, a day after it was written, or a day later while its lane does not answer; one that its task
replaces later is removed when the task ends.

A chosen key is a task id that a caller chose, stored with the id of the task that was created for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from infra.database import Database

# Requests with long texts wait for these two, so they go to the driver directly, many texts at a time.
# A text that is written again is in use again: its age begins anew.
_WRITE = """
    INSERT INTO task_contents (task_id, ref, body)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ORDER BY 1, 2
    ON CONFLICT (task_id, ref) DO UPDATE SET written_at = now()
"""
_READ = """
    SELECT c.task_id, c.ref, c.body FROM task_contents c
    JOIN unnest($1::text[], $2::text[]) AS n (task_id, ref) ON c.task_id = n.task_id AND c.ref = n.ref
"""

_UNCHECKED = """
    SELECT task_id, ref, written_at FROM task_contents WHERE written_at > $1 AND written_at < $2
    ORDER BY written_at FETCH FIRST $3 ROWS WITH TIES
"""
# A text that was written again meanwhile may be about to become its task's.
_REMOVE = """
    DELETE FROM task_contents USING unnest($1::text[], $2::text[]) AS unused (task_id, ref)
    WHERE task_contents.task_id = unused.task_id AND task_contents.ref = unused.ref AND written_at < $3
"""
_POSTPONE = """
    UPDATE task_contents SET written_at = now() FROM unnest($1::text[], $2::text[]) AS unchecked (task_id, ref)
    WHERE task_contents.task_id = unchecked.task_id AND task_contents.ref = unchecked.ref
"""
_CHECKED = "SELECT settled_until FROM task_texts_settled"
_SET_CHECKED = """
    INSERT INTO task_texts_settled (settled_until) VALUES ($1)
    ON CONFLICT (is_one) DO UPDATE SET settled_until = excluded.settled_until
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# A second claim of a key waits for the first to commit; the read that follows returns what that wrote.
_CLAIM_KEYS = """
    INSERT INTO task_keys (type, key, task_id, digest)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[]) ORDER BY 1, 2
    ON CONFLICT DO NOTHING
"""
_READ_KEYS = """
    SELECT k.type, k.key, k.task_id, k.digest FROM task_keys k
    JOIN unnest($1::text[], $2::text[]) AS n (type, key) ON k.type = n.type AND k.key = n.key
"""
_FIND_KEY = """
    SELECT k.task_id FROM task_types t JOIN task_keys k ON k.type = t.type
    WHERE k.key = $1 AND ($2::text IS NULL OR t.project_id = $2) AND t.removed_at IS NULL ORDER BY t.type LIMIT $3
"""
_MOVE_KEY = "UPDATE task_keys SET task_id = $4 WHERE type = $1 AND key = $2 AND task_id = $3"


class StoredTextReference(NamedTuple):
    """A stored text, whether or not its task exists."""

    task_id: str
    ref: str
    written_at: datetime


async def write_texts(database: Database, texts: Sequence[tuple[str, str, str]]) -> None:
    """Write texts; each has the task's id, its reference, and its body."""
    async with database.connection() as connection:
        await connection.execute(_WRITE, *map(list, zip(*texts, strict=True)))


async def read_texts(database: Database, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Read texts by the task's id and reference; one that was removed is left out."""
    async with database.connection() as connection:
        rows = await connection.fetch(_READ, *map(list, zip(*places, strict=True)))
    return {(row["task_id"], row["ref"]): row["body"] for row in rows}


async def list_unchecked_texts(database: Database, before: datetime, limit: int) -> list[StoredTextReference]:
    """List texts written before a time and not checked yet, oldest first; texts of the last time are never split."""
    async with database.connection() as connection:
        since = await connection.fetchval(_CHECKED) or _EPOCH
        return [StoredTextReference(*row) for row in await connection.fetch(_UNCHECKED, since, before, limit)]


async def delete_unused_texts(
    database: Database,
    unused: Sequence[StoredTextReference],
    unanswered: Sequence[StoredTextReference],
    before: datetime,
    until: datetime,
) -> None:
    """Remove texts that no task has, and record how far texts are checked.

    Args:
        unanswered: Texts of which nothing is known: they are checked again as if they were written now.
        before: Texts that were written again since this time stay: they may be about to become a task's.
        until: When the last text was written that has been checked, whether or not it is removed.
    """
    async with database.connection() as connection, connection.transaction():
        await connection.execute(_REMOVE, *_split_into_columns(unused), before)
        await connection.execute(_POSTPONE, *_split_into_columns(unanswered))
        await connection.execute(_SET_CHECKED, until)


def _split_into_columns(texts: Sequence[StoredTextReference]) -> tuple[list[str], list[str]]:
    return [each.task_id for each in texts], [each.ref for each in texts]


@dataclass(frozen=True, slots=True)
class ChosenKeyClaim:
    """A chosen key, the id of its task, and the digest of the create request."""

    type: str
    chosen_key: str
    task_id: str
    digest: bytes


async def claim_chosen_keys(
    database: Database, claims: Sequence[ChosenKeyClaim]
) -> dict[tuple[str, str], ChosenKeyClaim]:
    """Insert the claims whose keys are free; return the claims that are stored then, by type and chosen key."""
    types, keys = [each.type for each in claims], [each.chosen_key for each in claims]
    new = (types, keys, [each.task_id for each in claims], [each.digest for each in claims])
    stored: dict[tuple[str, str], ChosenKeyClaim] = {}
    async with database.connection() as connection:
        # Housekeeping may have removed a key in between, whose task was kept long enough: it is free then.
        while not stored.keys() >= set(zip(types, keys, strict=True)):
            await connection.execute(_CLAIM_KEYS, *new)
            rows = await connection.fetch(_READ_KEYS, types, keys)
            stored = {(row["type"], row["key"]): ChosenKeyClaim(*row) for row in rows}
    return stored


async def list_task_ids_of_chosen_key(
    database: Database, chosen_key: str, project_id: str | None, limit: int
) -> list[str]:
    """Return the ids of the tasks of a chosen key, in the types of a project or of all."""
    async with database.connection() as connection:
        return [row["task_id"] for row in await connection.fetch(_FIND_KEY, chosen_key, project_id, limit)]


async def reassign_chosen_key_unless_done_already(database: Database, before: ChosenKeyClaim, task_id: str) -> None:
    """Assign a chosen key to another task, unless it was reassigned already."""
    async with database.connection() as connection:
        await connection.execute(_MOVE_KEY, before.type, before.chosen_key, before.task_id, task_id)

"""Long texts of tasks, each under the task's id and a reference: written, read, and removed when no task has them.

Texts are written before their task is created, so a text may never become a task's. Each is checked once, a day after
it was written; a text that its task replaces later is removed when the task ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sqlalchemy import ARRAY, Text, bindparam, text

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

_UNCHECKED = text(
    "SELECT task_id, ref, written_at FROM task_contents WHERE written_at > :since AND written_at < :before "
    "ORDER BY written_at FETCH FIRST :batch ROWS WITH TIES"
)
# A text that was written again meanwhile may be about to become its task's.
_REMOVE = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :refs) AS unused (task_id, ref) "
    "WHERE task_contents.task_id = unused.task_id AND task_contents.ref = unused.ref AND written_at < :before"
).bindparams(bindparam("task_ids", type_=ARRAY(Text)), bindparam("refs", type_=ARRAY(Text)))
_CHECKED = text("SELECT settled_until FROM task_texts_settled")
_SET_CHECKED = text(
    "INSERT INTO task_texts_settled (settled_until) VALUES (:until) "
    "ON CONFLICT (is_one) DO UPDATE SET settled_until = excluded.settled_until"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class StoredText(NamedTuple):
    """A stored text, whether or not its task exists."""

    task_id: str
    ref: str
    written_at: datetime


async def write(database: Database, texts: Sequence[tuple[str, str, str]]) -> None:
    """Write texts; each has the task's id, its reference, and its body."""
    async with database.connection() as connection:
        await connection.execute(_WRITE, *map(list, zip(*texts, strict=True)))


async def read(database: Database, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Read texts by the task's id and reference; one that was removed is left out."""
    async with database.connection() as connection:
        rows = await connection.fetch(_READ, *map(list, zip(*places, strict=True)))
    return {(row["task_id"], row["ref"]): row["body"] for row in rows}


async def list_unchecked(database: Database, before: datetime, limit: int) -> list[StoredText]:
    """List texts written before a time and not checked yet, oldest first; texts of the last time are never split."""
    async with database.session() as session:
        since = (await session.execute(_CHECKED)).scalar() or _EPOCH
        rows = await session.execute(_UNCHECKED, {"since": since, "before": before, "batch": limit})
        return [StoredText(*row) for row in rows]


async def finish_check(database: Database, unused: Sequence[StoredText], before: datetime, until: datetime) -> None:
    """Remove texts that no task has, and record that all texts written up to a time are checked."""
    values = {"task_ids": [each.task_id for each in unused], "refs": [each.ref for each in unused], "before": before}
    async with database.session() as session:
        await session.execute(_REMOVE, values)
        await session.execute(_SET_CHECKED, {"until": until})

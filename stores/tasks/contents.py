"""Long texts of tasks, each under the task's id and a reference."""

from __future__ import annotations

from collections.abc import Sequence

from infra.database import Database

# One that is there already is wanted again: housekeeping must not take it for one that was replaced long ago.
_WRITE = """
    INSERT INTO task_contents (task_id, ref, body)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) ORDER BY 1, 2
    ON CONFLICT (task_id, ref) DO UPDATE SET written_at = now()
"""
_READ = """
    SELECT c.task_id, c.ref, c.body FROM task_contents c
    JOIN unnest($1::text[], $2::text[]) AS n (task_id, ref) ON c.task_id = n.task_id AND c.ref = n.ref
"""


async def write(database: Database, texts: Sequence[tuple[str, str, str]]) -> None:
    """Write texts down: of each the task's id, its reference, and the text."""
    async with database.connection() as connection:
        await connection.execute(_WRITE, *map(list, zip(*texts, strict=True)))


async def read(database: Database, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The texts under a task's id and a reference; one that is gone is left out."""
    async with database.connection() as connection:
        rows = await connection.fetch(_READ, *map(list, zip(*places, strict=True)))
    return {(row["task_id"], row["ref"]): row["body"] for row in rows}

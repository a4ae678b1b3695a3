"""Downloads that are in the catalogue without ever having run: for lists as long as a test wants them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.console.installation import Console, Project

FILL = """
    INSERT INTO downloads (task_id, project_id, operator_id, file_name, type, state, created_at, started_at,
        finished_at, processings, total_rows, rows, bytes, file, expires_at, request)
    SELECT 'dl_' || lpad(n::text, 12, '0') || $1, $2, '', 'Report ' || n || '.csv', 'csv', 'succeeded', $3::timestamptz
        + n * interval '1 second', $3, $3, 1, 1000, 1000, 5000, '{}', $3 + interval '1000 days', '{}'
    FROM generate_series(1, $4) n
"""


async def fill(console: Console, project: Project, rows: int) -> None:
    """Put finished downloads into the catalogue."""
    suffix = project.project_id[-12:].lower().replace("_", "0")
    begun = datetime.now(UTC) - timedelta(days=2)
    async with console.services.database.connection() as connection:
        await connection.execute(FILL, suffix, project.project_id, begun, rows)
        await connection.execute("ANALYZE downloads")

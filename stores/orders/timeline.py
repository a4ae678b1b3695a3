"""A platform's slices over time, counted in so many parts of it, whatever their number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from infra.database import Database

SLICE_MAX: Final = timedelta(days=31)

# A slice that is longer than a part lies in several; its figures count where it begins. A slice never begins more than
# its greatest length before a time that it reaches into, which lets the index find the first.
_PARTS = """
    SELECT part AS number, count(*) AS slices,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NULL AND failed_at IS NULL) AS open,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NULL AND failed_at IS NOT NULL) AS failed,
        count(*) FILTER (WHERE done_at IS NOT NULL) AS done,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NOT NULL) AS skipped,
        count(*) FILTER (WHERE swept_at IS NOT NULL) AS swept,
        coalesce(sum(missed) FILTER (WHERE part = greatest(0, first)), 0) AS missed,
        coalesce(sum(orders) FILTER (WHERE part = greatest(0, first)), 0) AS orders
    FROM (
        SELECT *, floor(extract(epoch FROM start_at - $2::timestamptz) / $4)::int AS first,
            ceil(extract(epoch FROM end_at - $2::timestamptz) / $4)::int - 1 AS last
        FROM order_slices
        WHERE platform = $1 AND split_at IS NULL AND start_at < $3 AND end_at > $2 AND start_at > $2 - $6::interval
    ) AS slice, generate_series(greatest(0, first), least($5::int - 1, last)) AS part
    GROUP BY part ORDER BY part
"""


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """What became of the slices that touch a part of a time."""

    number: int
    """Counted from 0."""

    slices: int
    open: int
    failed: int
    done: int
    skipped: int
    swept: int
    missed: int
    """Orders that only a sweep found, in slices that begin in this part."""

    orders: int
    """Orders of the slices that begin in this part."""


async def list_parts(
    database: Database, platform: str, start: datetime, end: datetime, parts: int
) -> list[TimelinePart]:
    """The parts of a time that a platform's slices touch."""
    part_seconds = (end - start).total_seconds() / parts
    async with database.connection() as connection:
        rows = await connection.fetch(_PARTS, platform, start, end, part_seconds, parts, SLICE_MAX)
    return [TimelinePart(**dict(row)) for row in rows]

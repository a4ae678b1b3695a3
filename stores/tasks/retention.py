"""What is kept of tasks: those that ended go when their time is over, and texts that no task refers to go in any case.

Counts of tasks stay: they tell how many there ever were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import ARRAY, Text, bindparam, text

from domain.tasks.messages import FINAL
from infra.database import Database
from stores.tasks.whereabouts import Whereabouts

BATCH: Final = 1_000
LONGEST_SECONDS: Final = 180.0
"""Of one time; the next one takes the rest."""
UNSETTLED: Final = timedelta(days=1)
"""So long after it was written a text has become its task's, or never will."""

_IDS: Final = bindparam("task_ids", type_=ARRAY(Text))
_TYPES = text("SELECT type FROM task_types ORDER BY type")
# Whoever was created long ago and has ended only lately is passed over, and not looked at again with each batch.
_PAST = text(
    "SELECT task_id, create_time FROM tasks_archive WHERE type = :type AND status = :status "
    "AND create_time >= :since AND create_time < :before AND modify_time < :before ORDER BY create_time LIMIT :batch"
)
_FORGET = [
    text(f"DELETE FROM {table} WHERE task_id = ANY(:task_ids)").bindparams(_IDS)  # noqa: S608 - names of ours
    for table in ("task_contents", "task_keys", "tasks_archive")
]
_UNSETTLED = text(
    "SELECT task_id, ref, written_at FROM task_contents WHERE written_at > :since AND written_at < :before "
    "ORDER BY written_at FETCH FIRST :batch ROWS WITH TIES"
)
# A text that was written once more since then may be about to become its task's.
_DISCARD = text(
    "DELETE FROM task_contents USING unnest(:task_ids, :refs) AS stray (task_id, ref) "
    "WHERE task_contents.task_id = stray.task_id AND task_contents.ref = stray.ref AND written_at < :before"
).bindparams(_IDS, bindparam("refs", type_=ARRAY(Text)))
_SETTLED = text("SELECT settled_until FROM task_texts_settled")
_SETTLE = text(
    "INSERT INTO task_texts_settled (settled_until) VALUES (:until) "
    "ON CONFLICT (is_one) DO UPDATE SET settled_until = excluded.settled_until"
)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Text(NamedTuple):
    task_id: str
    ref: str
    written_at: datetime


async def forget(database: Database, whereabouts: Whereabouts, kept: timedelta, beat: Callable[[], object]) -> int:
    """Remove tasks that ended longer ago, with their texts and the keys that stand for them; how many."""
    before = round((datetime.now(UTC) - kept).timestamp() * 1_000)
    until = time.monotonic() + LONGEST_SECONDS
    async with database.session() as session:
        types = (await session.execute(_TYPES)).scalars().all()
    forgotten = 0
    for type_ in types:
        for status in FINAL:
            wanted = {"type": type_, "status": int(status), "before": before, "batch": BATCH}
            since, is_over = 0, False
            while not is_over and time.monotonic() < until:
                async with database.session() as session:
                    past = (await session.execute(_PAST, wanted | {"since": since})).all()
                done = await _forget(database, whereabouts, [task_id for task_id, _ in past])
                is_over = len(past) < BATCH or (not done and past[-1].create_time == since)
                since = past[-1].create_time if past else since
                forgotten += done
                beat()
    return forgotten


async def _forget(database: Database, whereabouts: Whereabouts, task_ids: Sequence[str]) -> int:
    # A lane that still has one has not heard that it is in the archive: it would be put there, and counted, once more.
    live = await whereabouts.live(task_ids)
    gone = [task_id for task_id in task_ids if task_id not in live]
    if gone:
        async with database.session() as session:
            for statement in _FORGET:
                await session.execute(statement, {"task_ids": gone})
    return len(gone)


async def discard(database: Database, whereabouts: Whereabouts, beat: Callable[[], object]) -> int:
    """Remove texts that are no task's: it was never taken, ended before, or has another one by now; how many.

    Each text is looked at once, a day after it was written; what its task replaces later goes when that has ended.
    """
    before = datetime.now(UTC) - UNSETTLED
    until = time.monotonic() + LONGEST_SECONDS
    discarded, looked_at = 0, BATCH
    while looked_at >= BATCH and time.monotonic() < until:
        async with database.session() as session:
            since = (await session.execute(_SETTLED)).scalar() or _BEGINNING
            rows = await session.execute(_UNSETTLED, {"since": since, "before": before, "batch": BATCH})
            texts = [_Text(*row) for row in rows]
        discarded += await _discard(database, whereabouts, texts, before)
        looked_at = len(texts)
        beat()
    return discarded


async def _discard(database: Database, whereabouts: Whereabouts, texts: list[_Text], before: datetime) -> int:
    if not texts:
        return 0
    refs = await whereabouts.refs({each.task_id for each in texts})
    stray = [each for each in texts if each.ref not in refs.get(each.task_id, ())]
    values = {"task_ids": [each.task_id for each in stray], "refs": [each.ref for each in stray], "before": before}
    async with database.session() as session:
        await session.execute(_DISCARD, values)
        await session.execute(_SETTLE, {"until": texts[-1].written_at})
    return len(stray)

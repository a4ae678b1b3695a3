"""What is kept of tasks: those that ended go when their time is over, and texts that no task refers to go in any case.

Counts of tasks stay: they tell how many there ever were.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from activities.removal import LONGEST_SECONDS
from activities.tasks.whereabouts import Whereabouts
from domain.tasks.messages import FINAL
from infra.database import Database
from stores.tasks import retention
from stores.tasks.retention import StoredText

BATCH: Final = 1_000
UNSETTLED: Final = timedelta(days=1)
"""So long after it was written a text has become its task's, or never will."""


async def forget(database: Database, whereabouts: Whereabouts, kept: timedelta, beat: Callable[[], object]) -> int:
    """Remove tasks that ended longer ago, with their texts and the keys that stand for them; how many."""
    before = round((datetime.now(UTC) - kept).timestamp() * 1_000)
    until = time.monotonic() + LONGEST_SECONDS
    forgotten = 0
    for type_ in await retention.list_types(database):
        for status in FINAL:
            since, is_over = 0, False
            while not is_over and time.monotonic() < until:
                past = await retention.list_past(database, type_, int(status), since, before, BATCH)
                done = await _forget(database, whereabouts, [each.task_id for each in past])
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
        await retention.remove(database, gone)
    return len(gone)


async def discard(database: Database, whereabouts: Whereabouts, beat: Callable[[], object]) -> int:
    """Remove texts that are no task's: it was never taken, ended before, or has another one by now; how many.

    Each text is looked at once, a day after it was written; what its task replaces later goes when that has ended.
    """
    before = datetime.now(UTC) - UNSETTLED
    until = time.monotonic() + LONGEST_SECONDS
    discarded, looked_at = 0, BATCH
    while looked_at >= BATCH and time.monotonic() < until:
        texts = await retention.list_unsettled(database, before, BATCH)
        discarded += await _discard(database, whereabouts, texts, before)
        looked_at = len(texts)
        beat()
    return discarded


async def _discard(database: Database, whereabouts: Whereabouts, texts: Sequence[StoredText], before: datetime) -> int:
    if not texts:
        return 0
    refs = await whereabouts.refs({each.task_id for each in texts})
    stray = [each for each in texts if each.ref not in refs.get(each.task_id, ())]
    await retention.settle(database, stray, before, texts[-1].written_at)
    return len(stray)

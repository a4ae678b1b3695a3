"""Quotas of a day: what projects use up is counted in this process at once, and in PostgreSQL within a second."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from aiohttp import web

from api.batching import UncachedReadByKey
from domain.limits import UncheckedSpending
from domain.quotas import DAY_SECONDS, QuotaLimits, SingleQuotaUsage, build_day_bucket_name, build_quota_exceeded_fault
from infra import log
from infra.database import Database
from infra.limits import DatabaseLimiter

SAVE_SECONDS: Final = 1.0
"""How long amounts are gathered before they are saved."""
STALE_SECONDS: Final = 5.0
"""A count that is older is read again before it is used."""
FAILURE_PAUSE_SECONDS: Final = 5.0
"""How long after a failed save the next one is tried."""
COUNTS_MAX: Final = 3_000
"""More are kept only while they hold amounts that are not saved."""

_log = log.get(__name__)


@dataclass(slots=True)
class _DayCount:
    """What a project has used of one quota."""

    saved: int
    """By all processes, as it was read."""
    resets_in_seconds: float | None
    read_at: float
    unsaved: int = 0

    @property
    def total(self) -> int:
        return self.saved + self.unsaved


class DailyQuotaCounter:
    """What each project uses up of its quotas of a day.

    A process never lets in more than a quota of what it knows; of what other processes let in it learns with its next
    save or read, at most some seconds later. A process that is killed has not saved its last second.
    """

    def __init__(self, database: Database) -> None:
        self._limiter = DatabaseLimiter(database)
        self._known: OrderedDict[str, _DayCount] = OrderedDict()
        self._shared_saves = UncachedReadByKey(self._save_and_read)
        self._saving: dict[str, asyncio.Task[None]] = {}

    async def count_within_quotas(self, project_id: str, amounts: Mapping[str, int], limits: QuotaLimits) -> None:
        """Count amounts of quotas, by their names; of an amount of 0, require that anything is left.

        Raises:
            QuotaExhausted: The project would use more than it may of one; nothing is counted.
        """
        counts = {name: await self._get_or_read_count(build_day_bucket_name(name, project_id)) for name in amounts}
        for name, count in counts.items():
            limit: int = getattr(limits, name)
            if count.total + max(amounts[name], 1) > limit:
                raise build_quota_exceeded_fault(
                    [name],
                    f"This project has used {count.total:,} of its quota {name} within a day, and may use {limit:,}.",
                    "Some comes back as time passes: GET /v1/quotas shows when.",
                    count.resets_in_seconds or SAVE_SECONDS,
                )
        for name, count in counts.items():
            if amounts[name]:
                bucket = build_day_bucket_name(name, project_id)
                # It may have been dropped while another was read.
                self._known.setdefault(bucket, count).unsaved += amounts[name]
                self._schedule_save(bucket)

    def release(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Count amounts no more, as what they were counted for was refused, also where they are saved already."""
        for name, amount in amounts.items():
            bucket = build_day_bucket_name(name, project_id)
            if amount and (count := self._known.get(bucket)) is not None:
                count.unsaved -= amount
                self._schedule_save(bucket)

    async def read_usage(self, project_id: str, name: str) -> SingleQuotaUsage:
        """Return how much of a quota a project has used, by a read that saves what this process has counted."""
        count = await self._shared_saves.read_anew(build_day_bucket_name(name, project_id))
        return SingleQuotaUsage(name, count.saved, count.resets_in_seconds)

    async def save_all(self) -> None:
        """Save what is not saved yet, as this process stops; nothing is saved after that."""
        unsaved = [bucket for bucket, count in self._known.items() if count.unsaved]
        saving = [*self._saving.values()]
        for task in saving:
            task.cancel()
        await asyncio.gather(*saving, *map(self._shared_saves.read_anew, unsaved), return_exceptions=True)

    async def _get_or_read_count(self, bucket: str) -> _DayCount:
        count = self._known.get(bucket)
        if count is None or time.monotonic() - count.read_at > STALE_SECONDS:
            count = await self._shared_saves.read_anew(bucket)
        self._known.setdefault(bucket, count)
        self._known.move_to_end(bucket)
        return count

    def _schedule_save(self, bucket: str) -> None:
        if bucket not in self._saving:
            self._saving[bucket] = asyncio.create_task(self._save_until_nothing_is_left(bucket))

    async def _save_until_nothing_is_left(self, bucket: str) -> None:
        pause_seconds = SAVE_SECONDS
        try:
            while self._known[bucket].unsaved:
                await asyncio.sleep(pause_seconds)
                try:
                    await self._shared_saves.read_anew(bucket)
                    pause_seconds = SAVE_SECONDS
                except Exception as error:  # noqa: BLE001 - the amount is still there
                    _log.warning("daily_quota_not_saved", bucket=bucket, error=repr(error))
                    pause_seconds = FAILURE_PAUSE_SECONDS
        finally:
            del self._saving[bucket]

    async def _save_and_read(self, bucket: str) -> _DayCount:
        count = self._known.get(bucket)
        amount = count.unsaved if count else 0
        total, resets_in_seconds = await self._limiter.spend_and_read(UncheckedSpending(bucket, amount, DAY_SECONDS))
        saved = max(0, total)  # what is released may be counted for longer than what it takes back
        if count is None:
            count = self._known.setdefault(bucket, _DayCount(saved, resets_in_seconds, time.monotonic()))
            self._drop_longest_unused_without_unsaved()
        count.saved, count.resets_in_seconds, count.read_at = saved, resets_in_seconds, time.monotonic()
        count.unsaved -= amount
        return count

    def _drop_longest_unused_without_unsaved(self) -> None:
        saved = (bucket for bucket, count in self._known.items() if not count.unsaved and bucket not in self._saving)
        for bucket in [*islice(saved, max(0, len(self._known) - COUNTS_MAX))]:
            del self._known[bucket]


DAILY_QUOTAS = web.AppKey("daily_quotas", DailyQuotaCounter)


async def save_daily_counts_at_stop(app: web.Application) -> None:
    """Save what a process that stops has counted."""
    await app[DAILY_QUOTAS].save_all()

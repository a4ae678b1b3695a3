"""The workload of downloads, for the overview."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from api.batching import CachedRead
from api.downloads.queries import list_pending_downloads
from api.downloads.responses import DownloadSummary
from domain.workload import ItemCount, Workload, Workloads, merge_workloads
from infra import log
from infra.settings import Settings
from services.services import Services
from stores.downloads import catalogue

UNIT: Final = "downloads"
HAS_PROJECTS: Final = True
ENGINE_SECONDS: Final = 20.0
"""All processes together may query the engine's index ten times a second."""
TIMEOUT_SECONDS: Final = 2.0

_log = log.get(__name__)


def get_failures_counted_since(settings: Settings, now: datetime) -> datetime | None:
    """Return the time since when failures are counted."""
    return now - catalogue.FAILED_WITHIN


def build_workload_counter(services: Services) -> Callable[[], Awaitable[Workloads]]:
    """Return a function that counts the downloads with a row and those that no worker has taken up yet."""
    unrecorded = CachedRead(lambda: _list_pending_or_empty(services), ENGINE_SECONDS)

    async def count_workloads() -> Workloads:
        return merge_workloads(
            await catalogue.count_downloads(services.database),
            await _count_unrecorded(services, await unrecorded.get()),
        )

    return count_workloads


async def _list_pending_or_empty(services: Services) -> list[DownloadSummary]:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await list_pending_downloads(services, None)
    except Exception as error:  # noqa: BLE001 (the overview shows that the engine is down, and all else)
        _log.warning("pending_downloads_read_failed", error=repr(error))
        return []


async def _count_unrecorded(services: Services, listed: list[DownloadSummary]) -> Workloads:
    """Count those of the listed downloads that still have no row."""
    begun = await catalogue.filter_task_ids_with_row(services.database, [each.task_id for each in listed])
    left = [each for each in listed if each.task_id not in begun]
    return merge_workloads(*({each.project_id: Workload(waiting=ItemCount(1, each.created_at))} for each in left))

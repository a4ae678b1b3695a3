"""Housekeeping of downloads: expired files, staged rows without a running download, and abandoned uploads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.removal import remove_in_batches
from domain.downloads import names
from domain.downloads.activity_models import SweepResult
from domain.downloads.models import DownloadSpec
from infra import log
from infra.limits import Limiter
from infra.objects import ListedObject
from services.services import Services
from stores.downloads import catalogue

BATCH = 200
ABANDONED_AFTER = timedelta(hours=24)
_TEMPORARY = (names.STAGING, names.INLINE)


class DownloadHousekeeping:
    """The activities that remove what is past its time."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._engine = services.engine

    @activity.defn(name=names.EXPIRE)
    async def expire(self) -> int:
        """Remove expired files and mark them in the catalogue, in batches; return how many."""
        return await remove_in_batches(self._expire_batch, BATCH)

    async def _expire_batch(self, limit: int) -> int:
        rows = await catalogue.list_expired(self._database, limit)
        for row in rows:
            await catalogue.remove_file(self._database, self._objects, DownloadSpec.model_validate(row.request))
            activity.heartbeat()
        return len(rows)

    @activity.defn(name=names.SWEEP)
    async def sweep(self) -> SweepResult:
        """Remove staged objects and uploads that are a day old and whose workflow has ended."""
        await Limiter(self._database).delete_expired()
        before = datetime.now(UTC) - ABANDONED_AFTER
        uploads = await self._objects.list_uploads(names.FILES) + await self._objects.list_uploads(names.STAGING)
        stale = [upload for upload in uploads if upload.started < before and not await self._is_running(upload.key)]
        for upload in stale:
            await self._objects.abort(upload.key, upload.upload_id)
        swept = 0
        for prefix in _TEMPORARY:
            for task, newest in _newest(await self._objects.list(prefix)).items():
                activity.heartbeat()
                if newest < before and not await self._is_running(task):
                    swept += await self._objects.delete_prefix(task)
        if stale or swept:
            log.get(__name__).info("abandoned_staging_removed", uploads=len(stale), objects=swept)
        return SweepResult(uploads=len(stale), objects=swept)

    async def _is_running(self, key: str) -> bool:
        """Return whether the workflow of the download that a key belongs to is running."""
        _, project_id, rest = key.split("/", 2)
        task_id = rest.partition("/")[0].removesuffix(".json")
        try:
            description = await self._engine.get_workflow_handle(
                names.build_workflow_id(project_id, task_id)
            ).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return description.status is WorkflowExecutionStatus.RUNNING


def _newest(listed: Iterable[ListedObject]) -> dict[str, datetime]:
    """Return, for each download with objects here, when the last of them was written."""
    newest: dict[str, datetime] = {}
    for each in listed:
        task = "/".join(each.key.split("/")[:3])
        newest[task] = max(each.modified, newest.get(task, each.modified))
    return newest

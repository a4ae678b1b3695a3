"""The quotas of tasks: the types of a project, its open tasks, and the tasks that a request and a day create."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from api.batching import UncachedReadByKey
from api.daily_quotas import DAILY_QUOTAS
from api.http.routes import Call
from domain.faults import Invalid
from domain.quotas import OPEN_RETRY_SECONDS, QuotaLimits, SingleQuotaUsage, build_quota_exceeded_fault
from infra import log
from infra.database import Database
from stores.tasks import lanes, types

FRESH_SECONDS = 1.0
"""A count that is older is read again in the background. Lanes save their counts about as late."""
STALE_SECONDS = 5.0
"""A count that is older is read again before it is used."""
PROJECTS_MAX = 1_000
TOO_MANY_AT_ONCE = "too_many_tasks_at_once"

_log = log.get(__name__)


@dataclass(slots=True)
class _StoredAndAdmittedTaskCounts:
    """The open tasks of a project as they were read, and those that this process let in around and after that."""

    read_at: float
    stored: int
    admitted_before: int = 0
    """Let in during the interval before the read, of which lanes may not have saved all."""
    admitted: int = 0

    @property
    def total(self) -> int:
        return self.stored + self.admitted_before + self.admitted


class OpenTaskQuotaCounter:
    """The open tasks of each project.

    A process counts what it lets in at once, so that it never lets in more than a quota. It learns of what other
    processes let in with the next count, which is at most some seconds old.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[str, _StoredAndAdmittedTaskCounts] = OrderedDict()
        self._reads = UncachedReadByKey(self._read_and_cache_count)
        self._refreshes: dict[str, asyncio.Task[None]] = {}

    async def count_new_tasks_within_quota(self, project_id: str, tasks: int, limit: int) -> None:
        """Count tasks that a project creates.

        Raises:
            QuotaExhausted: The project would have more open tasks than it may; none is counted.
        """
        known = self._known.get(project_id)
        age = time.monotonic() - known.read_at if known else STALE_SECONDS
        if known is None or age >= STALE_SECONDS:
            known = await self._reads.read_anew(project_id)
        elif age >= FRESH_SECONDS and project_id not in self._refreshes:
            self._refreshes[project_id] = asyncio.create_task(self._refresh_in_background(project_id))
        if known.total + tasks > limit:
            raise build_quota_exceeded_fault(
                ["tasks_open"],
                f"This project has {known.total:,} tasks that have not ended, and may have {limit:,}.",
                "Wait until workers have done some, or cancel some.",
                OPEN_RETRY_SECONDS,
            )
        known.admitted += tasks

    def release(self, project_id: str, tasks: int) -> None:
        """Count tasks no more that were refused after they had been counted."""
        if (known := self._known.get(project_id)) is not None:
            # They may have been counted before the last read; then the next one corrects it.
            known.admitted = max(0, known.admitted - tasks)

    async def _refresh_in_background(self, project_id: str) -> None:
        try:
            await self._reads.read_anew(project_id)
        except Exception as error:  # noqa: BLE001 - the count is read again before it is too old
            _log.warning("open_tasks_read_failed", project_id=project_id, error=repr(error))
        finally:
            del self._refreshes[project_id]

    async def _read_and_cache_count(self, project_id: str) -> _StoredAndAdmittedTaskCounts:
        before = self._known.get(project_id)
        admitted = before.admitted if before else 0
        stored = await lanes.count_open_tasks_of_project(self._database, project_id)
        now = time.monotonic()
        known = _StoredAndAdmittedTaskCounts(now, stored)
        if before is not None:
            # What was let in during the read is carried on in full; what came before it, until the next read.
            known.admitted = before.admitted - admitted
            known.admitted_before = admitted if now - before.read_at < STALE_SECONDS else 0
        self._known[project_id] = known
        if len(self._known) > PROJECTS_MAX:
            self._known.popitem(last=False)
        return known


async def count_new_tasks_within_quotas(call: Call, open_tasks: OpenTaskQuotaCounter, tasks: int) -> None:
    """Count the tasks that a project's request creates.

    Raises:
        Invalid: One request may not create so many.
        QuotaExhausted: The project would have more open tasks, or create more within a day, than it may.
    """
    limits = call.quotas
    if tasks > (most := min(limits.tasks_per_request, limits.tasks_per_day)):
        raise Invalid(
            TOO_MANY_AT_ONCE,
            f"The request has {tasks:,} tasks, and {most:,} are allowed for this project.",
            "Send them in several requests.",
            field="task_list",
        )
    daily, amounts = call.request.app[DAILY_QUOTAS], {"tasks_per_day": tasks}
    await daily.count_within_quotas(call.project_id, amounts, limits)
    try:
        await open_tasks.count_new_tasks_within_quota(call.project_id, tasks, limits.tasks_open)
    except BaseException:  # also of an outage: no task is created
        daily.release(call.project_id, amounts)
        raise


def release_refused_task(call: Call, open_tasks: OpenTaskQuotaCounter) -> None:
    """Count a task no more that was refused, so that it certainly was not created."""
    call.request.app[DAILY_QUOTAS].release(call.project_id, {"tasks_per_day": 1})
    open_tasks.release(call.project_id, 1)


async def read_usage(call: Call, project_id: str, _limits: QuotaLimits) -> list[SingleQuotaUsage]:
    """Return how much of its quotas a project has used."""
    database = call.services.database
    return [
        SingleQuotaUsage("task_types", await types.count_types_of_project(database, project_id)),
        SingleQuotaUsage("tasks_open", await lanes.count_open_tasks_of_project(database, project_id)),
        SingleQuotaUsage("tasks_per_request", None),
        await call.request.app[DAILY_QUOTAS].read_usage(project_id, "tasks_per_day"),
    ]

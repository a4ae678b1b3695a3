"""Snapshots of the whole installation: the health of the components, each system's workload, the engine's queues."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, cast
from urllib.parse import quote

from pydantic import AwareDatetime, Field

from api.http.models import Response
from api.shared_reads import CachedRead
from api.systems import SystemApi
from domain.webhooks import names as webhooks
from domain.workload import ConcernKind, Workload, Workloads, sum_workloads
from infra import log, temporal
from services.services import Services
from systems.names import System, import_modules
from systems.protocol import SystemNames

QUEUES_CACHE_SECONDS: Final = 20.0
"""Describing every task queue is expensive for the engine."""

_NAMES: Final = cast("Mapping[System, SystemNames]", import_modules("domain.{}.names"))
QUEUES: Final[Mapping[str, System]] = {
    **{queue: system for system, names in _NAMES.items() for queue in names.QUEUES},
    # Most callbacks are those of downloads.
    webhooks.QUEUE: "downloads",
}
_POLLER_KINDS = (temporal.WORKFLOW_QUEUE, temporal.ACTIVITY_QUEUE)

_log = log.get(__name__)


class ComponentHealth(Response):
    """The health of a component."""

    name: str = Field(description="`database`, `engine` or `bucket`")
    ok: bool
    milliseconds: float | None = Field(description="how long its answer took; null where there was none")


class QueueStatus(Response):
    """A task queue of the engine."""

    name: str
    room: System
    workers: int = Field(description="workers that polled it within the last minutes")
    backlog: int = Field(description="what waits there for a worker, about")
    backlog_seconds: float = Field(description="for how long the first of it has waited, about")


class Concern(Response):
    """Something that a person should look at."""

    trouble: ConcernKind
    count: int = Field(description="how many")


class SystemWorkload(Response):
    """The workload of a system."""

    room: System
    unit: str = Field(description="what is counted: `downloads`, `targets`, `slices`, `messages` or `tasks`")
    running: int
    waiting: int
    failed: int
    failed_since: AwareDatetime | None = Field(
        description="since when failures are counted; null where they stay until a person deals with them"
    )
    oldest_running_seconds: float | None = Field(description="for how long the first of them runs; null if none does")
    oldest_waiting_seconds: float | None = Field(description="for how long the first of them waits; null if none does")
    oldest_failed_seconds: float | None = Field(description="how long ago the first of them failed; null if none did")
    concerns: list[Concern] = Field(description="what a person should look at, without those whose count is 0")
    engine_url: str | None = Field(
        default=None, description="its running workflows in Temporal's Web UI; only for the admin key"
    )


class OverviewResponse(Response):
    """The state of the installation, for one project or for all."""

    at: AwareDatetime
    project_id: str | None = Field(description="whose figures these are; null for all projects")
    parts: list[ComponentHealth]
    rooms: list[SystemWorkload] = Field(description="those that the caller may see: addresses belong to no project")
    queues: list[QueueStatus] = Field(description="only for the admin key: all projects share them")


class SnapshotReader:
    """Read snapshots, each part at most once in some seconds for all callers together.

    Args:
        apis: The systems to show, in this order.
    """

    def __init__(self, services: Services, apis: Mapping[System, SystemApi]) -> None:
        self._services = services
        self._components = CachedRead(self._check_components)
        self._queues = CachedRead(self._read_queues, QUEUES_CACHE_SECONDS)
        self._overviews = {system: api.overview for system, api in apis.items()}
        self._workloads = {
            system: CachedRead(overview.make_counter(services)) for system, overview in self._overviews.items()
        }

    async def read_snapshot(self, project_id: str | None, *, is_admin: bool) -> OverviewResponse:
        """Return a snapshot of a project, or of all, with what this caller may see."""
        systems = [system for system, overview in self._overviews.items() if is_admin or overview.HAS_PROJECTS]
        components, queues, workloads = await asyncio.gather(
            self._components.get(),
            self._queues.get(),
            asyncio.gather(*(self._workloads[system].get() for system in systems)),
        )
        now = datetime.now(UTC)
        shown = [
            self._build_workload(system, self._select_project(project_id, system, each), queues, now)
            for system, each in zip(systems, workloads, strict=True)
        ]
        if is_admin:
            shown = [each.model_copy(update={"engine_url": self._build_url(each.room, project_id)}) for each in shown]
        return OverviewResponse(
            at=now, project_id=project_id, parts=components, rooms=shown, queues=queues if is_admin else []
        )

    def _build_workload(
        self, system: System, workload: Workload, queues: list[QueueStatus], now: datetime
    ) -> SystemWorkload:
        overview = self._overviews[system]
        idle = sum(1 for queue in queues if queue.room == system and not queue.workers)
        concerns = workload.concerns + Counter({ConcernKind.NO_WORKER: idle})
        return SystemWorkload(
            room=system,
            unit=overview.UNIT,
            running=workload.running.count,
            waiting=workload.waiting.count,
            failed=workload.failed.count,
            failed_since=overview.failed_since(self._services.settings, now),
            oldest_running_seconds=workload.running.compute_age(now),
            oldest_waiting_seconds=workload.waiting.compute_age(now),
            oldest_failed_seconds=workload.failed.compute_age(now),
            concerns=[Concern(trouble=kind, count=count) for kind, count in sorted(concerns.items())],
        )

    def _select_project(self, project_id: str | None, system: System, workloads: Workloads) -> Workload:
        """Return the workload of a project; of a system without projects, all of it."""
        if project_id is None or not self._overviews[system].HAS_PROJECTS:
            return sum_workloads(workloads.values())
        return workloads.get(project_id, Workload())

    def _build_url(self, system: System, project_id: str | None) -> str | None:
        ui_url = self._services.settings.engine.ui_url
        if not ui_url:
            return None
        within = project_id if self._overviews[system].HAS_PROJECTS else None
        return build_engine_url(ui_url, self._services.engine.namespace, system, within)

    async def _check_components(self) -> list[ComponentHealth]:
        return list(await asyncio.gather(*(self._check_component(name) for name in self._services.pings)))

    async def _check_component(self, name: str) -> ComponentHealth:
        started = time.perf_counter()
        fails = await self._services.fails(name)
        milliseconds = None if fails else round((time.perf_counter() - started) * 1000, 1)
        return ComponentHealth(name=name, ok=not fails, milliseconds=milliseconds)

    async def _read_queues(self) -> list[QueueStatus]:
        try:
            statuses = (_describe_queue(self._services, name, system) for name, system in QUEUES.items())
            return list(await asyncio.gather(*statuses))
        except Exception as error:  # noqa: BLE001 (the engine is shown to be down; the rest is still worth showing)
            _log.warning("queues_not_read", error=repr(error))
            return []


async def _describe_queue(services: Services, name: str, system: System) -> QueueStatus:
    # Asked of the matching service, which knows pollers and backlog, and not of the visibility store, which is slow.
    answers = await asyncio.gather(*(temporal.describe_queue(services.engine, name, kind) for kind in _POLLER_KINDS))
    workers = {worker for answer in answers for worker in temporal.list_workers(answer)}
    return QueueStatus(
        name=name,
        room=system,
        workers=len(workers),
        backlog=sum(answer.stats.approximate_backlog_count for answer in answers),
        backlog_seconds=max(answer.stats.approximate_backlog_age.ToTimedelta() for answer in answers).total_seconds(),
    )


def build_engine_url(ui_url: str, namespace: str, system: System, project_id: str | None) -> str:
    """Return the page of Temporal's Web UI that lists the running workflows of a system, or of a project in it."""
    query = f'ExecutionStatus="Running" AND {temporal.SYSTEM.name}="{system}"'
    if project_id is not None:
        query += f' AND {temporal.PROJECT.name}="{project_id}"'
    return f"{ui_url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows?query={quote(query, safe='')}"

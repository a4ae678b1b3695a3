"""The overview: the health of the components, each system's workload, and the engine's queues, once or as a stream."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias, cast

from aiohttp import web
from pydantic import AwareDatetime, Field

from api import components
from api.batching import FRESH_SECONDS, CachedRead
from api.components import ComponentHealth
from api.http import auth
from api.http.models import Response
from api.http.routes import Call, RouteAccess, Routes
from api.pauses import PauseResponse, build_pause_response
from domain import webhooks
from domain.faults import QuotaExhausted, Unauthenticated
from domain.quotas import STREAMS_QUOTA
from domain.workload import ConcernKind, ConcernKindSubjectAndCause, CountsAndConcerns, WorkByProject, sum_workloads
from infra import log, outages, temporal
from infra.settings import Settings
from services.services import Services
from stores import pauses, worker_heartbeats
from stores.pauses import PauseRecord
from stores.webhooks import PendingDeliveries, count_pending_deliveries
from systems import System, import_modules, protocol
from systems.protocol import SystemNames

SystemOverview: TypeAlias = protocol.SystemOverview[Services, Settings, WorkByProject]

RECONNECT_MILLISECONDS: Final = 2_000
SEND_TIMEOUT_SECONDS: Final = 10.0
"""A stream whose receiver reads nothing for so long is closed."""
TOO_MANY_STREAMS: Final = "too_many_streams"
GROUPS_SHOWN: Final = 3
QUEUE_WAIT_SECONDS: Final = 60
"""The threshold of the alert `HaulageQueueWaits`."""
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


class QueueStatus(Response):
    """A task queue of the engine."""

    name: str
    system: System
    workers: int = Field(
        description="worker processes that serve it; one that was killed or hangs counts for a minute at most"
    )
    backlog: int = Field(description="what waits there for a worker, about")
    backlog_seconds: float = Field(description="for how long the first of it has waited, about")


class ConcernGroup(Response):
    """What a concern counts of one subject and cause."""

    count: int
    subject: str = Field(description="platform, type of tasks, module or queue; empty where there is no such thing")
    cause: str = Field(description="code of the fault, or a sentence; empty if it is known to the item only")


class Concern(Response):
    """Something that a person should look at."""

    kind: ConcernKind
    count: int = Field(description="how many")
    largest_groups: list[ConcernGroup] = Field(description=f"its {GROUPS_SHOWN} largest, by subject and cause")


class SystemWorkload(Response):
    """The workload of a system."""

    system: System
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
    paused: PauseResponse | None = Field(default=None, description="by whom, since when and why; null while it runs")
    engine_url: str | None = Field(
        default=None, description="its running workflows in Temporal's Web UI; only for the admin key"
    )


class OverviewResponse(Response):
    """The state of the installation, for one project or for all."""

    at: AwareDatetime
    project_id: str | None = Field(description="whose figures these are; null for all projects")
    problem: str | None = Field(
        description="which components do not serve, since when, and what cannot be read; null if all is well"
    )
    components: list[ComponentHealth]
    systems: list[SystemWorkload] = Field(
        description="those that the caller may see (addresses belong to no project) and that can be read at present"
    )
    queues: list[QueueStatus] = Field(description="only for the admin key: all projects share them")


class OverviewReaderAndStreamLimit:
    """The snapshot reader of this process, and its open streams."""

    def __init__(self, services: Services) -> None:
        self.reader = OverviewSnapshotReader(services, import_overviews())
        self.stopping = asyncio.Event()
        self._streams_max = services.settings.api.streams_per_project
        self._streams: Counter[str | None] = Counter()

    @contextmanager
    def count_stream_within_limit(self, project_id: str | None) -> Iterator[None]:
        """Count an open stream of a project.

        Raises:
            QuotaExhausted: The project has as many streams as it may.
        """
        if self._streams[project_id] >= self._streams_max:
            raise QuotaExhausted(
                TOO_MANY_STREAMS,
                f"{self._streams_max} streams of this overview are open in this process, which is the limit.",
                "Close one, or poll GET /v1/overview.",
                violated=[STREAMS_QUOTA],
                retry_after_seconds=5,
            )
        self._streams[project_id] += 1
        try:
            yield
        finally:
            self._streams[project_id] -= 1
            self._streams += Counter()  # removes projects without streams

    async def wait_for_next_snapshot_unless_stopping(self) -> bool:
        """Wait until the next snapshot is due; return False if the process stops instead."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FRESH_SECONDS):
                await self.stopping.wait()
        return not self.stopping.is_set()


CONTEXT = web.AppKey("overview_context", OverviewReaderAndStreamLimit)


def _attach_overview_and_end_of_streams(app: web.Application, services: Services) -> None:
    context = app[CONTEXT] = OverviewReaderAndStreamLimit(services)

    async def end_streams(_app: web.Application) -> None:
        context.stopping.set()

    app.on_shutdown.append(end_streams)


routes = Routes(
    "overview",
    "The health of the components and the workload of every system.",
    attach=_attach_overview_and_end_of_streams,
)


@routes.get("/v1/overview", access=RouteAccess.PROJECTS)
async def read_overview(call: Call) -> OverviewResponse:
    """Read the overview.

    A project sees its own figures, the admin key those of all projects, or of the one that it names. Figures are at
    most a few seconds old; those that take long to count are counted less often. While a component does not serve,
    `problem` says which and since when, and systems whose figures cannot be read are left out.
    """
    return await _read_caller_snapshot(call)


@routes.get(
    "/v1/overview/events",
    access=RouteAccess.PROJECTS,
    media_type="text/event-stream",
    problems={TOO_MANY_STREAMS: QuotaExhausted},
)
async def stream_overview(call: Call) -> web.StreamResponse:
    """Watch the overview by server-sent events.

    Each event is what `GET /v1/overview` answers; there is one every two seconds.
    """
    context = call.request.app[CONTEXT]
    with context.count_stream_within_limit(call.project_filter):
        first = await _read_caller_snapshot(call)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        await response.prepare(call.request)
        call.remove_time_limit()
        await _send_or_time_out(response, f"retry: {RECONNECT_MILLISECONDS}\n\n{_format_server_sent_event(first)}")
        while await context.wait_for_next_snapshot_unless_stopping():
            snapshot = await _read_caller_snapshot(call)
            if not await _is_key_still_valid(call, snapshot):
                break
            await _send_or_time_out(response, _format_server_sent_event(snapshot))
    return response


async def _is_key_still_valid(call: Call, snapshot: OverviewResponse) -> bool:
    """Return whether a stream may go on; it may while keys cannot be read, since then it shows no figures."""
    if components.is_component_silent(snapshot.components, "database"):
        return True
    try:
        await call.request.app[auth.AUTHENTICATOR].authenticate(call.request, call.route)
    except Unauthenticated:
        return False
    except Exception as error:
        if not outages.is_outage(error):
            raise
    return True


async def _read_caller_snapshot(call: Call) -> OverviewResponse:
    return await call.request.app[CONTEXT].reader.read_snapshot(call.project_filter, is_admin=call.caller.is_admin)


def _format_server_sent_event(overview: OverviewResponse) -> str:
    return f"event: overview\ndata: {overview.model_dump_json()}\n\n"


async def _send_or_time_out(response: web.StreamResponse, text: str) -> None:
    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
        await response.write(text.encode())


def import_overviews() -> Mapping[System, SystemOverview]:
    """Import what the overview shows of each system, in the order of the list."""
    return cast("Mapping[System, SystemOverview]", import_modules("api.{}.overview"))


class OverviewSnapshotReader:
    """Read snapshots, each part at most once in some seconds for all callers together.

    Args:
        overviews: The systems to show, in this order.
    """

    def __init__(self, services: Services, overviews: Mapping[System, SystemOverview]) -> None:
        self._services = services
        self._components = CachedRead(partial(components.measure_health_of_all, services))
        self._queues = CachedRead(self._read_queue_statuses, QUEUES_CACHE_SECONDS)
        self._deliveries = CachedRead(partial(count_pending_deliveries, services.database), QUEUES_CACHE_SECONDS)
        self._pauses = CachedRead(partial(pauses.list_pauses_by_subject, services.database))
        self._overviews = overviews
        self._workloads = {
            system: CachedRead(overview.build_workload_counter(services))
            for system, overview in self._overviews.items()
        }

    async def read_pending_deliveries(self) -> PendingDeliveries:
        """Return how many webhooks have not ended, and since when the oldest waits."""
        return await self._deliveries.get_fresh_or_read()

    async def read_components_health(self) -> list[ComponentHealth]:
        """Return the health of every component."""
        return await self._components.get_fresh_or_read()

    async def read_snapshot(self, project_id: str | None, *, is_admin: bool) -> OverviewResponse:
        """Return a snapshot of a project, or of all, with what this caller may see."""
        systems = [system for system, overview in self._overviews.items() if is_admin or overview.HAS_PROJECTS]
        health = await self._components.get_fresh_or_read()
        reads = [self._workloads[system] for system in systems]
        paused: Mapping[str, PauseRecord] | None = None
        workloads: list[WorkByProject | None] = [None] * len(reads)
        queues: list[QueueStatus] = []
        if not components.is_component_silent(health, "database"):
            queues, paused, workloads = await asyncio.gather(
                self._queues.get_fresh_or_read(),
                self._pauses.get_or_none_on_outage(),
                asyncio.gather(*(each.get_or_none_on_outage() for each in reads)),
            )
        now = datetime.now(UTC)
        shown = [
            self._build_workload(system, self._select_workload(project_id, system, each), queues, paused, now)
            for system, each in zip(systems, workloads, strict=True)
            if each is not None and paused is not None
        ]
        if is_admin:
            shown = [
                row.model_copy(update={"engine_url": self._build_engine_url(row.system, project_id)}) for row in shown
            ]
        read = {each.system for each in shown}
        return OverviewResponse(
            at=now,
            project_id=project_id,
            problem=components.describe_outages(health, [system for system in systems if system not in read]),
            components=health,
            systems=shown,
            queues=queues if is_admin else [],
        )

    def _build_workload(
        self,
        system: System,
        workload: CountsAndConcerns,
        queues: list[QueueStatus],
        paused: Mapping[str, PauseRecord],
        now: datetime,
    ) -> SystemWorkload:
        overview = self._overviews[system]
        period = overview.get_failure_count_period(self._services.settings)
        own_queues = [each for each in queues if each.system == system]
        workload = sum_workloads((workload, _derive_concerns(overview, workload, own_queues, paused.get(system), now)))
        return SystemWorkload(
            system=system,
            unit=overview.UNIT,
            running=workload.running.count,
            waiting=workload.waiting.count,
            failed=workload.failed.count,
            failed_since=None if period is None else now - period,
            oldest_running_seconds=workload.running.compute_age_of_oldest(now),
            oldest_waiting_seconds=workload.waiting.compute_age_of_oldest(now),
            oldest_failed_seconds=workload.failed.compute_age_of_oldest(now),
            concerns=[_build_concern_with_largest_groups(kind, workload) for kind in sorted(workload.concerns)],
            paused=build_pause_response(paused.get(system)),
        )

    def _select_workload(self, project_id: str | None, system: System, workloads: WorkByProject) -> CountsAndConcerns:
        """Return the workload of a project; of a system without projects, all of it."""
        if project_id is None or not self._overviews[system].HAS_PROJECTS:
            return sum_workloads(workloads.values())
        return workloads.get(project_id, CountsAndConcerns())

    def _build_engine_url(self, system: System, project_id: str | None) -> str | None:
        ui_url = self._services.settings.engine.ui_url
        if not ui_url:
            return None
        within = project_id if self._overviews[system].HAS_PROJECTS else None
        return temporal.build_running_workflows_url(ui_url, self._services.engine.namespace, system, within)

    async def _read_queue_statuses(self) -> list[QueueStatus]:
        try:
            heartbeats = await worker_heartbeats.list_heartbeats(self._services.database)
            answering = {each.identity for each in heartbeats if not each.is_silent}
            statuses = (_read_queue_status(self._services, name, system, answering) for name, system in QUEUES.items())
            return list(await asyncio.gather(*statuses))
        except Exception as error:  # noqa: BLE001 (the engine is shown to be down; the rest is still worth showing)
            _log.warning("queues_not_read", error=repr(error))
            return []


def _derive_concerns(
    overview: SystemOverview,
    workload: CountsAndConcerns,
    queues: list[QueueStatus],
    pause: PauseRecord | None,
    now: datetime,
) -> CountsAndConcerns:
    """Return the concerns that follow from the figures of a system, its queues and its pause."""
    details = Counter[ConcernKindSubjectAndCause]()
    for queue in queues:
        if not queue.workers:
            details[ConcernKindSubjectAndCause(ConcernKind.NO_WORKER, queue.name)] = 1
        elif queue.backlog_seconds > QUEUE_WAIT_SECONDS:
            details[ConcernKindSubjectAndCause(ConcernKind.QUEUE_WAITS, queue.name)] = 1
    if pause:
        details[ConcernKindSubjectAndCause(ConcernKind.SYSTEM_PAUSED, cause=f"{pause.who}: {pause.reason}")] = 1
    concerns = Counter(detail.kind for detail in details)
    if (workload.waiting.compute_age_of_oldest(now) or 0.0) > overview.STANDSTILL_SECONDS:
        concerns[ConcernKind.WAITING] = workload.waiting.count
    concerns[ConcernKind.FAILED] = workload.failed.count - workload.concerns[ConcernKind.GIVEN_UP]
    return CountsAndConcerns(concerns=+concerns, details=details)


def _build_concern_with_largest_groups(kind: ConcernKind, workload: CountsAndConcerns) -> Concern:
    found = sorted((-count, detail) for detail, count in workload.details.items() if detail.kind is kind)[:GROUPS_SHOWN]
    groups = [ConcernGroup(count=-count, subject=each.subject, cause=each.cause) for count, each in found]
    return Concern(kind=kind, count=workload.concerns[kind], largest_groups=groups)


async def _read_queue_status(services: Services, name: str, system: System, answering: set[str]) -> QueueStatus:
    # Asked of the matching service, which knows pollers and backlog, and not of the visibility store, which is slow.
    answers = await asyncio.gather(*(temporal.describe_queue(services.engine, name, kind) for kind in _POLLER_KINDS))
    workers = {worker for answer in answers for worker in temporal.list_polling_workers(answer)}
    return QueueStatus(
        name=name,
        system=system,
        workers=len(workers & answering),
        backlog=sum(answer.stats.approximate_backlog_count for answer in answers),
        backlog_seconds=max(answer.stats.approximate_backlog_age.ToTimedelta() for answer in answers).total_seconds(),
    )

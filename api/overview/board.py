"""The board: one reading serves everybody who asks within two seconds, and reading never takes much of the time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from api.overview import engine
from api.overview.answers import Concern, Overview, Part, Queue, RoomFigures
from api.shared_reads import CachedRead
from api.systems import SystemApi
from domain.workload import ConcernKind, Workload, Workloads, sum_workloads
from infra import log
from services.services import Services
from systems.names import System

ENGINE_SECONDS: Final = 20.0
"""Describing every task queue is dear to the engine."""

_log = log.get(__name__)


class Board:
    """What this process has read of the whole.

    Args:
        apis: The systems that are shown, in this order.
    """

    def __init__(self, services: Services, apis: Mapping[System, SystemApi]) -> None:
        self._services = services
        self._parts = CachedRead(self._ask_parts)
        self._queues = CachedRead(self._ask_queues, ENGINE_SECONDS)
        self._sources = {system: api.overview for system, api in apis.items()}
        self._workloads = {
            system: CachedRead(source.make_counter(services)) for system, source in self._sources.items()
        }

    async def read(self, project_id: str | None, *, is_admin: bool) -> Overview:
        """The whole, as this caller may see it."""
        systems = [system for system, source in self._sources.items() if is_admin or source.HAS_PROJECTS]
        parts, queues, workloads = await asyncio.gather(
            self._parts.get(),
            self._queues.get(),
            asyncio.gather(*(self._workloads[system].get() for system in systems)),
        )
        now = datetime.now(UTC)
        figures = [
            self._figures(system, self._within(project_id, system, each), queues, now)
            for system, each in zip(systems, workloads, strict=True)
        ]
        if not is_admin:
            return Overview(at=now, project_id=project_id, parts=parts, rooms=figures, queues=[])
        linked = [each.model_copy(update={"engine_url": self._url(each.room, project_id)}) for each in figures]
        return Overview(at=now, project_id=project_id, parts=parts, rooms=linked, queues=queues)

    def _figures(self, system: System, own: Workload, queues: list[Queue], now: datetime) -> RoomFigures:
        source = self._sources[system]
        idle = sum(1 for queue in queues if queue.room == system and not queue.workers)
        concerns = own.concerns + Counter({ConcernKind.NO_WORKER: idle})
        return RoomFigures(
            room=system,
            unit=source.UNIT,
            running=own.running.count,
            waiting=own.waiting.count,
            failed=own.failed.count,
            failed_since=source.failed_since(self._services.settings, now),
            oldest_running_seconds=own.running.seconds(now),
            oldest_waiting_seconds=own.waiting.seconds(now),
            oldest_failed_seconds=own.failed.seconds(now),
            concerns=[Concern(trouble=trouble, count=count) for trouble, count in sorted(concerns.items())],
        )

    def _within(self, project_id: str | None, system: System, workloads: Workloads) -> Workload:
        """The part of a project; all where nothing belongs to projects."""
        if project_id is None or not self._sources[system].HAS_PROJECTS:
            return sum_workloads(workloads.values())
        return workloads.get(project_id, Workload())

    def _url(self, system: System, project_id: str | None) -> str | None:
        ui_url = self._services.settings.engine.ui_url
        if not ui_url:
            return None
        within = project_id if self._sources[system].HAS_PROJECTS else None
        return engine.url(ui_url, self._services.engine.namespace, system, within)

    async def _ask_parts(self) -> list[Part]:
        return list(await asyncio.gather(*(self._ask_part(name) for name in self._services.pings)))

    async def _ask_part(self, name: str) -> Part:
        begun = time.perf_counter()
        fails = await self._services.fails(name)
        milliseconds = None if fails else round((time.perf_counter() - begun) * 1000, 1)
        return Part(name=name, ok=not fails, milliseconds=milliseconds)

    async def _ask_queues(self) -> list[Queue]:
        try:
            return await engine.queues(self._services)
        except Exception as error:  # noqa: BLE001 (the part itself is told to be down; the rest is worth seeing)
            _log.warning("queues_not_read", error=repr(error))
            return []

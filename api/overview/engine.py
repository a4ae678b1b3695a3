"""The engine's side of the overview: who polls its task queues, and its own pages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import quote

from api.overview.answers import Queue
from domain.webhooks import names as webhooks
from infra import pollers, temporal
from services.services import Services
from systems.names import System, import_modules
from systems.protocol import SystemNames

_NAMES: Final = cast("Mapping[System, SystemNames]", import_modules("domain.{}.names"))
QUEUES: Final[Mapping[str, System]] = {
    **{queue: system for system, names in _NAMES.items() for queue in names.QUEUES},
    # Most callbacks are those of downloads.
    webhooks.QUEUE: "downloads",
}
_KINDS = (pollers.WORKFLOWS, pollers.ACTIVITIES)


async def queues(services: Services) -> list[Queue]:
    """How the task queues stand; asked of what matches tasks with workers, not of the engine's index."""
    return list(await asyncio.gather(*(_queue(services, name, system) for name, system in QUEUES.items())))


async def _queue(services: Services, name: str, system: System) -> Queue:
    answers = await asyncio.gather(*(pollers.describe_queue(services.engine, name, kind) for kind in _KINDS))
    workers = {worker for answer in answers for worker in pollers.list_workers(answer)}
    return Queue(
        name=name,
        room=system,
        workers=len(workers),
        backlog=sum(answer.stats.approximate_backlog_count for answer in answers),
        backlog_seconds=max(answer.stats.approximate_backlog_age.ToTimedelta() for answer in answers).total_seconds(),
    )


def url(ui_url: str, namespace: str, system: System, project_id: str | None) -> str:
    """The engine's own page of what runs in a system, or of what a project has there."""
    wanted = f'ExecutionStatus="Running" AND {temporal.ROOM.name}="{system}"'
    if project_id is not None:
        wanted += f' AND {temporal.PROJECT.name}="{project_id}"'
    return f"{ui_url.rstrip('/')}/namespaces/{quote(namespace, safe='')}/workflows?query={quote(wanted, safe='')}"

"""What callers are told of the whole: each part and how it does, each system and what it has to do."""

from __future__ import annotations

from pydantic import AwareDatetime, Field

from api.http.models import Response
from domain.workload import ConcernKind
from systems.names import System


class Part(Response):
    """One of the parts that all rooms stand on."""

    name: str = Field(description="`database`, `engine` or `bucket`")
    ok: bool
    milliseconds: float | None = Field(description="how long its answer took; null where there was none")


class Queue(Response):
    """One of the engine's task queues."""

    name: str
    room: System
    workers: int = Field(description="workers that polled it within the last minutes")
    backlog: int = Field(description="what waits there for a worker, about")
    backlog_seconds: float = Field(description="for how long the first of it has waited, about")


class Concern(Response):
    """Something to look at."""

    trouble: ConcernKind
    count: int = Field(description="how many")


class RoomFigures(Response):
    """What a room has to do."""

    room: System
    unit: str = Field(description="what is counted: `downloads`, `targets`, `slices`, `messages` or `tasks`")
    running: int
    waiting: int
    failed: int
    failed_since: AwareDatetime | None = Field(
        description="since when failures are counted; null where what failed stays until somebody sees to it"
    )
    oldest_running_seconds: float | None = Field(description="for how long the first of them runs; null if none does")
    oldest_waiting_seconds: float | None = Field(description="for how long the first of them waits; null if none does")
    oldest_failed_seconds: float | None = Field(description="how long ago the first of them failed; null if none did")
    concerns: list[Concern] = Field(description="what to look at, without those of which there are none")
    engine_url: str | None = Field(
        default=None, description="what runs there in Temporal's Web UI; only the admin key is told"
    )


class Overview(Response):
    """The whole at a glance, of one project or of all."""

    at: AwareDatetime
    project_id: str | None = Field(description="whose figures these are; null for all projects")
    parts: list[Part]
    rooms: list[RoomFigures] = Field(description="those that the caller may see: addresses belong to no project")
    queues: list[Queue] = Field(description="only the admin key is told: all projects share them")

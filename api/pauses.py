"""Pause and resume whole systems. A paused system begins nothing; what it has begun, it finishes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from aiohttp import web
from pydantic import AwareDatetime, Field

from api.batching import CachedRead
from api.http.models import OperatorRequest, Request, Response
from api.http.routes import Call, RouteAccess, Routes
from domain.faults import Paused
from infra.database import Database
from stores import pauses as store
from stores.pauses import PauseRecord
from systems import SYSTEMS, System

SYSTEM_PAUSED: Final = "system_paused"
CACHE_SECONDS: Final = 1.0
"""How long after a pause other API processes may still begin work."""


class SystemPath(Request):
    """Path of a system."""

    system: System


class PauseResponse(Response):
    """That a system, or a part of one, is paused."""

    paused_at: AwareDatetime | None = Field(description="null where it is not known")
    who: str
    reason: str


class SystemResponse(Response):
    """A system, and whether it is paused."""

    system: System
    paused: PauseResponse | None = Field(description="null while it runs")


class SystemsResponse(Response):
    """All systems."""

    items: list[SystemResponse]


class CachedPauseCheckBySystem:
    """The pauses of systems and of types of tasks that this process knows, at most a second old."""

    def __init__(self, database: Database) -> None:
        self._read_pauses = partial(store.list_pauses_by_subject, database)
        self.invalidate_cached_pauses()

    async def find_pause(self, system: str) -> PauseRecord | None:
        """Return the pause of a system; None while it runs."""
        return (await self._cached.get_fresh_or_read()).get(system)

    async def require_running(self, system: str) -> None:
        """Raise Paused for a system that begins nothing at present."""
        if (pause := await self.find_pause(system)) is not None:
            raise Paused(
                SYSTEM_PAUSED,
                pause.describe(f"{system.capitalize()} are"),
                "Send the request again later.",
            )

    def invalidate_cached_pauses(self) -> None:
        """Read again at the next question, after a change by this process."""
        # A pause holds within this time also where the database is slow.
        self._cached = CachedRead(self._read_pauses, CACHE_SECONDS, kept_max_seconds=CACHE_SECONDS)


CACHE = web.AppKey("pauses", CachedPauseCheckBySystem)

ResumeHook: TypeAlias = Callable[[], Awaitable[None]]
"""Has a system begin at once what waited for its resume, where it would wait for a schedule otherwise."""

RESUME_HOOKS = web.AppKey("resume_hooks", dict[str, ResumeHook])

routes = Routes("systems", "Pause whole systems, and resume them.")


@routes.get("/v1/systems", access=RouteAccess.ADMIN)
async def list_systems(call: Call) -> SystemsResponse:
    """List the systems, each with its pause."""
    paused = await store.list_pauses_by_subject(call.services.database)
    return SystemsResponse(items=[_build_response(system, paused.get(system)) for system in SYSTEMS])


@routes.post("/v1/systems/{system}/pause", access=RouteAccess.ADMIN)
async def pause_system(call: Call, path: SystemPath, body: OperatorRequest) -> SystemResponse:
    """Pause a system: it begins nothing, and finishes what it has begun.

    Requests for downloads and transfers get 503 `system_paused`. No slice of orders is claimed and no cycle of
    addresses begins, while messages are still received. Holds get no task, while tasks are still created, and held
    ones may be set.
    """
    await store.save_pause(call.services.database, path.system, body.who, body.reason)
    return await _forget_cache_and_read_system(call, path.system)


@routes.post("/v1/systems/{system}/resume", access=RouteAccess.ADMIN)
async def resume_system(call: Call, path: SystemPath, body: OperatorRequest) -> SystemResponse:
    """Resume a system, and begin what waited; platforms, cycles and types that were paused by themselves stay so."""
    await store.delete_pause(call.services.database, path.system)
    if (hook := call.request.app[RESUME_HOOKS].get(path.system)) is not None:
        await hook()
    return await _forget_cache_and_read_system(call, path.system)


async def _forget_cache_and_read_system(call: Call, system: System) -> SystemResponse:
    call.request.app[CACHE].invalidate_cached_pauses()
    return _build_response(system, (await store.list_pauses_by_subject(call.services.database)).get(system))


def build_pause_response(pause: PauseRecord | None) -> PauseResponse | None:
    """Build the response about a pause; None for a system that runs."""
    return None if pause is None else PauseResponse(paused_at=pause.paused_at, who=pause.who, reason=pause.reason)


def _build_response(system: System, pause: PauseRecord | None) -> SystemResponse:
    return SystemResponse(system=system, paused=build_pause_response(pause))

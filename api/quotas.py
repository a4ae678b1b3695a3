"""Quotas of a project in all systems: what is allowed and used, and the limits that the administrator sets."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TypeAlias, cast

from pydantic import Field

from api.http.auth import build_missing_to_caller_fault
from api.http.models import Request, Response
from api.http.rates import REQUEST_RATES
from api.http.routes import Call, RouteAccess, Routes
from api.projects import ProjectPath
from domain.quotas import STREAMS_QUOTA, Limit, QuotaLimits, SingleQuotaUsage, TaskBatchLimit
from infra import log
from stores import projects as store
from systems import System, import_modules, protocol

SystemQuotas: TypeAlias = protocol.SystemQuotas[Call, QuotaLimits, SingleQuotaUsage]

routes = Routes("quotas", "What a project may use of each system, and how much of it is used.")


class QuotaResponse(Response):
    """A quota of a project."""

    name: str = Field(description="as settings and refusals call it", examples=["tasks_open"])
    system: System | None = Field(description="null for requests to all systems")
    description: str = Field(description="what is counted")
    limit: int
    default: int = Field(description="the limit of projects for which no other was set")
    used: int | None = Field(
        description="null for a limit of one request, and for streams, which each API process counts"
    )
    resets_in_seconds: int | None = Field(description="seconds until some of it comes back; null if that is unknown")


class ProjectQuotasResponse(Response):
    """All quotas of a project."""

    project_id: str
    items: list[QuotaResponse]


class SetQuotasRequest(Request):
    """The quotas of a project; one that is left out or null is that of the installation."""

    requests_per_minute: Limit | None = None
    downloads_per_minute: Limit | None = None
    downloads_active: Limit | None = None
    download_bytes_per_day: Limit | None = None
    download_rows_per_day: Limit | None = None
    task_types: Limit | None = None
    tasks_open: Limit | None = None
    tasks_per_request: TaskBatchLimit | None = None
    tasks_per_day: Limit | None = None
    transfer_jobs_open: Limit | None = None
    transfer_targets_open: Limit | None = None
    transfer_targets_per_day: Limit | None = None
    transfer_bytes_per_day: Limit | None = None
    platforms: Limit | None = None
    platform_requests_per_day: Limit | None = None


def import_quotas() -> Mapping[System, SystemQuotas]:
    """Import the quotas of each system, in the order of the list."""
    return cast("Mapping[System, SystemQuotas]", import_modules("api.{}.quotas"))


@routes.get("/v1/quotas", access=RouteAccess.PROJECT)
async def read(call: Call) -> ProjectQuotasResponse:
    """Read the quotas of the project.

    A request beyond one is refused with 429 `quota_exceeded` and `Retry-After`; `violated-policies` names the quotas.
    Requests are counted by each API process for itself: the figure is that of the process that answers.
    """
    return await _read_usage_and_build_response(call, call.project_id, call.quotas)


@routes.get("/v1/projects/{project_id}/quotas", access=RouteAccess.OWNER)
async def read_project_quotas(call: Call, path: ProjectPath) -> ProjectQuotasResponse:
    """Read the quotas of one project."""
    async with call.services.database.session() as session:
        project = await store.find_project(session, path.project_id)
    if project is None:
        raise build_missing_to_caller_fault()
    return await _read_usage_and_build_response(
        call, path.project_id, call.services.settings.quotas.with_overrides(project.quotas)
    )


@routes.put("/v1/projects/{project_id}/quotas", access=RouteAccess.ADMIN)
async def set_project_quotas(call: Call, path: ProjectPath, body: SetQuotasRequest) -> ProjectQuotasResponse:
    """Set the quotas of one project.

    They replace those that were set before, and apply to the next request. What is used beyond a lower limit stays.
    """
    async with call.services.database.session() as session:
        project = await store.find_project(session, path.project_id, lock=True)
        if project is None:
            raise build_missing_to_caller_fault()
        project.quotas = body.model_dump(exclude_none=True)
        limits = call.services.settings.quotas.with_overrides(project.quotas)
    log.get(__name__).info("quotas_set", project_id=path.project_id, quotas=sorted(body.model_dump(exclude_none=True)))
    return await _read_usage_and_build_response(call, path.project_id, limits)


async def _read_usage_and_build_response(call: Call, project_id: str, limits: QuotaLimits) -> ProjectQuotasResponse:
    rates = call.request.app[REQUEST_RATES]
    found = [_build_quota_response(call, limits, None, rates.read_usage(project_id, limits.requests_per_minute))]
    for system, quotas in import_quotas().items():
        usages = await quotas.read_usage(call, project_id, limits)
        found += [_build_quota_response(call, limits, system, usage) for usage in usages]
    found.append(_build_streams_quota_response(call.services.settings.api.streams_per_project))
    return ProjectQuotasResponse(project_id=project_id, items=found)


def _build_streams_quota_response(limit: int) -> QuotaResponse:
    return QuotaResponse(
        name=STREAMS_QUOTA,
        system=None,
        description="open streams of downloads, and as many of the overview, in each API process",
        limit=limit,
        default=limit,
        used=None,
        resets_in_seconds=None,
    )


def _build_quota_response(
    call: Call, limits: QuotaLimits, system: System | None, usage: SingleQuotaUsage
) -> QuotaResponse:
    return QuotaResponse(
        name=usage.name,
        system=system,
        description=QuotaLimits.model_fields[usage.name].description or "",
        limit=getattr(limits, usage.name),
        default=getattr(call.services.settings.quotas, usage.name),
        used=usage.used,
        resets_in_seconds=None if usage.resets_in_seconds is None else max(1, ceil(usage.resets_in_seconds)),
    )

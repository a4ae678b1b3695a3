"""Platforms: set them up, and see how each of them goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from pydantic import Field
from temporalio.client import ScheduleActionExecutionStartWorkflow as ScheduledRun
from temporalio.service import RPCError, RPCStatusCode

from api.http import pagination
from api.http.models import Request
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.orders import answers
from api.orders.answers import ListedPlatform, ShownPlatform
from api.orders.backfills import newest_backfill
from api.orders.room import PlatformPath, routes
from clients.platforms import day_bucket, rate_bucket
from domain.faults import Conflict, FaultRecord, Invalid, Missing
from domain.orders import confirmation, known_platforms, names, watermarks, windows
from domain.orders.capability import Capability
from domain.orders.config import DEFAULT_LEVEL
from infra import starts
from infra.database import Session
from infra.limits import Limiter
from stores.orders import ledger, platforms, slices
from stores.orders import platforms as store
from stores.orders.platforms import NO_OPTIONS, PlatformSetup, PlatformState
from stores.orders.slices import SliceCounts
from stores.shared import projects
from stores.tables.orders import OrderPlatform
from workflows.orders import handle

HOLES_SHOWN = 100
NEXT_SHOWN = 5


class Setup(Request):
    """One account at a platform."""

    project_id: str = Field(max_length=64, description="whose orders they are; its webhook secret signs alarms")
    kind: str = Field(max_length=40, description="a kind that is built in, or the name of your own `capability`")
    shop: str = Field(min_length=1, max_length=200)
    base_url: str = Field(max_length=2_000, description="where the platform's API begins")
    capability: Capability | None = Field(default=None, description="what it can do, where its kind is not built in")
    notify_url: str | None = Field(
        default=None,
        max_length=8_000,
        description="who is told of failed slices and sweeps, unserved platforms and wrong clocks",
    )


class PlatformsWanted(PageQuery):
    """Which platforms to list."""

    project_id: str | None = Field(default=None, max_length=64, description="only those of this project")


@routes.get("/v1/platforms", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse_platforms(call: Call, query: PlatformsWanted) -> PageResponse[ListedPlatform]:
    """List the platforms, newest first."""
    async with call.services.database.session() as session:
        rows = await store.list_page(session, query.project_id, query.after, query.limit)
        counts = await slices.count_by_platform(session, [row.platform for row in rows])
    return pagination.build_page(
        rows,
        query.limit,
        lambda row: ListedPlatform(**answers.known(row, counts.get(row.platform, SliceCounts()))),
        lambda row: (row.created_at, row.platform),
    )


@routes.put(
    "/v1/platforms/{platform}",
    access=Access.ADMIN,
    status=HTTPStatus.OK,
    problems={
        "not_found": Missing,
        "platform_invalid": Invalid,
        "config_invalid": Invalid,
        "address_denied": Invalid,
        "invalid_url": Invalid,
        "platform_begun": Conflict,
    },
)
async def set_up(call: Call, path: PlatformPath, body: Setup) -> ShownPlatform:
    """Set up a platform, or change where it is and who is told.

    Its schedule starts at once. Kind, shop and project stay once orders were claimed.
    """
    _check(call, path.platform, body)
    async with call.services.database.session() as session:
        if await projects.find(session, body.project_id) is None:
            raise Missing("not_found", f"There is no project {body.project_id!r}.", "Make it with POST /v1/projects.")
        before = await store.find(session, path.platform, lock=True)
        if before is not None and before.starts_at is not None:
            _check_same(before, body)
        notify = None if body.notify_url is None else call.services.sealer.seal(body.notify_url).token
        # As it was sent: what it leaves out follows our defaults, also those of later versions.
        record = None if body.capability is None else body.capability.model_dump(mode="json", exclude_unset=True)
        setup = PlatformSetup(body.project_id, body.kind, body.shop, body.base_url, record, notify)
        row = store.put(session, path.platform, setup, before)
        levels = await platforms.load_options(session, [DEFAULT_LEVEL, path.platform])
        here = platforms.build_state(row, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(path.platform, NO_OPTIONS))
        here.check()
    await handle.ensure_platform(call.services.engine, path.platform, body.project_id)
    return await read_platform(call, path)


@routes.get("/v1/platforms/{platform}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_platform(call: Call, path: PlatformPath) -> ShownPlatform:
    """See how a platform goes: marks, lag, holes, what is next, and how much of its rate is used."""
    limiter = Limiter(call.services.database)
    async with call.services.database.session() as session:
        here = await platforms.load(session, path.platform)
        row, now = here.row, await ledger.database_now(session)
        platform_now = None if row.skew_seconds is None else now + timedelta(seconds=row.skew_seconds)
        known = await _holes(session, row)
        counts = await slices.count_by_platform(session, [row.platform])
        late = await slices.read_lateness(session, row.platform, now)
        backfill = await newest_backfill(session, row.platform)
    lag = None
    if platform_now is not None and row.complete_to is not None:
        lag = (platform_now - row.complete_to).total_seconds()
    schedule = await _schedule(call, row.platform)
    return ShownPlatform(
        **answers.known(row, counts.get(row.platform, SliceCounts())),
        platform_now=platform_now,
        zone_minutes=here.capability.zone_minutes,
        skew_seconds=row.skew_seconds,
        clock_fault=_fault(row.clock_fault),
        credentials_fault=_fault(row.credentials_fault),
        lag_seconds=lag,
        holes=known[:HOLES_SHOWN],
        next_slices=_next(here),
        requests_in_window=await limiter.count(rate_bucket(row.platform)),
        requests_today=await limiter.count(day_bucket(row.platform)),
        settle_lag=here.settings.settle_lag,
        proposed_settle_lag=confirmation.propose_settle_lag(here.settings.settle_lag, late.late_seconds),
        missed=late.missed,
        backfill=backfill,
        paused=schedule.paused,
        note=schedule.note,
        next_runs=schedule.next_runs,
        workflow_id=schedule.newest,
    )


async def _holes(session: Session, row: OrderPlatform) -> list[windows.TimeWindow]:
    claimed = ledger.to_watermarks(row)
    if claimed is None:
        return []
    return watermarks.find_holes(claimed, await slices.list_unfinished(session, row.platform, 10 * HOLES_SHOWN))


def _fault(noted: Mapping[str, Any] | None) -> FaultRecord | None:
    return None if noted is None else FaultRecord.model_validate(noted)


def _check(call: Call, platform: str, body: Setup) -> None:
    if platform == DEFAULT_LEVEL:
        raise Invalid(
            "platform_invalid", "The number `default` stands for the shared configuration.", "Choose another number."
        )
    if body.capability is None and body.kind not in known_platforms.KNOWN_PLATFORMS:
        kinds = ", ".join(sorted(known_platforms.KNOWN_PLATFORMS))
        raise Invalid(
            "platform_invalid",
            f"There is no built-in kind {body.kind!r}; there are {kinds}.",
            "Choose one of them, or send a `capability`.",
        )
    record = body.capability or known_platforms.KNOWN_PLATFORMS[body.kind]
    if record.kind != body.kind:
        raise Invalid(
            "platform_invalid",
            f"The kind is {body.kind!r}, its capability is that of {record.kind!r}.",
            "Give both the same name.",
        )
    call.services.http.check(body.base_url)
    if record.access.renewal is not None and not record.access.renewal.url.startswith("/"):
        call.services.http.check(record.access.renewal.url)
    if body.notify_url is not None:
        call.services.http.check(body.notify_url)


def _check_same(row: OrderPlatform, body: Setup) -> None:
    before, now = (row.project_id, row.kind, row.shop), (body.project_id, body.kind, body.shop)
    if before != now:
        raise Conflict(
            "platform_begun",
            f"Platform {row.platform} has orders of project {before[0]}, kind {before[1]}, shop {before[2]}.",
            "Set up the other account under another number.",
        )


def _next(here: PlatformState) -> list[windows.TimeWindow]:
    """The next slices of the present, whether or not they have settled."""
    claimed_to = here.row.claimed_to
    if claimed_to is None:
        return []
    until = claimed_to + timedelta(seconds=here.settings.interval * NEXT_SHOWN)
    return windows.cut_whole_slices(claimed_to, until, here.settings.interval, NEXT_SHOWN)


@dataclass(frozen=True, slots=True)
class _Schedule:
    """How a platform's schedule stands."""

    paused: bool = False
    note: str = ""
    next_runs: list[datetime] = field(default_factory=list)
    newest: str | None = None
    """The id of its newest run."""


async def _schedule(call: Call, platform: str) -> _Schedule:
    try:
        description = await call.services.engine.get_schedule_handle(names.schedule_id(platform)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return _Schedule()
        raise
    state, info = description.schedule.state, description.info
    runs = [each.action for each in info.recent_actions]
    newest = next((each.workflow_id for each in reversed(runs) if isinstance(each, ScheduledRun)), None)
    return _Schedule(state.paused, state.note or "", starts.list_next_runs(description), newest)

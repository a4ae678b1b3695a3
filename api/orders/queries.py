"""Routes that read: platforms, slices, backfills, reports and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from temporalio.client import ScheduleActionExecutionStartWorkflow as ScheduledRun
from temporalio.client import WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from api import webhooks
from api.http import pagination
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from api.orders import responses
from api.orders.context import PlatformPath, routes
from api.orders.requests import BackfillPath, BackfillsQuery, PlatformsQuery, ReportDayPath, SlicePath, SlicesQuery
from api.orders.responses import (
    BackfillResponse,
    ListedPlatformResponse,
    PlatformResponse,
    ReportDayResponse,
    ReportResponse,
    SliceDetailsResponse,
    SliceResponse,
    build_backfill_response,
)
from api.webhooks import WebhookDeliveryResponse
from clients.platforms import build_day_bucket_name, build_rate_bucket_name
from domain.faults import FaultRecord, Invalid, Missing
from domain.orders import confirmation, names, windows
from domain.orders.activity_models import OrderReportFigures, SliceStatus
from domain.orders.names import CONTENT_TYPE
from domain.webhooks import WebhookEventSubject
from infra import outages, starts
from infra.database import Session
from infra.limits import DatabaseLimiter
from infra.objects import ObjectMissing
from stores.orders import backfills, ledger, platforms, slices
from stores.orders.platforms import PlatformWithSettingsInForce
from stores.orders.slices import OpenAndFailedSliceCounts, SliceFilter
from stores.tables.orders import OrderPlatform, OrderSlice
from workflows.orders import handle

GAPS_SHOWN = 100
NEXT_SHOWN = 5

LINK_SECONDS: Final = 900
QUERY_TIMEOUT: Final = timedelta(seconds=2)


@routes.get("/v1/platforms", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_platforms(call: Call, query: PlatformsQuery) -> PageResponse[ListedPlatformResponse]:
    """List the platforms, newest first."""
    async with call.services.database.session() as session:
        rows = await platforms.list_platform_page_plus_one(session, query.project_id, query.after, query.limit)
        listed = [row.platform for row in rows]
        counts = await slices.count_open_and_failed_by_platform(session, listed)
        configured = await platforms.load_newest_options(session, listed)
    paused = await _list_paused_schedules_unless_unknown(call)
    return pagination.build_page(
        rows,
        query.limit,
        lambda row: ListedPlatformResponse(
            **responses.build_platform_fields(row, counts.get(row.platform, OpenAndFailedSliceCounts())),
            is_configured=row.platform in configured,
            is_paused=None if paused is None else names.build_cycle_schedule_id(row.platform) in paused,
        ),
        lambda row: (row.created_at, row.platform),
    )


@routes.get("/v1/platforms/{platform}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_platform(call: Call, path: PlatformPath) -> PlatformResponse:
    """Read a platform: watermarks, lag, gaps, next slices, and how much of its rate is used."""
    limiter = DatabaseLimiter(call.services.database)
    async with call.services.database.session() as session:
        state = await platforms.load_platform_with_settings(session, path.platform)
        row, now = state.row, await ledger.read_database_time(session)
        platform_now = None if row.skew_seconds is None else now + timedelta(seconds=row.skew_seconds)
        known = await _find_incomplete_windows(session, row)
        counts = await slices.count_open_and_failed_by_platform(session, [row.platform])
        configured = await platforms.load_newest_options(session, [row.platform])
        late = await slices.load_late_orders_from_sweeps(session, row.platform, now)
        backfill = await _find_newest_backfill(session, row.platform)
    lag = None
    if platform_now is not None and row.complete_to is not None:
        lag = (platform_now - row.complete_to).total_seconds()
    schedule = await _read_schedule_state_from_engine(call, row.platform)
    return PlatformResponse(
        **responses.build_platform_fields(row, counts.get(row.platform, OpenAndFailedSliceCounts())),
        is_configured=row.platform in configured,
        platform_now=platform_now,
        zone_minutes=state.capability.compute_zone_minutes(state.platform_now.date()),
        skew_seconds=row.skew_seconds,
        clock_fault=_parse_stored_fault(row.clock_fault),
        credentials_fault=_parse_stored_fault(row.credentials_fault),
        lag_seconds=lag,
        gaps=known[:GAPS_SHOWN],
        next_slices=_compute_next_live_slices(state),
        requests_in_window=await limiter.read_spent_amount(build_rate_bucket_name(row.platform)),
        requests_today=await limiter.read_spent_amount(build_day_bucket_name(row.platform)),
        settle_lag=state.settings.settle_lag,
        proposed_settle_lag=confirmation.propose_settle_lag_if_too_short(state.settings.settle_lag, late.late_seconds),
        orders_missed=late.missed,
        backfill=backfill,
        is_paused=schedule.is_paused,
        note=schedule.note,
        next_runs=schedule.next_runs,
        workflow_id=schedule.newest,
    )


@routes.get("/v1/platforms/{platform}/slices", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_slices(call: Call, path: PlatformPath, query: SlicesQuery) -> PageResponse[SliceResponse]:
    """List a platform's slices, latest first; `state=failed` is the failed set."""
    filters = SliceFilter(
        path.platform,
        state=query.state,
        reread=query.reread,
        is_stale=query.stale is not None,
        has_failed_sweep=query.sweep is not None,
        code=query.cause,
        ends_after=query.start,
        begins_before=query.end,
    )
    after = query.after and (query.after[0], pagination.parse_numeric_id_or_zero(query.after[1]))
    async with call.services.database.session() as session:
        await platforms.load_platform_with_settings(session, path.platform)
        rows = await slices.list_slice_page_plus_one(session, filters, after, query.limit)
    return pagination.build_page(
        rows, query.limit, responses.build_slice_response, lambda row: (row.start_at, str(row.slice_id))
    )


@routes.get("/v1/platforms/{platform}/slices/{slice}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_slice(call: Call, path: SlicePath) -> SliceDetailsResponse:
    """Read a slice of the ledger, and of one that is being read, what was tried and when it is tried again."""
    async with call.services.database.session() as session:
        row = await require_slice(session, path)
    return responses.build_slice_details(row, await _query_slice_status_if_being_read(call, row))


async def _query_slice_status_if_being_read(call: Call, row: OrderSlice) -> SliceStatus | None:
    """Return the status of the workflow that reads a slice; None if none does, or no worker answers in time."""
    has_ended = any((row.done_at, row.skipped_at, row.split_at)) or (row.failed_at and row.holder is None)
    if row.reread_since is None and has_ended:
        return None
    # A holder is the id of the workflow, a slash, and the attempt.
    reader = (row.holder if row.reread_since is None else row.reread_holder) or ""
    workflow_id = reader.rpartition("/")[0] or names.build_slice_workflow_id(row.platform, ledger.build_window(row))
    try:
        return await handle.query_slice_status(call.services.engine, workflow_id, QUERY_TIMEOUT)
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return None


@routes.get(
    "/v1/platforms/{platform}/backfills",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "cursor_invalid": Invalid},
)
async def list_backfills(call: Call, path: PlatformPath, query: BackfillsQuery) -> PageResponse[BackfillResponse]:
    """List the backfills of a platform, newest first."""
    async with call.services.database.session() as session:
        await platforms.load_platform_with_settings(session, path.platform)
        rows = await backfills.list_backfill_page_plus_one(
            session, path.platform, query.state, query.after, query.limit
        )
    return pagination.build_page(
        rows, query.limit, build_backfill_response, lambda row: (row.asked_at, row.backfill_id)
    )


@routes.get(
    "/v1/platforms/{platform}/backfills/{backfill_id}", access=RouteAccess.ADMIN, problems={"not_found": Missing}
)
async def read_backfill(call: Call, path: BackfillPath) -> BackfillResponse:
    """Read the progress or the end of a backfill."""
    async with call.services.database.session() as session:
        row = await backfills.find_backfill(session, path.platform, path.backfill_id)
    if row is None:
        raise Missing(
            "not_found",
            f"Platform {path.platform} has no backfill {path.backfill_id}.",
            f"GET /v1/platforms/{path.platform}/backfills lists those that there are.",
        )
    return build_backfill_response(row)


@routes.get(
    "/v1/platforms/{platform}/reports",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "cursor_invalid": Invalid},
)
async def list_report_days(call: Call, path: PlatformPath, query: PageQuery) -> PageResponse[ReportDayResponse]:
    """List the days of which there is a report, newest first."""
    async with call.services.database.session() as session:
        await platforms.require_platform(session, path.platform)
    folder, end = names.build_report_manifest_key(names.build_report_workbook_key(path.platform, "\0")).split("\0")
    keys = [each.key for each in await call.services.objects.list(folder) if each.key.endswith(end)]
    days = sorted((date.fromisoformat(key.removeprefix(folder).removesuffix(end)) for key in keys), reverse=True)
    if query.after is not None:
        last = query.after[0].date()
        days = [day for day in days if day < last]
    return pagination.build_page(
        days[: query.limit + 1],
        query.limit,
        lambda day: ReportDayResponse(platform=path.platform, day=day),
        lambda day: (datetime.combine(day, time(), UTC), day.isoformat()),
    )


@routes.get("/v1/platforms/{platform}/reports/{day}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_report(call: Call, path: ReportDayPath) -> ReportResponse:
    """Read the figures of the last report of a day."""
    key = names.build_report_workbook_key(path.platform, path.day.isoformat())
    try:
        report = OrderReportFigures.model_validate_json(
            await call.services.objects.get(names.build_report_manifest_key(key))
        )
    except ObjectMissing:
        raise Missing(
            "not_found",
            f"There is no report of {path.day} for platform {path.platform} yet.",
            "POST …/reports makes one; it takes as long as reading the day.",
        ) from None
    url = await call.services.objects.presign_download(
        key,
        expires_seconds=LINK_SECONDS,
        file_name=f"orders-{path.platform}-{path.day}.xlsx",
        content_type=CONTENT_TYPE,
    )
    return ReportResponse(**report.model_dump(exclude={"key"}), url=url)


@routes.get(
    "/v1/platforms/{platform}/deliveries",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "cursor_invalid": Invalid},
)
async def list_deliveries(call: Call, path: PlatformPath, query: PageQuery) -> PageResponse[WebhookDeliveryResponse]:
    """List what was sent to the `notify_url` of a platform, newest first.

    These are alarms about slices and backfills that failed, and about what keeps the platform from being fetched.
    """
    return await webhooks.list_deliveries(
        call, await load_project_id_of_platform(call, path), build_webhook_owner(path), query
    )


async def require_slice(session: Session, path: SlicePath, *, lock: bool = False) -> OrderSlice:
    """Return a slice's row.

    Raises:
        Missing: The platform has no such slice.
    """
    row = await ledger.find_slice(session, path.platform, path.window, lock=lock)
    if row is None:
        raise build_missing_slice_fault(path.platform, path.slice)
    return row


def build_missing_slice_fault(platform: str, name: str) -> Missing:
    """Build the fault for an id that names no slice of the platform."""
    return Missing(
        "not_found",
        f"Platform {platform} has no slice {name}.",
        f"GET /v1/platforms/{platform}/slices lists those that there are; one that was split has halves instead.",
    )


async def load_project_id_of_platform(call: Call, path: PlatformPath) -> str:
    async with call.services.database.session() as session:
        return (await platforms.load_platform_with_settings(session, path.platform)).row.project_id


def build_webhook_owner(path: PlatformPath) -> WebhookEventSubject:
    return WebhookEventSubject(system=names.SYSTEM, id=path.platform)


async def _find_incomplete_windows(session: Session, row: OrderPlatform) -> list[windows.TimeWindow]:
    claimed = ledger.build_watermarks(row)
    if claimed is None:
        return []
    return windows.find_incomplete_windows(
        claimed, await slices.list_oldest_unfinished_windows(session, row.platform, 10 * GAPS_SHOWN)
    )


def _parse_stored_fault(noted: Mapping[str, Any] | None) -> FaultRecord | None:
    return None if noted is None else FaultRecord.model_validate(noted)


def _compute_next_live_slices(state: PlatformWithSettingsInForce) -> list[windows.TimeWindow]:
    """Return the next live slices, whether or not they have settled."""
    claimed_to = state.row.claimed_to
    if claimed_to is None:
        return []
    until = claimed_to + timedelta(seconds=state.settings.interval * NEXT_SHOWN)
    return windows.split_into_whole_slices(claimed_to, until, state.settings.interval, NEXT_SHOWN)


async def _list_paused_schedules_unless_unknown(call: Call) -> set[str] | None:
    """List the paused schedules; None where the engine does not answer in time, which is no reason to list nothing."""
    try:
        return await starts.list_paused_schedules(call.services.engine, QUERY_TIMEOUT)
    except RPCError:
        return None


@dataclass(frozen=True, slots=True)
class _PlatformScheduleState:
    """State of a platform's schedule."""

    is_paused: bool = False
    note: str = ""
    next_runs: list[datetime] = field(default_factory=list)
    newest: str | None = None
    """The workflow id of its newest run."""


async def _read_schedule_state_from_engine(call: Call, platform: str) -> _PlatformScheduleState:
    try:
        description = await call.services.engine.get_schedule_handle(names.build_cycle_schedule_id(platform)).describe()
    except RPCError as error:
        if outages.is_workflow_or_schedule_missing(error):
            return _PlatformScheduleState()
        raise
    state, info = description.schedule.state, description.info
    runs = [each.action for each in info.recent_actions]
    newest = next((each.workflow_id for each in reversed(runs) if isinstance(each, ScheduledRun)), None)
    return _PlatformScheduleState(state.paused, state.note or "", starts.list_next_run_times(description), newest)


async def _find_newest_backfill(session: Session, platform: str) -> BackfillResponse | None:
    """Return the newest backfill, if there is one."""
    row = await backfills.find_newest_backfill(session, platform)
    return None if row is None else build_backfill_response(row)

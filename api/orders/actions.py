"""Actions on platforms: pause, resume, trigger and remove one; start backfills and reports."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from secrets import token_hex

from temporalio.client import ScheduleHandle

from api import webhooks
from api.http.models import OperatorRequest
from api.http.routes import Call, RouteAccess
from api.orders.context import PlatformPath, routes
from api.orders.queries import build_webhook_owner, load_project_id_of_platform, read_backfill
from api.orders.requests import BackfillPath, BackfillRequest, PlatformDeliveryPath, ReportRequest
from api.orders.responses import (
    BackfillResponse,
    PlatformScheduleResponse,
    RemovedPlatformResponse,
    ReportStartedResponse,
    build_backfill_response,
)
from api.webhooks import WebhookDeliveryResponse
from domain.faults import Conflict, Invalid, Missing
from domain.orders import days, names
from domain.orders.activity_models import BackfillInput, ReportInput
from infra import starts
from stores.orders import backfills, ledger, platforms, slices
from workflows.orders import handle

UNFINISHED_MAX = 1_000
"""Unfinished slices whose readings are stopped with their platform; far fewer are claimed ahead."""


@routes.post("/v1/platforms/{platform}/pause", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def pause_platform(call: Call, path: PlatformPath, body: OperatorRequest) -> PlatformScheduleResponse:
    """Pause a platform, its running cycle too: no slice is claimed or begun; those that are being read are finished.

    The same as pausing its schedule in the Temporal Web UI.
    """
    schedule = await _find_or_create_schedule(call, path)
    await starts.set_schedule_paused(schedule, f"{body.who}: {body.reason}", is_paused=True)
    return await _build_schedule_response(path, schedule)


@routes.post(
    "/v1/platforms/{platform}/resume",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "platform_not_configured": Conflict},
)
async def resume_platform(call: Call, path: PlatformPath, body: OperatorRequest) -> PlatformScheduleResponse:
    """Resume a paused platform; what has settled meanwhile is claimed at once.

    One that was set up paused is configured first, if only by an empty configuration: its beginning is kept for good.
    """
    schedule = await _find_or_create_schedule(call, path)
    await _require_configured_if_paused_since_setup(call, await _build_schedule_response(path, schedule))
    await starts.set_schedule_paused(schedule, f"{body.who}: {body.reason}", is_paused=False)
    await schedule.trigger()
    return await _build_schedule_response(path, schedule)


@routes.post(
    "/v1/platforms/{platform}/trigger",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "platform_paused": Conflict, "platform_not_configured": Conflict},
)
async def trigger_cycle(call: Call, path: PlatformPath) -> PlatformScheduleResponse:
    """Claim now what has settled, unless a run is under way, which does so anyway."""
    schedule = await _find_or_create_schedule(call, path)
    standing = await _build_schedule_response(path, schedule)
    if standing.is_paused:
        await _require_configured_if_paused_since_setup(call, standing)
        hint = f"Resume it: POST /v1/platforms/{path.platform}/resume."
        raise Conflict("platform_paused", f"Platform {path.platform} is paused and claims nothing.", hint)
    await schedule.trigger()
    return standing


@routes.post(
    "/v1/platforms/{platform}/remove",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "platform_not_paused": Conflict},
)
async def remove_platform(call: Call, path: PlatformPath, body: OperatorRequest) -> RemovedPlatformResponse:
    """Remove a paused platform: its schedule, its ledger of slices, its backfills and its configuration.

    Its orders stay, and are listed as before. Readings that are under way are stopped. Where the engine failed midway,
    the same request again completes the removal.
    """
    if await _complete_interrupted_removal(call, path):
        return RemovedPlatformResponse(platform=path.platform, slices_stopped=0)
    schedule = await _find_or_create_schedule(call, path)
    description = await schedule.describe()
    if not description.schedule.state.paused:
        hint = f"Pause it first: POST /v1/platforms/{path.platform}/pause."
        raise Conflict("platform_not_paused", f"Platform {path.platform} runs.", hint)
    rereads = await backfills.list_running_backfills(call.services.database)
    async with call.services.database.session() as session:
        await platforms.lock_options_until_commit(session)
        row = (await platforms.load_platform_with_settings(session, path.platform, lock=True)).row
        unfinished = await slices.list_oldest_unfinished_windows(session, path.platform, UNFINISHED_MAX)
        await platforms.delete_platform_data_and_blank_row(session, row)
    # The rows go first: without its schedule a platform that is there gets another one.
    running = [each.workflow_id for each in rereads if each.platform == path.platform]
    await handle.terminate_workflows_and_delete_schedule(call.services.engine, path.platform, unfinished, running)
    return RemovedPlatformResponse(platform=path.platform, slices_stopped=len(unfinished))


@routes.post(
    "/v1/platforms/{platform}/deliveries/{delivery_id}/redeliver",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "seal_unreadable": Conflict},
)
async def redeliver_webhook(call: Call, path: PlatformDeliveryPath) -> WebhookDeliveryResponse:
    """Send a delivery again, now.

    It keeps its `webhook-id` and its body, and starts with its first attempt: whether it is still being tried, has
    arrived, has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver_webhook(
        call, await load_project_id_of_platform(call, path), build_webhook_owner(path), path.delivery_id
    )


@routes.post(
    "/v1/platforms/{platform}/backfill",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "window_invalid": Invalid, "backfill_running": Conflict},
)
async def start_backfill(call: Call, path: PlatformPath, body: BackfillRequest) -> BackfillResponse:
    """Read the complete slices of a time again; no watermark moves.

    The response is the record of the backfill, with its progress and its end. A time that is already being read again
    has one record, which is returned.
    """
    window = body.window
    async with call.services.database.session() as session:
        platform = (await platforms.load_platform_with_settings(session, path.platform)).row
        if not await ledger.count_rereadable_slices(session, path.platform, window.start, window.end):
            raise Invalid(
                "window_invalid",
                f"No slice of {window.start.isoformat()} to {window.end.isoformat()} is complete, so that none can be "
                "read again.",
                "Choose a time before `complete_to`; slices that are open are read by themselves, failed ones by redo.",
            )
    order = BackfillInput(
        platform=path.platform,
        project_id=platform.project_id,
        backfill_id=token_hex(8),
        window=window,
        requested_by=(body.who or "").strip() or ("the console" if call.caller.until else "the admin key"),
        requested_at=datetime.now(UTC),
    )
    workflow_id = names.build_backfill_workflow_id(path.platform, window)
    if not await handle.start_backfill(call.services.engine, order):
        return await _require_running_backfill(call, workflow_id)
    # The workflow does the same first: a caller who has this response finds the record, even if no worker runs.
    await backfills.insert_backfill_if_new(call.services.database, order, workflow_id)
    return await read_backfill(call, BackfillPath(platform=path.platform, backfill_id=order.backfill_id))


@routes.post(
    "/v1/platforms/{platform}/reports",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "day_invalid": Invalid},
)
async def start_report(call: Call, path: PlatformPath, body: ReportRequest) -> ReportStartedResponse:
    """Compare a past day with the platform: counts by hour, and the ids that differ.

    The day is that of the platform's own zone; the part of it that is not complete is left out. For the same day again,
    the report is made anew, unless it is being made.
    """
    async with call.services.database.session() as session:
        state = await platforms.load_platform_with_settings(session, path.platform)
    row, zone_minutes = state.row, state.capability.compute_zone_minutes(body.day)
    window = days.find_comparable_part_of_day(body.day, zone_minutes, ledger.build_watermarks(row), state.platform_now)
    order = ReportInput(
        platform=path.platform,
        day=body.day,
        window=window,
        zone_minutes=zone_minutes,
        complete_to=row.complete_to,
    )
    workflow_id = await handle.start_report(call.services.engine, row.project_id, order)
    return ReportStartedResponse(platform=path.platform, day=body.day, workflow_id=workflow_id)


async def _complete_interrupted_removal(call: Call, path: PlatformPath) -> bool:
    """Return whether the rows of a platform were removed and its schedule was not, which it is now."""
    async with call.services.database.session() as session:
        row = await platforms.find_platform_including_removed(session, path.platform)
    is_removed = row is not None and row.removed_at is not None
    return is_removed and await handle.terminate_workflows_and_delete_schedule(call.services.engine, path.platform)


async def _find_or_create_schedule(call: Call, path: PlatformPath) -> ScheduleHandle:
    """Return a platform's schedule; create it if the engine has lost it."""
    async with call.services.database.session() as session:
        row = await platforms.require_platform(session, path.platform)
    return await handle.find_or_create_cycle_schedule(call.services.engine, row.platform, row.project_id)


async def _require_configured_if_paused_since_setup(call: Call, known: PlatformScheduleResponse) -> None:
    """Refuse to begin with defaults where a platform was set up paused, to be configured, and was not.

    Raises:
        Conflict: It would begin at a time that was not chosen, which is kept for good.
    """
    if not known.is_paused or known.note != handle.SETUP_PAUSE_NOTE:
        return
    async with call.services.database.session() as session:
        row = await platforms.require_platform(session, known.platform)
        levels = await platforms.load_newest_options(session, [known.platform])
    if row.starts_at is None and not levels:
        raise Conflict(
            "platform_not_configured",
            f"Platform {known.platform} was set up paused, and is not configured.",
            f"Configure it first: PATCH /v1/platforms/{known.platform}/config; or remove it: "
            f"POST /v1/platforms/{known.platform}/remove.",
        )


async def _build_schedule_response(path: PlatformPath, schedule: ScheduleHandle) -> PlatformScheduleResponse:
    description = await schedule.describe()
    state = description.schedule.state
    return PlatformScheduleResponse(
        platform=path.platform,
        is_paused=state.paused,
        note=state.note or "",
        next_runs=starts.list_next_run_times(description),
    )


async def _require_running_backfill(call: Call, workflow_id: str) -> BackfillResponse:
    """Return the record of the running backfill of the same time."""
    async with call.services.database.session() as session:
        row = await backfills.find_running_backfill(session, workflow_id)
    if row is None:
        raise Conflict(
            "backfill_running",
            "This time is being read again since a moment, and has no record yet.",
            "GET …/backfills lists it in a second.",
        )
    return build_backfill_response(row)

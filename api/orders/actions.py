"""Routes that act: pause and resume a platform, redo, split and skip slices, start backfills and reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from secrets import token_hex
from typing import assert_never

from temporalio.client import ScheduleHandle

from api import webhooks
from api.http.routes import Access, Call
from api.orders import responses
from api.orders.context import PlatformPath, routes
from api.orders.queries import (
    build_missing_slice_fault,
    build_owner,
    find_slice,
    load_project_id,
    read_backfill,
)
from api.orders.requests import (
    SLICES_MAX,
    BackfillPath,
    BackfillRequest,
    ChooseSlicesRequest,
    PauseRequest,
    PlatformDeliveryPath,
    ReportRequest,
    SkipSliceRequest,
    SkipSlicesRequest,
    SlicePath,
)
from api.orders.responses import (
    BackfillResponse,
    ReportStartedResponse,
    ScheduleResponse,
    SliceResponse,
    SlicesResponse,
    UnchangedSlice,
    build_backfill_response,
)
from api.webhooks import WebhookDeliveryResponse
from domain.faults import Conflict, Invalid, Missing
from domain.orders import names, windows
from domain.orders.activity_models import BackfillInput, ReportInput, SliceInput, SliceJob
from domain.orders.slices import ReadPurpose, SliceState
from domain.orders.windows import SliceTrack, TimeWindow
from infra import starts
from infra.database import Session
from stores.orders import backfills, ledger, platforms, slices
from stores.orders.slices import SliceFilter
from stores.tables.orders import OrderPlatform, OrderSlice
from workflows.orders import handle

_NOT_ENDED, _NOT_FAILED, _TOO_SHORT = "slice_not_ended", "slice_not_failed", "slice_too_short"
_PROBLEMS = {"not_found": Missing, _NOT_FAILED: Conflict}


@routes.post("/v1/platforms/{platform}/pause", access=Access.ADMIN, body_optional=True, problems={"not_found": Missing})
async def pause_platform(call: Call, path: PlatformPath, body: PauseRequest) -> ScheduleResponse:
    """Pause a platform, its running cycle too: no slice is claimed or begun; those that are being read are finished.

    The same as pausing its schedule in the Temporal Web UI.
    """
    schedule = await _find_schedule(call, path)
    await schedule.pause(note=body.note or "paused through the API")
    return await _build_schedule_response(path, schedule)


@routes.post("/v1/platforms/{platform}/resume", access=Access.ADMIN, problems={"not_found": Missing})
async def resume_platform(call: Call, path: PlatformPath) -> ScheduleResponse:
    """Resume a paused platform; what has settled meanwhile is claimed by the next run."""
    schedule = await _find_schedule(call, path)
    await schedule.unpause(note="resumed through the API")
    return await _build_schedule_response(path, schedule)


@routes.post(
    "/v1/platforms/{platform}/trigger",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "platform_paused": Conflict},
)
async def trigger_cycle(call: Call, path: PlatformPath) -> ScheduleResponse:
    """Claim now what has settled, unless a run is under way, which does so anyway."""
    schedule = await _find_schedule(call, path)
    standing = await _build_schedule_response(path, schedule)
    if standing.paused:
        raise Conflict("platform_paused", f"Platform {path.platform} is paused and claims nothing.", "Resume it.")
    await schedule.trigger()
    return standing


@routes.post(
    "/v1/platforms/{platform}/deliveries/{delivery_id}/redeliver",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def redeliver_delivery(call: Call, path: PlatformDeliveryPath) -> WebhookDeliveryResponse:
    """Send a delivery again, now.

    It keeps its `webhook-id` and its body, and starts with its first attempt: whether it is still being tried, has
    arrived, has failed, or was stopped by a 410.
    """
    return await webhooks.redeliver(call, await load_project_id(call, path), build_owner(path), path.delivery_id)


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/redo",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, _NOT_ENDED: Conflict},
)
async def redo_slice(call: Call, path: SlicePath) -> SliceResponse:
    """Read a slice again: one that failed is completed by it, one that is complete stays so."""
    async with call.services.database.session() as session:
        row = await find_slice(session, path)
        _require_end(row)
        platform = await platforms.require(session, path.platform)
    await _start_redo(call, platform, path.window)
    return responses.build_slice_response(row)


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/split",
    access=Access.ADMIN,
    problems={**_PROBLEMS, _TOO_SHORT: Conflict},
)
async def split_slice(call: Call, path: SlicePath) -> SliceResponse:
    """Replace a failed slice by its halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        row = await find_slice(session, path)
        await _split(session, row)
    await _claim_now(call, platform)
    return responses.build_slice_response(row)


@routes.post("/v1/platforms/{platform}/slices/{slice}/skip", access=Access.ADMIN, problems=_PROBLEMS)
async def skip_slice(call: Call, path: SlicePath, body: SkipSliceRequest) -> SliceResponse:
    """Give a failed slice up: its orders may be missing, and `complete_to` may pass it."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        row = await find_slice(session, path)
        await _skip(session, row, body.reason)
        await ledger.advance_complete_to(session, platform)
        return responses.build_slice_response(row)


@routes.post(
    "/v1/platforms/{platform}/slices:redo",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def redo_slices(call: Call, path: PlatformPath, body: ChooseSlicesRequest) -> SlicesResponse:
    """Read several slices again: the named ones, or those of the failed set that match."""

    async def check(row: OrderSlice) -> None:
        _require_end(row)

    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_each(session, platform, body, check)
    for name in steered.done:
        await _start_redo(call, platform, windows.parse_slice_id(name))
    return steered


@routes.post("/v1/platforms/{platform}/slices:split", access=Access.ADMIN, problems={"not_found": Missing})
async def split_slices(call: Call, path: PlatformPath, body: ChooseSlicesRequest) -> SlicesResponse:
    """Replace several failed slices by their halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_each(session, platform, body, lambda row: _split(session, row))
    await _claim_now(call, platform)
    return steered


@routes.post("/v1/platforms/{platform}/slices:skip", access=Access.ADMIN, problems={"not_found": Missing})
async def skip_slices(call: Call, path: PlatformPath, body: SkipSlicesRequest) -> SlicesResponse:
    """Give several failed slices up, for one reason."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_each(session, platform, body, lambda row: _skip(session, row, body.reason))
        await ledger.advance_complete_to(session, platform)
    return steered


@routes.post(
    "/v1/platforms/{platform}/backfill",
    access=Access.ADMIN,
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
        platform = (await platforms.load(session, path.platform)).row
        if not await ledger.count_rereadable(session, path.platform, window.start, window.end):
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
        asked_by=body.who.strip() or ("the console" if call.caller.until else "the admin key"),
        asked_at=datetime.now(UTC),
    )
    workflow_id = names.backfill_id(path.platform, window)
    if not await handle.start_backfill(call.services.engine, order):
        return await _find_running_backfill(call, workflow_id)
    # The workflow does the same first: a caller who has this response finds the record, even if no worker runs.
    await backfills.insert_record(call.services.database, order, workflow_id)
    return await read_backfill(call, BackfillPath(platform=path.platform, backfill_id=order.backfill_id))


@routes.post(
    "/v1/platforms/{platform}/reports",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "day_invalid": Invalid},
)
async def start_report(call: Call, path: PlatformPath, body: ReportRequest) -> ReportStartedResponse:
    """Compare a past day with the platform: counts by hour, and the ids that differ.

    The day is that of the platform's own zone; the part of it that is not complete is left out. For the same day again,
    the report is made anew, unless it is being made.
    """
    async with call.services.database.session() as session:
        here = await platforms.load(session, path.platform)
    row, zone_minutes = here.row, here.capability.zone_minutes
    window = windows.find_comparable_window(body.day, zone_minutes, ledger.to_watermarks(row), here.now)
    order = ReportInput(
        platform=path.platform,
        day=body.day,
        window=window,
        zone_minutes=zone_minutes,
        complete_to=row.complete_to,
    )
    workflow_id = await handle.start_report(call.services.engine, row.project_id, order)
    return ReportStartedResponse(platform=path.platform, day=body.day, workflow_id=workflow_id)


async def _apply_to_each(
    session: Session,
    platform: OrderPlatform,
    choice: ChooseSlicesRequest,
    deed: Callable[[OrderSlice], Awaitable[None]],
) -> SlicesResponse:
    """Apply an action to all chosen slices; those that do not allow it are left unchanged, with the reason."""
    rows = await _lock_chosen(session, platform, choice)
    done, left = list[str](), list[UnchangedSlice]()
    for row in rows[:SLICES_MAX]:
        name = str(ledger.to_window(row))
        try:
            await deed(row)
        except Conflict as refusal:
            left.append(UnchangedSlice(slice=name, code=refusal.record.code, detail=refusal.record.sentence))
        else:
            done.append(name)
    found = {str(ledger.to_window(row)) for row in rows}
    for name in choice.slices or []:
        if name not in found:
            record = build_missing_slice_fault(platform.platform, name).record
            left.append(UnchangedSlice(slice=name, code=record.code, detail=record.sentence))
    return SlicesResponse(
        done=done, left=left, next_start=rows[SLICES_MAX].start_at if len(rows) > SLICES_MAX else None
    )


async def _lock_chosen(session: Session, platform: OrderPlatform, choice: ChooseSlicesRequest) -> Sequence[OrderSlice]:
    """Lock the chosen slices, oldest first, and one more where there are more than one request handles."""
    wanted = SliceFilter(
        platform.platform,
        state=SliceState.FAILED if choice.slices is None else None,
        windows=None if choice.slices is None else [windows.parse_slice_id(name) for name in choice.slices],
        ends_after=choice.start,
        begins_before=choice.end,
        code=choice.code,
    )
    return await slices.lock_oldest(session, wanted, SLICES_MAX + 1)


async def _lock_platform(session: Session, path: PlatformPath) -> OrderPlatform:
    """Lock the platform's row, as every transaction that moves a watermark must."""
    return (await platforms.load(session, path.platform, lock=True)).row


async def _start_redo(call: Call, platform: OrderPlatform, window: TimeWindow) -> None:
    """Start a reading, unless one is under way."""
    job = SliceJob(window=window, track=SliceTrack.LIVE, purpose=ReadPurpose.AGAIN, suffix=names.REDO_SUFFIX)
    order = SliceInput(platform=platform.platform, project_id=platform.project_id, job=job)
    await handle.redo_slice(call.services.engine, order)


async def _claim_now(call: Call, platform: OrderPlatform) -> None:
    """Trigger the platform's schedule, which starts what has been added."""
    schedule = await handle.find_platform(call.services.engine, platform.platform, platform.project_id)
    await schedule.trigger()


async def _split(session: Session, row: OrderSlice) -> None:
    _require_failed(row)
    halves = ledger.to_window(row).halves()
    if halves is None:
        raise Conflict(_TOO_SHORT, f"The slice {ledger.to_window(row)} is too short to be split.", "Redo or skip it.")
    await ledger.split(session, row, halves)


async def _skip(session: Session, row: OrderSlice, reason: str) -> None:
    _require_failed(row)
    await slices.skip(session, row, reason)


def _require_end(row: OrderSlice) -> None:
    state = responses.build_slice_response(row).state
    if state not in (SliceState.FAILED, SliceState.DONE):
        raise Conflict(
            _NOT_ENDED,
            f"The slice {ledger.to_window(row)} is {state}; one that failed or is done can be read again.",
            _suggest_action(state),
        )


def _require_failed(row: OrderSlice) -> None:
    state = responses.build_slice_response(row).state
    if state is not SliceState.FAILED:
        raise Conflict(
            _NOT_FAILED,
            f"The slice {ledger.to_window(row)} is {state}; only one in the failed set can be split or skipped.",
            _suggest_action(state),
        )


def _suggest_action(state: SliceState) -> str:
    """Return what to do with a slice in this state."""
    match state:
        case SliceState.OPEN:
            return "It is read by itself: wait for its end."
        case SliceState.SPLIT:
            return "Its halves are slices of their own: name those."
        case SliceState.SKIPPED:
            return "It was given up, and stays so; for its orders, set up the same account under another number."
        case SliceState.DONE:
            return "Its orders are in; redo it if you doubt that."
        case SliceState.FAILED:
            return "Redo, split or skip it."
        case _:
            assert_never(state)


async def _find_schedule(call: Call, path: PlatformPath) -> ScheduleHandle:
    """Return a platform's schedule; create it if the engine has lost it."""
    async with call.services.database.session() as session:
        row = await platforms.require(session, path.platform)
    return await handle.find_platform(call.services.engine, row.platform, row.project_id)


async def _build_schedule_response(path: PlatformPath, schedule: ScheduleHandle) -> ScheduleResponse:
    description = await schedule.describe()
    state = description.schedule.state
    return ScheduleResponse(
        platform=path.platform,
        paused=state.paused,
        note=state.note or "",
        next_runs=starts.list_next_runs(description),
    )


async def _find_running_backfill(call: Call, workflow_id: str) -> BackfillResponse:
    """Return the record of the running backfill of the same time."""
    async with call.services.database.session() as session:
        row = await backfills.find_running(session, workflow_id)
    if row is None:
        raise Conflict(
            "backfill_running",
            "This time is being read again since a moment, and has no record yet.",
            "GET …/backfills lists it in a second.",
        )
    return build_backfill_response(row)

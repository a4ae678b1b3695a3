"""Actions on slices: redo, split and skip one, several by id, or those of the failed set that match."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import assert_never

from api.http.routes import Call, RouteAccess
from api.orders import responses
from api.orders.context import PlatformPath, routes
from api.orders.queries import build_missing_slice_fault, require_slice
from api.orders.requests import (
    SLICES_MAX,
    SkipSliceRequest,
    SkipSlicesRequest,
    SliceActionRequest,
    SlicePath,
    SliceSelectionRequest,
)
from api.orders.responses import SliceResponse, SlicesActionResponse, UnchangedSliceAndReason
from domain.faults import Conflict, Missing
from domain.orders import names, windows
from domain.orders.activity_models import SliceInput, SliceJob
from domain.orders.slices import SliceReadPurpose, SliceState
from domain.orders.windows import LiveOrHistory, TimeWindow
from infra.database import Session
from stores.orders import ledger, platforms, slices
from stores.orders.slices import SliceFilter
from stores.tables.orders import OrderPlatform, OrderSlice
from workflows.orders import handle

_NOT_ENDED, _NOT_FAILED, _TOO_SHORT = "slice_not_ended", "slice_not_failed", "slice_too_short"
_PROBLEMS = {"not_found": Missing, _NOT_FAILED: Conflict}


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/redo",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    body_optional=True,
    problems={"not_found": Missing, _NOT_ENDED: Conflict},
)
async def redo_slice(call: Call, path: SlicePath, body: SliceActionRequest) -> SliceResponse:
    """Read a slice again: one that failed is completed by it, one that is complete stays so.

    One that is open and pauses makes its next attempt at once.
    """
    async with call.services.database.session() as session:
        row = await require_slice(session, path, lock=True)
        response = responses.build_slice_response(row)
        if response.state is not SliceState.OPEN:
            _require_failed_or_done_slice(row)
        platform = await platforms.require_platform(session, path.platform)
    if response.state is not SliceState.OPEN:
        await _start_redo_unless_running(call, platform, path.window)
    elif not await handle.end_pause_of_slice(call.services.engine, path.platform, path.window):
        await _create_if_missing_and_trigger_schedule(call, platform)
    return response


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/split",
    access=RouteAccess.ADMIN,
    body_optional=True,
    problems={**_PROBLEMS, _TOO_SHORT: Conflict},
)
async def split_slice(call: Call, path: SlicePath, body: SliceActionRequest) -> SliceResponse:
    """Replace a failed slice by its halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        row = await require_slice(session, path, lock=True)
        await _split_failed_slice(session, row)
    await _create_if_missing_and_trigger_schedule(call, platform)
    return responses.build_slice_response(row)


@routes.post("/v1/platforms/{platform}/slices/{slice}/skip", access=RouteAccess.ADMIN, problems=_PROBLEMS)
async def skip_slice(call: Call, path: SlicePath, body: SkipSliceRequest) -> SliceResponse:
    """Give a failed slice up: its orders may be missing, and `complete_to` may pass it."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        row = await require_slice(session, path, lock=True)
        await _skip_failed_slice(session, row, body.reason)
        await ledger.advance_complete_to(session, platform)
        return responses.build_slice_response(row)


@routes.post(
    "/v1/platforms/{platform}/slices:redo",
    access=RouteAccess.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def redo_slices(call: Call, path: PlatformPath, body: SliceSelectionRequest) -> SlicesActionResponse:
    """Read several slices again: the named ones, or those of the failed set that match.

    With `dry_run` the response is the same, and nothing is done.
    """

    async def require_failed_or_done_slice(row: OrderSlice) -> None:
        _require_failed_or_done_slice(row)

    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_chosen_slices(session, platform, body, require_failed_or_done_slice)
    for name in () if body.dry_run else steered.done:
        await _start_redo_unless_running(call, platform, windows.parse_slice_id(name))
    return steered


@routes.post("/v1/platforms/{platform}/slices:split", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def split_slices(call: Call, path: PlatformPath, body: SliceSelectionRequest) -> SlicesActionResponse:
    """Replace several failed slices by their halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_chosen_slices(session, platform, body, lambda row: _split_failed_slice(session, row))
    if not body.dry_run:
        await _create_if_missing_and_trigger_schedule(call, platform)
    return steered


@routes.post("/v1/platforms/{platform}/slices:skip", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def skip_slices(call: Call, path: PlatformPath, body: SkipSlicesRequest) -> SlicesActionResponse:
    """Give several failed slices up, for one reason."""
    async with call.services.database.session() as session:
        platform = await _lock_platform(session, path)
        steered = await _apply_to_chosen_slices(
            session, platform, body, lambda row: _skip_failed_slice(session, row, body.reason)
        )
        if not body.dry_run:
            await ledger.advance_complete_to(session, platform)
    return steered


async def _apply_to_chosen_slices(
    session: Session,
    platform: OrderPlatform,
    choice: SliceSelectionRequest,
    action: Callable[[OrderSlice], Awaitable[None]],
) -> SlicesActionResponse:
    """Apply an action to all chosen slices; those that do not allow it are left unchanged, with the reason.

    A dry run applies it, too, and rolls it back.
    """
    rows = await _lock_chosen_slices_and_one_more(session, platform, choice)
    done, unchanged = list[str](), list[UnchangedSliceAndReason]()
    for row in rows[:SLICES_MAX]:
        name = str(ledger.build_window(row))
        try:
            await action(row)
        except Conflict as refusal:
            unchanged.append(
                UnchangedSliceAndReason(slice=name, code=refusal.record.code, detail=refusal.record.sentence)
            )
        else:
            done.append(name)
    found = {str(ledger.build_window(row)) for row in rows}
    for name in choice.slices or []:
        if name not in found:
            record = build_missing_slice_fault(platform.platform, name).record
            unchanged.append(UnchangedSliceAndReason(slice=name, code=record.code, detail=record.sentence))
    next_start = rows[SLICES_MAX].start_at if len(rows) > SLICES_MAX else None
    if choice.dry_run:
        await slices.undo_changes_of_dry_run(session)
    return SlicesActionResponse(done=done, unchanged=unchanged, next_start=next_start, dry_run=choice.dry_run)


async def _lock_chosen_slices_and_one_more(
    session: Session, platform: OrderPlatform, choice: SliceSelectionRequest
) -> Sequence[OrderSlice]:
    """Lock the chosen slices, oldest first, and one more where there are more than one request handles."""
    filters = SliceFilter(
        platform.platform,
        state=SliceState.FAILED if choice.slices is None else None,
        windows=None if choice.slices is None else [windows.parse_slice_id(name) for name in choice.slices],
        ends_after=choice.start,
        begins_before=choice.end,
        code=choice.cause,
    )
    return await slices.lock_oldest_matching_slices(session, filters, SLICES_MAX + 1)


async def _lock_platform(session: Session, path: PlatformPath) -> OrderPlatform:
    """Lock the platform's row, as every transaction that moves a watermark must."""
    return (await platforms.load_platform_with_settings(session, path.platform, lock=True)).row


async def _start_redo_unless_running(call: Call, platform: OrderPlatform, window: TimeWindow) -> None:
    """Start a reading, unless one is under way."""
    job = SliceJob(window=window, track=LiveOrHistory.LIVE, purpose=SliceReadPurpose.AGAIN, suffix=names.REDO_SUFFIX)
    order = SliceInput(platform=platform.platform, project_id=platform.project_id, job=job)
    await handle.start_slice_reread_unless_running(call.services.engine, order)


async def _create_if_missing_and_trigger_schedule(call: Call, platform: OrderPlatform) -> None:
    """Trigger the platform's schedule, which starts what has been added."""
    schedule = await handle.find_or_create_cycle_schedule(call.services.engine, platform.platform, platform.project_id)
    await schedule.trigger()


async def _split_failed_slice(session: Session, row: OrderSlice) -> None:
    _require_failed_slice(row)
    window = ledger.build_window(row)
    if (halves := window.split_in_halves()) is None:
        raise Conflict(
            _TOO_SHORT, f"The slice {ledger.build_window(row)} is too short to be split.", "Redo or skip it."
        )
    await ledger.replace_slice_by_open_halves(session, row, halves)


async def _skip_failed_slice(session: Session, row: OrderSlice, reason: str) -> None:
    _require_failed_slice(row)
    await slices.mark_slice_skipped(session, row, reason)


def _require_failed_or_done_slice(row: OrderSlice) -> None:
    state = responses.build_slice_response(row).state
    if state not in (SliceState.FAILED, SliceState.DONE):
        raise Conflict(
            _NOT_ENDED,
            f"The slice {ledger.build_window(row)} is {state}; one that failed or is done can be read again.",
            _describe_what_to_do_with_slice(state),
        )


def _require_failed_slice(row: OrderSlice) -> None:
    state = responses.build_slice_response(row).state
    if state is not SliceState.FAILED:
        raise Conflict(
            _NOT_FAILED,
            f"The slice {ledger.build_window(row)} is {state}; only one in the failed set can be split or skipped.",
            _describe_what_to_do_with_slice(state),
        )


def _describe_what_to_do_with_slice(state: SliceState) -> str:
    """Return what to do with a slice in this state."""
    match state:
        case SliceState.OPEN:
            return "It is read by itself: wait for its end; a redo of this slice alone ends its pause."
        case SliceState.SPLIT:
            return "Its halves are slices of their own: name those."
        case SliceState.SKIPPED:
            return "It was given up, and stays so; for its orders, set up the same account under another name."
        case SliceState.DONE:
            return "Its orders are in; redo it if you doubt that."
        case SliceState.FAILED:
            return "Redo, split or skip it."
        case _:
            assert_never(state)

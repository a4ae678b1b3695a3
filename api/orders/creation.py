"""Routes that create: a platform, a backfill, a report."""

from __future__ import annotations

from datetime import UTC, datetime
from http import HTTPStatus
from secrets import token_hex

from api.http.routes import Access, Call
from api.orders.context import PlatformPath, routes
from api.orders.queries import read_backfill, read_platform
from api.orders.requests import BackfillPath, BackfillRequest, PlatformRequest, ReportRequest
from api.orders.responses import BackfillResponse, PlatformResponse, ReportStartedResponse, build_backfill_response
from domain.faults import Conflict, Invalid, Missing
from domain.orders import known_platforms, names, watermarks
from domain.orders.activity_models import BackfillInput, ReportInput
from domain.orders.config import DEFAULT_LEVEL
from stores import projects
from stores.orders import backfills, claims, ledger, platforms
from stores.orders.platforms import NO_OPTIONS, PlatformSetup
from stores.tables.orders import OrderPlatform
from workflows.orders import handle


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
async def set_up_platform(call: Call, path: PlatformPath, body: PlatformRequest) -> PlatformResponse:
    """Set up a platform, or change its address and who receives its alarms.

    Its schedule starts at once. Kind, shop and project cannot change once orders were claimed.
    """
    _check_setup(call, path.platform, body)
    async with call.services.database.session() as session:
        if await projects.find(session, body.project_id) is None:
            raise Missing("not_found", f"There is no project {body.project_id!r}.", "Make it with POST /v1/projects.")
        before = await platforms.find(session, path.platform, lock=True)
        if before is not None and before.starts_at is not None:
            _check_unchanged(before, body)
        notify = None if body.notify_url is None else call.services.sealer.seal(body.notify_url).token
        # As it was sent: what it leaves out follows our defaults, also those of later versions.
        record = None if body.capability is None else body.capability.model_dump(mode="json", exclude_unset=True)
        setup = PlatformSetup(body.project_id, body.kind, body.shop, body.base_url, record, notify)
        row = platforms.put(session, path.platform, setup, before)
        levels = await platforms.load_options(session, [DEFAULT_LEVEL, path.platform])
        here = platforms.build_state(row, levels.get(DEFAULT_LEVEL, NO_OPTIONS), levels.get(path.platform, NO_OPTIONS))
        here.check()
    await handle.ensure_platform(call.services.engine, path.platform, body.project_id)
    return await read_platform(call, path)


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
        if not await claims.count_rereadable(session, path.platform, window.start, window.end):
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
    await backfills.enter(call.services.database, order, workflow_id)
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
    window = watermarks.find_comparable_window(body.day, zone_minutes, ledger.to_watermarks(row), here.now)
    order = ReportInput(
        platform=path.platform,
        day=body.day,
        window=window,
        zone_minutes=zone_minutes,
        complete_to=row.complete_to,
    )
    workflow_id = await handle.start_report(call.services.engine, row.project_id, order)
    return ReportStartedResponse(platform=path.platform, day=body.day, workflow_id=workflow_id)


def _check_setup(call: Call, platform: str, body: PlatformRequest) -> None:
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


def _check_unchanged(row: OrderPlatform, body: PlatformRequest) -> None:
    before, now = (row.project_id, row.kind, row.shop), (body.project_id, body.kind, body.shop)
    if before != now:
        raise Conflict(
            "platform_begun",
            f"Platform {row.platform} has orders of project {before[0]}, kind {before[1]}, shop {before[2]}.",
            "Set up the other account under another number.",
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

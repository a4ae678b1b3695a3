"""Reports: a day of a platform compared with what we have, as a workbook."""

from __future__ import annotations

from datetime import date
from http import HTTPStatus
from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.orders.room import PlatformPath, routes
from domain.faults import Invalid, Missing
from domain.orders import names, watermarks
from domain.orders.activity_models import ReportInput, ReportResult
from domain.orders.names import CONTENT_TYPE
from domain.orders.windows import TimeWindow
from infra.objects import ObjectMissing
from stores.orders import ledger, platforms
from workflows.orders import handle

LINK_SECONDS: Final = 900
DAYS_MAX: Final = 1_000


Day = Annotated[date, Field(ge=date(1970, 1, 1), le=date(2199, 12, 31))]


class Wanted(Request):
    """Which day, by the platform's own zone."""

    day: Day


class DayPath(PlatformPath):
    """Names a day of a platform."""

    day: Day


class Started(Response):
    """A comparison that is being made."""

    platform: str
    day: date
    workflow_id: str


class Reports(Response):
    """Which days were compared."""

    platform: str
    days: list[date] = Field(description=f"newest first, at most {DAYS_MAX}")


class ShownReport(Response):
    """What a comparison found."""

    platform: str
    day: date
    made_at: AwareDatetime
    complete_to: AwareDatetime | None = Field(description="up to when every order was in, when it was made")
    window: TimeWindow = Field(
        description="the part of the day that was compared; what lies outside, before the platform's beginning or past "
        "`complete_to`, is not called missing"
    )
    zone_minutes: int = Field(description="how far the platform's zone is before UTC: the day is that of this zone")
    told: int = Field(description="orders that the platform tells for this part of the day")
    stored: int = Field(description="orders that we have for it")
    missing: int = Field(description="told, and not here at all or only older")
    only_here: int | None = Field(
        description="here and not told any more: modified again meanwhile, or deleted there; null where a platform is "
        "asked for orders by their creation, whose day only it knows"
    )
    url: str = Field(description="the workbook with the ids, for a quarter of an hour")


@routes.post(
    "/v1/platforms/{platform}/reports",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, "day_invalid": Invalid},
)
async def start_report(call: Call, path: PlatformPath, body: Wanted) -> Started:
    """Compare a day that is over with the platform: counts by hour, and the ids that differ.

    The day is that of the platform's own zone, and what is not complete of it is left out. The same day again makes the
    comparison anew, unless it is being made.
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
    return Started(platform=path.platform, day=body.day, workflow_id=workflow_id)


@routes.get("/v1/platforms/{platform}/reports", access=Access.ADMIN, problems={"not_found": Missing})
async def browse_reports(call: Call, path: PlatformPath) -> Reports:
    """List the days of which there is a comparison, the newest first."""
    async with call.services.database.session() as session:
        await platforms.require(session, path.platform)
    folder, end = names.report_manifest(names.report_key(path.platform, "\0")).split("\0")
    keys = [each.key for each in await call.services.objects.list(folder) if each.key.endswith(end)]
    days = sorted((date.fromisoformat(key.removeprefix(folder).removesuffix(end)) for key in keys), reverse=True)
    return Reports(platform=path.platform, days=days[:DAYS_MAX])


@routes.get("/v1/platforms/{platform}/reports/{day}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_report(call: Call, path: DayPath) -> ShownReport:
    """See what the last comparison of a day found."""
    key = names.report_key(path.platform, path.day.isoformat())
    try:
        report = ReportResult.model_validate_json(await call.services.objects.get(names.report_manifest(key)))
    except ObjectMissing:
        raise Missing(
            "not_found",
            f"There is no report of {path.day} for platform {path.platform} yet.",
            "POST …/reports makes one; it takes as long as reading the day.",
        ) from None
    url = await call.services.objects.presign(
        key,
        expires_seconds=LINK_SECONDS,
        file_name=f"orders-{path.platform}-{path.day}.xlsx",
        content_type=CONTENT_TYPE,
    )
    return ShownReport(**report.model_dump(exclude={"key"}), url=url)

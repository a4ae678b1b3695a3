"""Orders on the overview, and a platform's timeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from api.http.routes import Call, RouteAccess
from api.orders.context import PlatformPath, routes
from api.orders.requests import TimelineQuery
from api.orders.responses import TimelineBucketResponse, TimelineResponse
from domain.faults import Invalid, Missing
from domain.workload import WorkByProject
from infra.settings import Settings
from services.services import Services
from stores.orders import health, ledger, platforms, slices
from stores.tables.orders import OrderPlatform

UNIT: Final = "slices"
HAS_PROJECTS: Final = True
STANDSTILL_SECONDS: Final = 7_200


def get_failure_count_period(_: Settings) -> None:
    """Return None: a failed slice counts until an operator resolves it."""


def build_workload_counter(services: Services) -> Callable[[], Awaitable[WorkByProject]]:
    """Build the function that counts slices."""
    return partial(health.count_workloads, services.database)


UNCLAIMED_SHOWN: Final = timedelta(hours=1)
"""Time shown of a platform that has claimed nothing yet."""


@routes.get(
    "/v1/platforms/{platform}/timeline",
    access=RouteAccess.ADMIN,
    problems={"not_found": Missing, "window_invalid": Invalid},
)
async def read_timeline(call: Call, path: PlatformPath, query: TimelineQuery) -> TimelineResponse:
    """Read a platform's timeline: its claimed, complete, failed, skipped and swept slices in each bucket of a time."""
    async with call.services.database.session() as session:
        state = await platforms.load_platform_with_settings(session, path.platform)
        now = await ledger.read_database_time(session) + timedelta(seconds=state.row.skew_seconds or 0.0)
    start, end = _choose_timeline_start_and_end(state.row, query, now)
    buckets = await slices.count_slices_by_bucket(call.services.database, path.platform, start, end, query.bucket_count)
    return TimelineResponse(
        platform=path.platform,
        start=start,
        end=end,
        bucket_seconds=(end - start).total_seconds() / query.bucket_count,
        platform_now=now,
        settled_to=now - timedelta(seconds=state.settings.settle_lag),
        **{name: getattr(state.row, name) for name in ("starts_at", "history_to", "live_from")},
        **{name: getattr(state.row, name) for name in ("claimed_to", "complete_to")},
        buckets=[TimelineBucketResponse.model_validate(each, from_attributes=True) for each in buckets],
    )


def _choose_timeline_start_and_end(
    row: OrderPlatform, query: TimelineQuery, now: datetime
) -> tuple[datetime, datetime]:
    end = query.end or max(now, row.claimed_to or now)
    start = query.start or row.starts_at or end - UNCLAIMED_SHOWN
    if start >= end:
        missing = "end" if query.end is None else "start"
        raise Invalid(
            "window_invalid",
            f"Without `{missing}`, the time would go from {start.isoformat()} to {end.isoformat()}, which holds none.",
            f"Send `{missing}` too.",
            field="start" if query.end is None else "end",
        )
    return start, end

"""The quotas of orders: the platforms of a project, and the requests to them within a day."""

from __future__ import annotations

from api.http.routes import Call
from clients.platforms import build_project_bucket_name
from domain.quotas import STANDING_RETRY_SECONDS, QuotaLimits, SingleQuotaUsage, build_quota_exceeded_fault
from infra.database import Session
from infra.limits import DatabaseLimiter
from stores.orders import platforms
from stores.tables.shared import Project


async def require_quota_for_one_more_platform(session: Session, project: Project, defaults: QuotaLimits) -> None:
    """Return if a project, whose row is locked, may have one more platform.

    Raises:
        QuotaExhausted: It has as many as it may.
    """
    limit = defaults.with_overrides(project.quotas).platforms
    if await platforms.count_platforms_of_project(session, project.project_id) >= limit:
        raise build_quota_exceeded_fault(
            ["platforms"],
            f"The project {project.project_id} has {limit:,} platforms, as many as it may.",
            "Set another quota with PUT /v1/projects/{project_id}/quotas.",
            STANDING_RETRY_SECONDS,
        )


async def read_usage(call: Call, project_id: str, _limits: QuotaLimits) -> list[SingleQuotaUsage]:
    """Return how much of its quotas a project has used."""
    database = call.services.database
    async with database.session() as session:
        used = await platforms.count_platforms_of_project(session, project_id)
    limiter, bucket = DatabaseLimiter(database), build_project_bucket_name(project_id)
    requests = await limiter.read_spent_amount(bucket)
    resets_in_seconds = await limiter.read_seconds_until_first_return(bucket)
    return [
        SingleQuotaUsage("platforms", used),
        SingleQuotaUsage("platform_requests_per_day", requests, resets_in_seconds),
    ]

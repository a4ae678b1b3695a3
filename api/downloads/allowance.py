"""The allowance: what of its quotas a project, or one operator of it, has used."""

from __future__ import annotations

from math import ceil

from pydantic import Field

from api.downloads.room import routes
from api.http.models import Request, Response
from api.http.routes import Access, Call
from stores.downloads import quotas
from stores.downloads.quotas import DAY_SECONDS, MINUTE_SECONDS, Kind, Scope

WINDOW_SECONDS = {Kind.SUBMISSIONS: MINUTE_SECONDS, Kind.BYTES: DAY_SECONDS}


class Party(Request):
    """Whose quotas."""

    operator_id: str | None = Field(default=None, min_length=1, max_length=64, description="his or hers, too")


class ShownQuota(Response):
    """A quota and what is used of it."""

    name: str = Field(description="as the RateLimit headers call it", examples=["project-active"])
    scope: Scope
    kind: Kind
    limit: int
    used: int
    window_seconds: int | None = Field(description="what is used comes back after so long; null: when a download ends")
    first_back_seconds: int | None = Field(description="until some of it comes back; null where nobody can say")


class Allowance(Response):
    """All quotas that count for the caller."""

    quotas: list[ShownQuota]


@routes.get("/v1/downloads/quotas", access=Access.PROJECT)
async def read_quotas(call: Call, query: Party) -> Allowance:
    """Show what is used of the quotas.

    Those of the project, and with `operator_id` those of this operator, too. Asking counts nothing.
    """
    settings = call.services.settings.downloads.quotas
    standing = await quotas.standing(call.services.database, settings, call.project_id, query.operator_id)
    return Allowance(quotas=[_show(quota) for quota in standing])


def _show(quota: quotas.Quota) -> ShownQuota:
    window_seconds = WINDOW_SECONDS.get(quota.kind)
    is_told = window_seconds is not None and quota.verdict.remaining < quota.limit
    return ShownQuota(
        name=quota.name,
        scope=quota.scope,
        kind=quota.kind,
        limit=quota.limit,
        used=quota.limit - quota.verdict.remaining,
        window_seconds=window_seconds,
        first_back_seconds=ceil(quota.verdict.reset_seconds) if is_told else None,
    )

"""Quotas: a submission is counted or refused, every response to one has them in its headers, and they can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from math import ceil

from pydantic import Field

from api.downloads.context import routes
from api.http.models import Request, Response
from api.http.routes import Call, RouteAccess
from domain.downloads.models import DownloadSpec
from domain.faults import QuotaExhausted
from domain.quotas import (
    DAY_SECONDS,
    MINUTE_SECONDS,
    OPEN_RETRY_SECONDS,
    QuotaLimits,
    SingleQuotaUsage,
    build_quota_exceeded_fault,
)
from infra import log
from infra.database import DATABASE_ERRORS
from stores.downloads import quotas
from stores.downloads.quotas import ProjectAndOperatorLimits, QuotaKind, QuotaScope, QuotaWithDecision

RELEASE_SECONDS = 2.0
"""How long a request that failed tries to release its slots; a lease that is not released expires."""
_SIZES = ("bytes", "kB", "MB", "GB", "TB")
_WINDOW_SECONDS = {
    QuotaKind.DOWNLOADS: MINUTE_SECONDS,
    QuotaKind.BYTES: DAY_SECONDS,
    QuotaKind.ROWS: DAY_SECONDS,
}
_UNITS = {QuotaKind.ACTIVE: "concurrent-requests", QuotaKind.BYTES: "content-bytes", QuotaKind.ROWS: "rows"}


@asynccontextmanager
async def consume_quotas_for_start(call: Call, spec: DownloadSpec) -> AsyncIterator[None]:
    """Consume the quotas of a download that the block starts, and release its slots if the block does not end well.

    The time limit of a request, too, ends a block: while the engine hangs, each attempt would cost a slot for hours.
    Slots that another request took, before or since, stay, as do those that a download has taken that began although
    no answer came: it may be running.
    """
    newly_held_until = await consume_quotas_and_set_headers(call, spec)
    try:
        yield
    except BaseException:
        if newly_held_until is None:
            raise
        with suppress(*DATABASE_ERRORS, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                await quotas.release_slots_unless_renewed(call.services.database, spec, newly_held_until)
        raise


async def consume_quotas_and_set_headers(call: Call, spec: DownloadSpec) -> datetime | None:
    """Count a submission and take the slots of an active download. The response has the quotas in its headers.

    Returns:
        When the slots expire that the download has now; None if it had some of them already.

    Raises:
        QuotaExhausted: A quota is used up; nothing was counted.
    """
    standing = await quotas.take_quotas_all_or_none(call.services.database, _get_download_quotas(call), spec)
    call.request_state.headers |= build_quota_headers(standing)
    violated = [quota for quota in standing if not quota.verdict.allowed]
    if violated:
        log.get(__name__).info("quota_exceeded", quotas=[quota.name for quota in violated])
        raise _build_exceeded_fault(violated)
    expiries = {quota.verdict.newly_held_until for quota in standing if quota.kind is QuotaKind.ACTIVE}
    return None if None in expiries else max(filter(None, expiries))


def _get_download_quotas(call: Call) -> ProjectAndOperatorLimits:
    return ProjectAndOperatorLimits(call.quotas.downloads, call.services.settings.downloads.operator_quotas)


def build_quota_headers(quota_states: Sequence[QuotaWithDecision]) -> dict[str, str]:
    """Return the headers `RateLimit-Policy` and `RateLimit`, by the IETF draft httpapi-ratelimit-headers-11."""
    return {
        "RateLimit-Policy": ", ".join(map(_format_rate_limit_policy_item, quota_states)),
        "RateLimit": ", ".join(map(_format_rate_limit_item, quota_states)),
    }


def _format_rate_limit_policy_item(quota: QuotaWithDecision) -> str:
    unit = f';qu="{_UNITS[quota.kind]}"' if quota.kind in _UNITS else ""
    window = f";w={_WINDOW_SECONDS[quota.kind]}" if quota.kind in _WINDOW_SECONDS else ""
    return f'"{quota.name}";q={quota.limit}{unit}{window}'


def _format_rate_limit_item(quota: QuotaWithDecision) -> str:
    # A slot has no reset time, as it stays taken until a download ends.
    time = f";t={ceil(quota.verdict.reset_seconds)}" if quota.kind in _WINDOW_SECONDS else ""
    return f'"{quota.name}";r={quota.verdict.remaining}{time}'


def _build_exceeded_fault(violated: Sequence[QuotaWithDecision]) -> QuotaExhausted:
    seconds = max(map(_compute_wait_seconds, violated))
    is_full = any(quota.kind is QuotaKind.ACTIVE for quota in violated)
    return build_quota_exceeded_fault(
        [quota.name for quota in violated],
        " ".join(map(_describe_exceeded_quota, violated)),
        f"{'Wait until a download ends, or cancel one; ask' if is_full else 'Ask'} again in {_format_wait(seconds)}.",
        seconds,
    )


def _compute_wait_seconds(quota: QuotaWithDecision) -> int:
    seconds = max(1, ceil(quota.verdict.reset_seconds))
    return min(seconds, OPEN_RETRY_SECONDS) if quota.kind is QuotaKind.ACTIVE else seconds


def _describe_exceeded_quota(quota: QuotaWithDecision) -> str:
    who = "This project" if quota.scope is QuotaScope.PROJECT else "This operator"
    match quota.kind:
        case QuotaKind.DOWNLOADS:
            return f"{who} started {quota.limit} downloads within a minute, as many as it may."
        case QuotaKind.ACTIVE:
            return f"{who} has {quota.limit} downloads that are not finished, as many as it may."
        case QuotaKind.BYTES:
            return f"{who} made files of {_format_size(quota.limit)} within a day, as much as it may."
        case QuotaKind.ROWS:
            return f"{who} made files of {quota.limit:,} rows within a day, as many as it may."


def _format_size(count: int) -> str:
    power = min((len(str(count)) - 1) // 3, len(_SIZES) - 1)
    return f"{count / 1_000**power:.4g} {_SIZES[power]}"


def _format_wait(seconds: int) -> str:
    if seconds < 2 * MINUTE_SECONDS:
        return f"{seconds} seconds" if seconds > 1 else "a second"
    minutes = ceil(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{ceil(minutes / 60)} hours"


class QuotasQuery(Request):
    """The party whose quotas are read."""

    operator_id: str | None = Field(default=None, min_length=1, max_length=64, description="his or hers, too")


class QuotaUsage(Response):
    """A quota and its usage."""

    name: str = Field(description="as the RateLimit headers call it", examples=["downloads_active"])
    scope: QuotaScope
    kind: QuotaKind
    limit: int
    used: int
    window_seconds: int | None = Field(description="seconds after which usage comes back; null: when a download ends")
    resets_in_seconds: int | None = Field(description="seconds until some of it comes back; null if that is unknown")


class QuotasResponse(Response):
    """All quotas that apply to the caller."""

    items: list[QuotaUsage]


@routes.get("/v1/downloads/quotas", access=RouteAccess.PROJECT)
async def read_quotas(call: Call, query: QuotasQuery) -> QuotasResponse:
    """Return the usage of the quotas.

    It returns those of the project, and with `operator_id` those of this operator too. Reading counts nothing.
    """
    standing = await quotas.get_quota_states_without_counting(
        call.services.database, _get_download_quotas(call), call.project_id, query.operator_id
    )
    return QuotasResponse(items=[_build_usage(quota) for quota in standing])


async def read_usage(call: Call, project_id: str, limits: QuotaLimits) -> list[SingleQuotaUsage]:
    """Return how much of its quotas a project has used."""
    of = ProjectAndOperatorLimits(limits.downloads, call.services.settings.downloads.operator_quotas)
    standing = await quotas.get_quota_states_without_counting(call.services.database, of, project_id, None)
    return [SingleQuotaUsage(quota.name, quota.used, quota.resets_in_seconds) for quota in map(_build_usage, standing)]


def _build_usage(quota: QuotaWithDecision) -> QuotaUsage:
    window_seconds = _WINDOW_SECONDS.get(quota.kind)
    has_reset = window_seconds is not None and quota.verdict.remaining < quota.limit
    return QuotaUsage(
        name=quota.name,
        scope=quota.scope,
        kind=quota.kind,
        limit=quota.limit,
        used=quota.verdict.used,
        window_seconds=window_seconds,
        resets_in_seconds=ceil(quota.verdict.reset_seconds) if has_reset else None,
    )

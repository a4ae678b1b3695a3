"""Quotas at the door: a submission is counted or refused, and every answer to one tells how the quotas stand."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

from api.http.routes import Call
from domain.downloads.models import DownloadOrder
from domain.faults import Exhausted
from infra import log
from stores.downloads import quotas
from stores.downloads.quotas import DAY_SECONDS, MINUTE_SECONDS, Kind, Quota, Scope

CODE: Final = "quota_exceeded"
ACTIVE_RETRY_SECONDS: Final = 5
"""When to ask again for a slot: nobody knows when one comes back, and by itself it may take an hour."""

_SIZES = ("bytes", "kB", "MB", "GB", "TB")
_WINDOW_SECONDS = {Kind.SUBMISSIONS: MINUTE_SECONDS, Kind.BYTES: DAY_SECONDS}
_UNITS = {Kind.ACTIVE: "concurrent-requests", Kind.BYTES: "content-bytes"}


async def admit(call: Call, order: DownloadOrder) -> None:
    """Count a submission and take the slots of an active download. The answer tells the quotas in its headers.

    Raises:
        Exhausted: A quota is used up; nothing was counted.
    """
    standing = await quotas.admit(call.services.database, call.services.settings.downloads.quotas, order)
    call.request_state.headers |= headers(standing)
    violated = [quota for quota in standing if not quota.verdict.allowed]
    if violated:
        log.get(__name__).info("quota_exceeded", quotas=[quota.name for quota in violated])
        raise _exhausted(violated)


def headers(standing: Sequence[Quota]) -> dict[str, str]:
    """The quotas as `RateLimit-Policy` and `RateLimit`, by the IETF's draft (httpapi-ratelimit-headers-11)."""
    return {
        "RateLimit-Policy": ", ".join(map(_policy, standing)),
        "RateLimit": ", ".join(map(_state, standing)),
    }


def _policy(quota: Quota) -> str:
    unit = f';qu="{_UNITS[quota.kind]}"' if quota.kind in _UNITS else ""
    window = f";w={_WINDOW_SECONDS[quota.kind]}" if quota.kind in _WINDOW_SECONDS else ""
    return f'"{quota.name}";q={quota.limit}{unit}{window}'


def _state(quota: Quota) -> str:
    # How long a slot stays taken is not for us to say, so there is no time beside it.
    time = f";t={ceil(quota.verdict.reset_seconds)}" if quota.kind in _WINDOW_SECONDS else ""
    return f'"{quota.name}";r={quota.verdict.remaining}{time}'


def _exhausted(violated: Sequence[Quota]) -> Exhausted:
    seconds = max(map(_wait_seconds, violated))
    is_full = any(quota.kind is Kind.ACTIVE for quota in violated)
    return Exhausted(
        CODE,
        " ".join(map(_sentence, violated)),
        f"{'Wait until a download ends, or cancel one; ask' if is_full else 'Ask'} again in {_spoken(seconds)}.",
        violated=[quota.name for quota in violated],
        retry_after_seconds=seconds,
    )


def _wait_seconds(quota: Quota) -> int:
    seconds = max(1, ceil(quota.verdict.reset_seconds))
    return min(seconds, ACTIVE_RETRY_SECONDS) if quota.kind is Kind.ACTIVE else seconds


def _sentence(quota: Quota) -> str:
    who = "This project" if quota.scope is Scope.PROJECT else "This operator"
    match quota.kind:
        case Kind.SUBMISSIONS:
            return f"{who} started {quota.limit} downloads within a minute, as many as it may."
        case Kind.ACTIVE:
            return f"{who} has {quota.limit} downloads that are not finished, as many as it may."
        case Kind.BYTES:
            return f"{who} made files of {_size(quota.limit)} within a day, as much as it may."


def _size(count: int) -> str:
    power = min((len(str(count)) - 1) // 3, len(_SIZES) - 1)
    return f"{count / 1_000**power:.4g} {_SIZES[power]}"


def _spoken(seconds: int) -> str:
    if seconds < 2 * MINUTE_SECONDS:
        return f"{seconds} seconds" if seconds > 1 else "a second"
    minutes = ceil(seconds / 60)
    return f"{minutes} minutes" if minutes < 120 else f"{ceil(minutes / 60)} hours"

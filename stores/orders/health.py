"""What keeps a platform from being fetched, which slices take too long, and how many are unfinished.

Each condition is stored with the time at which it began, so that it is reported once, and cleared when it is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement, update
from sqlmodel import and_, col, func, not_, or_, select

from domain.orders.activity_models import ClockSkew, PlatformFaultInput, ServedPlatformsResult
from domain.orders.slices import SLICE_TERMINATED
from domain.orders.windows import TimeWindow
from domain.workload import (
    ConcernKind,
    WorkByProject,
    merge_workloads,
    parse_concerns,
    parse_uncounted_concerns,
    parse_workloads,
)
from infra.database import Database
from stores.orders import ledger, platforms, slices
from stores.orders.slices import OpenAndFailedSliceCounts
from stores.tables.orders import OrderPlatform, OrderSlice


@dataclass(frozen=True, slots=True)
class PlatformClockFailureAndAlarmDue:
    """A platform whose clock cannot be read."""

    row: OrderPlatform
    is_first: bool
    """Whether it could be read until now."""
    is_due: bool
    """Whether it has lasted long enough for an alarm."""


async def record_unreadable_clock_and_decide_alarm(
    database: Database, params: PlatformFaultInput, patience: timedelta
) -> PlatformClockFailureAndAlarmDue:
    """Record since when a platform's clock cannot be read; an alarm is due once that has lasted.

    Raises:
        Missing: The platform was removed meanwhile.
    """
    async with database.session() as session:
        row = await platforms.require_platform(session, params.platform, lock=True)
        now = await ledger.read_database_time(session)
        is_first = row.clock_failed_since is None
        row.clock_failed_since, row.clock_fault = row.clock_failed_since or now, params.fault.model_dump()
        # An activity that is repeated, since its worker was lost with the alarm, returns it again.
        is_due = row.clock_alarm_for in (None, params.asked_at) and now - row.clock_failed_since >= patience
        row.clock_alarm_for = params.asked_at if is_due else row.clock_alarm_for
        session.add(row)
    return PlatformClockFailureAndAlarmDue(row, is_first, is_due)


async def record_clock_skew_and_clear_failure(
    database: Database, platform: str, platform_now: datetime, most_seconds: float
) -> ClockSkew:
    """Save how far a platform's clock is ahead of the database's, and clear an earlier failure to read it.

    Args:
        most_seconds: How far it may be off; an alarm is due until one is recorded for a clock that is off further.

    Raises:
        Missing: The platform was removed meanwhile.
    """
    async with database.session() as session:
        row = await platforms.require_platform(session, platform, lock=True)
        now = await ledger.read_database_time(session)
        row.skew_seconds, row.skew_at = (platform_now - now).total_seconds(), now
        is_off = abs(row.skew_seconds) > most_seconds
        row.skew_alarm_by = row.skew_alarm_by if is_off else None
        row.clock_failed_since, row.clock_fault, row.clock_alarm_for = None, None, None
        session.add(row)
        is_due = is_off and row.skew_alarm_by is None
        return ClockSkew(platform=platform, skew_seconds=row.skew_seconds, is_alarm_due=is_due)


async def record_skew_alarm(database: Database, platform: str, call: str) -> OrderPlatform | None:
    """Record that the alarm about a platform's clock is sent; return its row unless another call has recorded that.

    Raises:
        Missing: The platform was removed meanwhile.
    """
    async with database.session() as session:
        row = await platforms.require_platform(session, platform, lock=True)
        row.skew_alarm_by = row.skew_alarm_by or call
        session.add(row)
    return row if row.skew_alarm_by == call else None


async def record_refused_credentials_and_find_due_alarm(
    database: Database, params: PlatformFaultInput
) -> OrderPlatform | None:
    """Record since when a platform refuses its credentials; return its row if an alarm is due.

    Raises:
        Missing: The platform was removed meanwhile.
    """
    async with database.session() as session:
        row = await platforms.require_platform(session, params.platform, lock=True)
        now = await ledger.read_database_time(session)
        if row.credentials_good_at is not None and row.credentials_good_at > params.asked_at:
            return None
        row.credentials_failed_since = row.credentials_failed_since or now
        row.credentials_fault = params.fault.model_dump()
        is_due = row.credentials_alarm_for in (None, params.asked_at)
        row.credentials_alarm_for = row.credentials_alarm_for or params.asked_at
        session.add(row)
    return row if is_due else None


async def record_served_and_find_newly_unserved(
    database: Database, presence: ServedPlatformsResult, call: str
) -> list[OrderPlatform]:
    """Record since when no worker serves a platform; return the rows of those that have just become unserved.

    Args:
        call: Of the activity that records it: where it is repeated, the same rows are returned.
    """
    number, since = col(OrderPlatform.platform), col(OrderPlatform.unserved_since)
    is_new = or_(since.is_(None), col(OrderPlatform.unserved_alarm_by) == call)
    is_back = number.in_(presence.served), since.is_not(None)
    # One that was removed while the workers were asked is not missed.
    is_lost = number.in_(presence.unserved), is_new, col(OrderPlatform.removed_at).is_(None)
    async with database.session() as session:
        # Only rows that change are locked: the others may be busy, and are not to wait for each other.
        await session.exec(update(OrderPlatform).where(*is_back).values(unserved_since=None))
        values = {"unserved_since": func.coalesce(since, func.clock_timestamp()), "unserved_alarm_by": call}
        lost = update(OrderPlatform).where(*is_lost).values(values)
        rows = (await session.exec(lost.returning(OrderPlatform))).scalars()
        return sorted(rows, key=lambda row: row.platform)


@dataclass(frozen=True, slots=True)
class PlatformsHealth:
    """All platforms, with the numbers of their slices, at a time by the database's clock."""

    rows: list[OrderPlatform]
    counts: dict[str, OpenAndFailedSliceCounts]
    configured: frozenset[str]
    """Those with a configuration of their own."""
    now: datetime


async def load_platforms_health(database: Database) -> PlatformsHealth:
    """Read what keeps each platform from being fetched."""
    async with database.session() as session:
        rows = (await session.exec(select(OrderPlatform).where(col(OrderPlatform.removed_at).is_(None)))).all()
        listed = [row.platform for row in rows]
        counts = await slices.count_open_and_failed_by_platform(session, listed)
        configured = frozenset(await platforms.load_newest_options(session, listed))
        return PlatformsHealth(list(rows), counts, configured, await ledger.read_database_time(session))


@dataclass(frozen=True, slots=True)
class StaleSlice:
    """A slice that takes too long."""

    slice_id: int | None
    platform: str
    window: TimeWindow
    claimed_at: datetime
    attempts: int
    reread_since: datetime | None


@dataclass(frozen=True, slots=True)
class StaleSlicesAndScanTimes:
    """Slices that take too long, as of a moment."""

    slices: Sequence[StaleSlice]
    now: datetime
    before: datetime
    """Slices claimed before this take too long."""


async def list_platforms_with_stale_unbegun_slices(database: Database, stale_after: timedelta) -> list[str]:
    """List the platforms with slices that take longer than `stale_after` and that no attempt has begun."""
    async with database.session() as session:
        before = await ledger.read_database_time(session) - stale_after
        unbegun = _build_stale_condition(before), _build_unbegun_condition()
        return list(await session.exec(select(OrderSlice.platform).where(*unbegun).distinct()))


async def list_slices_claimed_too_long_ago(
    database: Database, stale_after: timedelta, limit: int, *, not_begun_by: Sequence[str], call: str
) -> StaleSlicesAndScanTimes:
    """List the oldest slices that take longer than `stale_after` and are not reported yet, or by this call.

    Args:
        not_begun_by: Platforms that begin no slice: their unbegun ones are left out, so that they fill no list.
    """
    async with database.session() as session:
        now = await ledger.read_database_time(session)
        oldest = (
            select(OrderSlice)
            .where(
                _build_stale_condition(now - stale_after, call),
                not_(and_(col(OrderSlice.platform).in_(not_begun_by), _build_unbegun_condition())),
            )
            .order_by(col(OrderSlice.claimed_at))
            .limit(limit)
        )
        slices = [
            StaleSlice(
                row.slice_id, row.platform, ledger.build_window(row), row.claimed_at, row.attempts, row.reread_since
            )
            for row in await session.exec(oldest)
        ]
    return StaleSlicesAndScanTimes(slices, now, now - stale_after)


async def mark_reported_and_load_overdue_platforms(
    database: Database, overdue: StaleSlicesAndScanTimes, ids: Sequence[int | None], call: str
) -> tuple[set[int | None], dict[str, OrderPlatform]]:
    """Mark these slices as reported, unless another scan did or they have ended.

    Returns:
        The ids of those that this call of the activity marked, and the platforms of all that are overdue.
    """
    async with database.session() as session:
        statement = (
            update(OrderSlice)
            .where(col(OrderSlice.slice_id).in_(ids), _build_stale_condition(overdue.before, call))
            .values(stale_told_at=func.now(), stale_alarm_by=call)
            .returning(col(OrderSlice.slice_id))
        )
        marked = set((await session.exec(statement)).scalars()) if ids else set()
        numbers = {each.platform for each in overdue.slices}
        found = await session.exec(select(OrderPlatform).where(col(OrderPlatform.platform).in_(numbers)))
        return marked, {row.platform: row for row in found}


async def record_stale_reread_as_failed(database: Database, stale: StaleSlice) -> None:
    """Record that the repeated reading of a slice ended without a result; its earlier content stays."""
    async with database.session() as session:
        await ledger.record_failed_reread(session, stale.platform, stale.window, SLICE_TERMINATED)


def _build_stale_condition(before: datetime, call: str = "") -> ColumnElement[bool]:
    """Claimed before a moment and unfinished, or being read again since before it, and not reported by another call."""
    is_open = and_(
        ledger.build_unfinished_condition(), col(OrderSlice.failed_at).is_(None), col(OrderSlice.claimed_at) < before
    )
    return and_(
        or_(is_open, col(OrderSlice.reread_since) < before),
        or_(col(OrderSlice.stale_told_at).is_(None), col(OrderSlice.stale_alarm_by) == call),
    )


def _build_unbegun_condition() -> ColumnElement[bool]:
    return and_(col(OrderSlice.attempts) == 0, col(OrderSlice.reread_since).is_(None))


_SLICES: Final = """
    SELECT p.project_id, count(*) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NOT NULL) AS running_at,
        count(*) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting,
        min(claimed_at) FILTER (WHERE failed_at IS NULL AND holder IS NULL) AS waiting_at,
        count(failed_at) AS failed, min(failed_at) AS failed_at
    FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE done_at IS NULL AND skipped_at IS NULL AND split_at IS NULL GROUP BY p.project_id
"""
_FAILED: Final = """
    SELECT p.project_id, p.platform AS subject, coalesce(s.fault ->> 'code', '') AS cause, count(*)
    FROM order_slices s JOIN order_platforms p USING (platform)
    WHERE s.failed_at IS NOT NULL AND s.done_at IS NULL AND s.skipped_at IS NULL AND s.split_at IS NULL GROUP BY 1, 2, 3
"""
_STANDSTILLS: Final = {
    ConcernKind.UNSERVED: """
        SELECT project_id, platform AS subject, '' AS cause, 1 AS count
        FROM order_platforms WHERE unserved_since IS NOT NULL
    """,
    ConcernKind.CLOCK_UNREAD: """
        SELECT project_id, platform AS subject, coalesce(clock_fault ->> 'message', '') AS cause, 1 AS count
        FROM order_platforms WHERE clock_failed_since IS NOT NULL
    """,
    ConcernKind.CREDENTIALS_REFUSED: """
        SELECT project_id, platform AS subject, coalesce(credentials_fault ->> 'message', '') AS cause, 1 AS count
        FROM order_platforms WHERE credentials_failed_since IS NOT NULL
    """,
    ConcernKind.BACKFILL_FAILED: """
        SELECT p.project_id, p.platform AS subject, coalesce(b.fault ->> 'message', '') AS cause, 1 AS count
        FROM order_platforms p CROSS JOIN LATERAL (
            SELECT state, fault FROM order_backfills b WHERE b.platform = p.platform
            ORDER BY asked_at DESC, backfill_id DESC LIMIT 1
        ) b WHERE b.state = 'failed'
    """,
    ConcernKind.STALE: """
        SELECT p.project_id, p.platform AS subject, '' AS cause, count(*)
        FROM order_slices s JOIN order_platforms p USING (platform) WHERE s.stale_told_at IS NOT NULL GROUP BY 1, 2
    """,
    ConcernKind.SWEEPS_FAILED: """
        SELECT p.project_id, p.platform AS subject, coalesce(s.fault ->> 'code', '') AS cause, count(*)
        FROM order_slices s JOIN order_platforms p USING (platform)
        WHERE s.done_at IS NOT NULL AND s.swept_at IS NULL AND s.failed_at IS NOT NULL GROUP BY 1, 2, 3
    """,
}


async def count_workloads(database: Database) -> WorkByProject:
    """Count slices that are unfinished, stale or whose sweep failed, and platforms that are not being fetched."""
    async with database.connection() as connection:
        unfinished = parse_workloads(await connection.fetch(_SLICES))
        failed = parse_uncounted_concerns(ConcernKind.FAILED, await connection.fetch(_FAILED))
        standstills = [parse_concerns(kind, await connection.fetch(query)) for kind, query in _STANDSTILLS.items()]
    return merge_workloads(unfinished, failed, *standstills)

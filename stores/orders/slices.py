"""Slices as operators see them: lists, the failed set, counts by platform, a timeline, and the ends of sweeps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, select, tuple_

from domain.faults import FaultRecord
from domain.orders import confirmation
from domain.orders.slices import RereadState, SliceState
from domain.orders.windows import TimeWindow
from infra.database import Database, Session
from stores import keyset
from stores.orders import ledger
from stores.tables.orders import OrderPlatform, OrderSlice

IsAlarmDue: TypeAlias = bool


@dataclass(frozen=True, slots=True)
class SliceFilter:
    """Filter of a platform's slices; None matches all."""

    platform: str
    state: SliceState | None = None
    reread: RereadState | None = None
    is_stale: bool = False
    """Only those that were reported to take too long."""

    has_failed_sweep: bool = False
    ends_after: datetime | None = None
    begins_before: datetime | None = None
    code: str | None = None
    """Code of the fault that they failed with."""

    windows: Collection[TimeWindow] | None = None


@dataclass(frozen=True, slots=True)
class OpenAndFailedSliceCounts:
    """Numbers of a platform's failed, open and stale slices, and of its failed sweeps."""

    slices_failed: int = 0
    slices_open: int = 0
    slices_stale: int = 0
    sweeps_failed: int = 0


@dataclass(frozen=True, slots=True)
class LateOrdersFoundBySweeps:
    """Orders that only sweeps found, and the greatest recent lateness."""

    missed: int
    late_seconds: float | None


async def list_slice_page_plus_one(
    session: Session, filters: SliceFilter, after: tuple[datetime, int] | None, limit: int
) -> Sequence[OrderSlice]:
    """List slices, latest first, and one more if another page follows."""
    statement = select(OrderSlice).where(*_build_conditions(filters))
    statement = keyset.select_page_plus_one(statement, (OrderSlice.start_at, OrderSlice.slice_id), after, limit)
    return (await session.exec(statement)).all()


async def lock_oldest_matching_slices(session: Session, filters: SliceFilter, limit: int) -> Sequence[OrderSlice]:
    """Lock and return the oldest matching slices."""
    statement = select(OrderSlice).where(*_build_conditions(filters)).order_by(col(OrderSlice.start_at)).limit(limit)
    return (await session.exec(statement.with_for_update())).all()


async def list_oldest_unfinished_windows(session: Session, platform: str, limit: int) -> list[TimeWindow]:
    """List the windows of the oldest slices that are neither read nor skipped."""
    statement = (
        select(OrderSlice)
        .where(OrderSlice.platform == platform, ledger.build_unfinished_condition())
        .order_by(col(OrderSlice.start_at))
        .limit(limit)
    )
    return [ledger.build_window(row) for row in await session.exec(statement)]


async def count_open_and_failed_by_platform(
    session: Session, platforms: Collection[str]
) -> dict[str, OpenAndFailedSliceCounts]:
    """Count slices by platform; platforms without any such slice are left out."""
    has_failed = col(OrderSlice.failed_at).is_not(None)
    statement = (
        select(OrderSlice.platform, has_failed, func.count())
        .where(col(OrderSlice.platform).in_(platforms), ledger.build_unfinished_condition())
        .group_by(col(OrderSlice.platform), has_failed)
    )
    counts: dict[str, OpenAndFailedSliceCounts] = {}
    for platform, failed, count in await session.exec(statement):
        before = counts.get(platform, OpenAndFailedSliceCounts())
        counts[platform] = replace(before, slices_failed=count) if failed else replace(before, slices_open=count)
    stale = (
        select(OrderSlice.platform, func.count())
        .where(col(OrderSlice.platform).in_(platforms), col(OrderSlice.stale_told_at).is_not(None))
        .group_by(col(OrderSlice.platform))
    )
    for platform, count in await session.exec(stale):
        counts[platform] = replace(counts.get(platform, OpenAndFailedSliceCounts()), slices_stale=count)
    for platform, count in (await count_failed_sweeps(session, platforms)).items():
        counts[platform] = replace(counts.get(platform, OpenAndFailedSliceCounts()), sweeps_failed=count)
    return counts


async def load_late_orders_from_sweeps(session: Session, platform: str, now: datetime) -> LateOrdersFoundBySweeps:
    """Read what sweeps found in a platform's slices."""
    is_recent = col(OrderSlice.swept_at) > now - confirmation.LATENESS_KEPT
    statement = select(
        func.coalesce(func.sum(OrderSlice.missed), 0), func.max(OrderSlice.late_seconds).filter(is_recent)
    ).where(OrderSlice.platform == platform, col(OrderSlice.missed) > 0)
    missed, late_seconds = (await session.exec(statement)).one()
    return LateOrdersFoundBySweeps(missed or 0, late_seconds)


async def mark_slice_skipped(session: Session, row: OrderSlice, reason: str) -> None:
    """Give a slice up, and keep the reason."""
    row.skipped_at, row.reason, row.stale_told_at = await ledger.read_database_time(session), reason, None
    session.add(row)


async def undo_changes_of_dry_run(session: Session) -> None:
    """Undo what the session has changed so far: a dry run."""
    await session.rollback()


def _build_conditions(filters: SliceFilter) -> list[ColumnElement[bool]]:
    conditions = [col(OrderSlice.platform) == filters.platform]
    if filters.windows is not None:
        spans = [(window.start, window.end) for window in filters.windows]
        conditions.append(tuple_(col(OrderSlice.start_at), col(OrderSlice.end_at)).in_(spans))
    if filters.state is not None:
        conditions.append(_build_state_condition(filters.state))
    if filters.reread is not None:
        conditions.append(_build_reread_condition(filters.reread))
    if filters.is_stale:
        conditions.append(col(OrderSlice.stale_told_at).is_not(None))
    if filters.has_failed_sweep:
        conditions.append(build_failed_sweep_condition())
    if filters.ends_after is not None:
        conditions.append(ledger.build_ends_after_condition(filters.ends_after))
    if filters.begins_before is not None:
        conditions.append(col(OrderSlice.start_at) < filters.begins_before)
    if filters.code is not None:
        conditions.append(col(OrderSlice.fault)["code"].as_string() == filters.code)
    return conditions


def _build_state_condition(state: SliceState) -> ColumnElement[bool]:
    match state:
        case SliceState.SPLIT:
            return col(OrderSlice.split_at).is_not(None)
        case SliceState.SKIPPED:
            return col(OrderSlice.skipped_at).is_not(None)
        case SliceState.DONE:
            return col(OrderSlice.done_at).is_not(None)
        case SliceState.FAILED:
            return and_(ledger.build_unfinished_condition(), col(OrderSlice.failed_at).is_not(None))
        case SliceState.OPEN:
            return and_(ledger.build_unfinished_condition(), col(OrderSlice.failed_at).is_(None))


def _build_reread_condition(state: RereadState) -> ColumnElement[bool]:
    since, ended, fault = col(OrderSlice.reread_since), col(OrderSlice.reread_at), col(OrderSlice.reread_fault)
    match state:
        case RereadState.RUNNING:
            return since.is_not(None)
        case RereadState.SUCCEEDED:
            return and_(since.is_(None), ended.is_not(None), fault.is_(None))
        case RereadState.FAILED:
            return and_(since.is_(None), ended.is_not(None), fault.is_not(None))


# A slice that is longer than a bucket spans several; its figures count where it begins. A slice never begins more than
# its greatest length before a time that it overlaps, which lets the index find the first.
_TIMELINE = """
    SELECT bucket AS number, count(*) AS slices,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NULL AND failed_at IS NULL) AS open,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NULL AND failed_at IS NOT NULL) AS failed,
        count(*) FILTER (WHERE done_at IS NOT NULL) AS done,
        count(*) FILTER (WHERE done_at IS NULL AND skipped_at IS NOT NULL) AS skipped,
        count(*) FILTER (WHERE swept_at IS NOT NULL) AS swept,
        coalesce(sum(missed) FILTER (WHERE bucket = greatest(0, first)), 0) AS missed,
        coalesce(sum(orders) FILTER (WHERE bucket = greatest(0, first)), 0) AS orders
    FROM (
        SELECT *, floor(extract(epoch FROM start_at - $2::timestamptz) / $4)::bigint AS first,
            ceil(extract(epoch FROM end_at - $2::timestamptz) / $4)::bigint - 1 AS last
        FROM order_slices
        WHERE platform = $1 AND split_at IS NULL AND start_at < $3 AND end_at > $2 AND start_at > $2 - $6::interval
    ) AS slice, generate_series(greatest(0, first), least($5::int - 1, last)) AS bucket
    GROUP BY bucket ORDER BY bucket
"""


@dataclass(frozen=True, slots=True)
class SliceCountsOfTimelineBucket:
    """Counts of the slices that overlap one of the equal parts of a time."""

    number: int
    """Counted from 0."""

    slices: int
    open: int
    failed: int
    done: int
    skipped: int
    swept: int
    missed: int
    """Orders that only a sweep found, in slices that begin in this bucket."""

    orders: int
    """Orders of the slices that begin in this bucket."""


async def count_slices_by_bucket(
    database: Database, platform: str, start: datetime, end: datetime, bucket_count: int
) -> list[SliceCountsOfTimelineBucket]:
    """List the buckets of a time that a platform's slices overlap."""
    bucket_seconds = (end - start).total_seconds() / bucket_count
    async with database.connection() as connection:
        rows = await connection.fetch(_TIMELINE, platform, start, end, bucket_seconds, bucket_count, ledger.SLICE_MAX)
    return [SliceCountsOfTimelineBucket(**dict(row)) for row in rows]


def build_failed_sweep_condition() -> ColumnElement[bool]:
    """Complete, and its last sweep has failed."""
    return and_(
        col(OrderSlice.done_at).is_not(None),
        col(OrderSlice.swept_at).is_(None),
        col(OrderSlice.failed_at).is_not(None),
    )


async def record_failed_sweep(
    session: Session, platform: OrderPlatform, window: TimeWindow, fault: FaultRecord, call: str
) -> IsAlarmDue:
    """Record that the sweep of a slice has failed; return whether an alarm is due. The platform's row must be locked.

    A failed sweep is repeated after `sweep_after` seconds. When a slice's sweep fails a second time in a row, an alarm
    is sent, once for a platform until none of its sweeps fails any more.

    Args:
        call: Of the activity that records it: repeated, it counts no other failure, and returns the same.
    """
    row = await ledger.find_slice(session, platform.platform, window, lock=True)
    if row is None or row.done_at is None or row.swept_at is not None:
        return False
    if row.failed_at is not None and row.sweep_holder != call:
        platform.sweeps_alarm_by = platform.sweeps_alarm_by or call
    row.failed_at, row.fault, row.sweep_holder = await ledger.read_database_time(session), fault.model_dump(), call
    session.add_all([row, platform])
    return platform.sweeps_alarm_by == call


async def record_completed_sweep_and_rearm_failure_alarm(
    session: Session, platform: OrderPlatform, row: OrderSlice, missed: int, late_seconds: float | None
) -> None:
    """Record that a slice is swept, and what only that found. The platform's row must be locked."""
    row.swept_at, row.missed, row.late_seconds = await ledger.read_database_time(session), missed, late_seconds
    row.failed_at, row.fault, row.sweep_holder = None, None, None
    session.add(row)
    if platform.sweeps_alarm_by is not None:
        await session.flush()
        if not await count_failed_sweeps(session, [platform.platform]):
            platform.sweeps_alarm_by = None


async def count_failed_sweeps(session: Session, platforms: Collection[str]) -> dict[str, int]:
    """Count the slices of each platform whose last sweep failed; platforms without one are left out."""
    statement = (
        select(OrderSlice.platform, func.count())
        .where(col(OrderSlice.platform).in_(platforms), build_failed_sweep_condition())
        .group_by(col(OrderSlice.platform))
    )
    return dict((await session.exec(statement)).all())

"""Slices as operators look at them: lists, the failed set, and figures by platform."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, select, tuple_

from domain.orders import confirmation
from domain.orders.slices import RereadState, SliceState
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders import ledger, sweeps
from stores.shared import keyset
from stores.tables.orders import OrderSlice


@dataclass(frozen=True, slots=True)
class SliceFilter:
    """Which slices of a platform; None where it does not matter."""

    platform: str
    state: SliceState | None = None
    reread: RereadState | None = None
    is_stale: bool = False
    """Only those that were reported to take too long."""

    has_failed_sweep: bool = False
    ends_after: datetime | None = None
    begins_before: datetime | None = None
    code: str | None = None
    """Of the fault that they failed with."""

    windows: Collection[TimeWindow] | None = None


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """How many slices of a platform have failed, are open, were reported to be stale, and failed to be swept."""

    failed: int = 0
    open: int = 0
    stale: int = 0
    sweeps_failed: int = 0


@dataclass(frozen=True, slots=True)
class Lateness:
    """How many orders of a platform only a sweep found, and how late they were of late."""

    missed: int
    late_seconds: float | None


async def list_page(
    session: Session, wanted: SliceFilter, after: tuple[datetime, int] | None, limit: int
) -> Sequence[OrderSlice]:
    """Slices, the latest first, and one more if another page follows."""
    statement = select(OrderSlice).where(*_conditions(wanted))
    statement = keyset.select_page(statement, (OrderSlice.start_at, OrderSlice.slice_id), after, limit)
    return (await session.exec(statement)).all()


async def lock_oldest(session: Session, wanted: SliceFilter, limit: int) -> Sequence[OrderSlice]:
    """The oldest slices that fit, locked."""
    statement = select(OrderSlice).where(*_conditions(wanted)).order_by(col(OrderSlice.start_at)).limit(limit)
    return (await session.exec(statement.with_for_update())).all()


async def list_unfinished(session: Session, platform: str, limit: int) -> list[TimeWindow]:
    """The windows of the oldest slices that are neither read nor skipped."""
    statement = (
        select(OrderSlice)
        .where(OrderSlice.platform == platform, ledger.unfinished())
        .order_by(col(OrderSlice.start_at))
        .limit(limit)
    )
    return [ledger.window_of(row) for row in await session.exec(statement)]


async def count_by_platform(session: Session, platforms: Collection[str]) -> dict[str, SliceCounts]:
    """How the slices of these platforms stand; one without any that is worth a word is left out."""
    has_failed = col(OrderSlice.failed_at).is_not(None)
    statement = (
        select(OrderSlice.platform, has_failed, func.count())
        .where(col(OrderSlice.platform).in_(platforms), ledger.unfinished())
        .group_by(col(OrderSlice.platform), has_failed)
    )
    counts: dict[str, SliceCounts] = {}
    for platform, failed, count in await session.exec(statement):
        before = counts.get(platform, SliceCounts())
        counts[platform] = replace(before, failed=count) if failed else replace(before, open=count)
    stale = (
        select(OrderSlice.platform, func.count())
        .where(col(OrderSlice.platform).in_(platforms), col(OrderSlice.stale_told_at).is_not(None))
        .group_by(col(OrderSlice.platform))
    )
    for platform, count in await session.exec(stale):
        counts[platform] = replace(counts.get(platform, SliceCounts()), stale=count)
    for platform, count in (await sweeps.count_failed(session, platforms)).items():
        counts[platform] = replace(counts.get(platform, SliceCounts()), sweeps_failed=count)
    return counts


async def read_lateness(session: Session, platform: str, now: datetime) -> Lateness:
    """What sweeps found in a platform's slices."""
    is_recent = col(OrderSlice.swept_at) > now - confirmation.LATENESS_KEPT
    statement = select(
        func.coalesce(func.sum(OrderSlice.missed), 0), func.max(OrderSlice.late_seconds).filter(is_recent)
    ).where(OrderSlice.platform == platform)
    missed, late_seconds = (await session.exec(statement)).one()
    return Lateness(missed or 0, late_seconds)


async def skip(session: Session, row: OrderSlice, reason: str) -> None:
    """Give a slice up, for a reason that is kept."""
    row.skipped_at, row.reason, row.stale_told_at = await ledger.database_now(session), reason, None
    session.add(row)


def _conditions(wanted: SliceFilter) -> list[ColumnElement[bool]]:
    conditions = [col(OrderSlice.platform) == wanted.platform]
    if wanted.windows is not None:
        spans = [(window.start, window.end) for window in wanted.windows]
        conditions.append(tuple_(col(OrderSlice.start_at), col(OrderSlice.end_at)).in_(spans))
    if wanted.state is not None:
        conditions.append(_is_in(wanted.state))
    if wanted.reread is not None:
        conditions.append(_is_reread(wanted.reread))
    if wanted.is_stale:
        conditions.append(col(OrderSlice.stale_told_at).is_not(None))
    if wanted.has_failed_sweep:
        conditions.append(sweeps.has_failed())
    if wanted.ends_after is not None:
        conditions.append(col(OrderSlice.end_at) > wanted.ends_after)
    if wanted.begins_before is not None:
        conditions.append(col(OrderSlice.start_at) < wanted.begins_before)
    if wanted.code is not None:
        conditions.append(col(OrderSlice.fault)["code"].as_string() == wanted.code)
    return conditions


def _is_in(state: SliceState) -> ColumnElement[bool]:
    match state:
        case SliceState.SPLIT:
            return col(OrderSlice.split_at).is_not(None)
        case SliceState.SKIPPED:
            return col(OrderSlice.skipped_at).is_not(None)
        case SliceState.DONE:
            return col(OrderSlice.done_at).is_not(None)
        case SliceState.FAILED:
            return and_(ledger.unfinished(), col(OrderSlice.failed_at).is_not(None))
        case SliceState.OPEN:
            return and_(ledger.unfinished(), col(OrderSlice.failed_at).is_(None))


def _is_reread(state: RereadState) -> ColumnElement[bool]:
    since, ended, fault = col(OrderSlice.reread_since), col(OrderSlice.reread_at), col(OrderSlice.reread_fault)
    match state:
        case RereadState.RUNNING:
            return since.is_not(None)
        case RereadState.SUCCEEDED:
            return and_(since.is_(None), ended.is_not(None), fault.is_(None))
        case RereadState.FAILED:
            return and_(since.is_(None), ended.is_not(None), fault.is_not(None))

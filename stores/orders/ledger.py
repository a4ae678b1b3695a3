"""The ledger of slices and the marks above it. Whoever moves a mark holds the platform's row."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from typing import Any, Final

from sqlalchemy import ColumnElement, update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import and_, col, func, or_, select

from domain.faults import FaultRecord
from domain.orders import config, names, windows
from domain.orders.activity_models import ReadSliceInput, SliceJob
from domain.orders.slices import ReadPurpose
from domain.orders.watermarks import SliceClaim, SliceTrack, Watermarks
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders.configuration import Standing
from stores.tables.orders import OrderPlatform, OrderSlice

SWEEP_SUFFIX: Final = "sweep"


class Taken(Enum):
    """Whether an attempt may read its slice."""

    NOT = auto()
    OPEN = auto()
    COMPLETE = auto()
    """It was complete before: however many orders it holds by now, it is not split any more."""


async def database_now(session: Session) -> datetime:
    """The clock that all workers have in common."""
    now: datetime = (await session.exec(select(func.clock_timestamp()))).one()
    return now.astimezone(UTC)


def marks_of(row: OrderPlatform) -> Watermarks | None:
    """How far a platform is claimed; none before its first claim."""
    if row.starts_at is None:
        return None
    return Watermarks.model_validate(row, from_attributes=True)


def unfinished() -> ColumnElement[bool]:
    """Neither read nor skipped, and not replaced by halves."""
    return and_(
        col(OrderSlice.done_at).is_(None), col(OrderSlice.skipped_at).is_(None), col(OrderSlice.split_at).is_(None)
    )


def window_of(row: OrderSlice) -> TimeWindow:
    """The window of a slice."""
    return TimeWindow(start=row.start_at, end=row.end_at)


def _is(platform: str, window: TimeWindow) -> ColumnElement[bool]:
    return and_(
        col(OrderSlice.platform) == platform,
        col(OrderSlice.start_at) == window.start,
        col(OrderSlice.end_at) == window.end,
    )


async def claim(session: Session, here: Standing, platform_now: datetime, most: Mapping[SliceTrack, int]) -> None:
    """Claim the next slices, as far as the platform's orders have settled. Its row must be locked."""
    settings, row = here.settings, here.row
    settled = platform_now - timedelta(seconds=settings.settle_lag)
    horizon = windows.floor_to_second(min(settled, here.capability.newest_end(platform_now)))
    standing = marks_of(row)
    if standing is None:
        starts_at = config.resolve_starttime(settings.starttime, platform_now)
        if starts_at + timedelta(seconds=settings.interval) > horizon:
            return
        standing = Watermarks.first(starts_at, horizon, settings.interval)
    standing, claims = standing.claim(horizon, settings.interval, most)
    await _enter(session, row.platform, claims)
    _note(row, standing)


async def waiting(session: Session, platform: str) -> dict[SliceTrack, int]:
    """How many slices of each track are claimed and wait to be read."""
    statement = (
        select(OrderSlice.track, func.count())
        .where(OrderSlice.platform == platform, unfinished(), col(OrderSlice.failed_at).is_(None))
        .group_by(col(OrderSlice.track))
    )
    counts = {row[0]: row[1] for row in await session.exec(statement)}
    return {track: counts.get(track, 0) for track in SliceTrack}


async def due(
    session: Session, platform: str, track: SliceTrack, running: Collection[TimeWindow], most: int
) -> list[SliceJob]:
    """The slices of a track to be read that nobody in this cycle reads, oldest first."""
    waits = (OrderSlice.platform == platform, unfinished(), col(OrderSlice.failed_at).is_(None))
    statement = (
        select(OrderSlice)
        .where(*waits, OrderSlice.track == track)
        .order_by(col(OrderSlice.start_at))
        .limit(most + len(running))
    )
    jobs = [SliceJob(window=window_of(row), track=track) for row in await session.exec(statement)]
    return [job for job in jobs if job.window not in running][:most]


async def sweepable(session: Session, here: Standing, running: Collection[TimeWindow], most: int) -> list[SliceJob]:
    """Slices that were read so long ago that what was late has shown up; one whose sweep failed waits as long again."""
    if not here.settings.sweep_after:
        return []
    before = await database_now(session) - timedelta(seconds=here.settings.sweep_after)
    statement = (
        select(OrderSlice)
        .where(
            OrderSlice.platform == here.row.platform,
            col(OrderSlice.done_at) < before,
            col(OrderSlice.swept_at).is_(None),
            or_(col(OrderSlice.failed_at).is_(None), col(OrderSlice.failed_at) < before),
        )
        .order_by(col(OrderSlice.done_at))
        .limit(most + len(running))
    )
    rows = (await session.exec(statement)).all()
    jobs = [
        SliceJob(window=window_of(row), track=SliceTrack.HISTORY, purpose=ReadPurpose.SWEEP, suffix=SWEEP_SUFFIX)
        for row in rows
    ]
    return [job for job in jobs if job.window not in running][:most]


async def holding(session: Session, platform: str, moment: datetime) -> list[SliceJob]:
    """The complete slices that hold a moment, to be read again."""
    return await rereadable(session, platform, moment, moment + windows.SECOND, 1)


async def rereadable(session: Session, platform: str, after: datetime, before: datetime, most: int) -> list[SliceJob]:
    """The first complete slices that reach into a time, to be read again."""
    statement = (
        select(OrderSlice).where(_is_rereadable(platform, after, before)).order_by(col(OrderSlice.start_at)).limit(most)
    )
    again = {"track": SliceTrack.HISTORY, "purpose": ReadPurpose.AGAIN, "suffix": names.REDO_SUFFIX}
    return [SliceJob(window=window_of(row), **again) for row in await session.exec(statement)]


async def count_rereadable(session: Session, platform: str, after: datetime, before: datetime) -> int:
    """How many complete slices reach into a time."""
    statement = select(func.count()).select_from(OrderSlice).where(_is_rereadable(platform, after, before))
    return (await session.exec(statement)).one()


def _is_rereadable(platform: str, after: datetime, before: datetime) -> ColumnElement[bool]:
    return and_(
        col(OrderSlice.platform) == platform,
        col(OrderSlice.start_at) < before,
        col(OrderSlice.end_at) > after,
        col(OrderSlice.split_at).is_(None),
        col(OrderSlice.done_at).is_not(None),
    )


async def _hold_complete(session: Session, order: ReadSliceInput) -> None:
    """Note which attempt reads a complete slice again and, where somebody asked for that, since when."""
    values: dict[str, Any] = {"sweep_holder": order.holder}
    if order.purpose is ReadPurpose.AGAIN:
        since = func.coalesce(OrderSlice.reread_since, func.now())
        values = {"reread_holder": order.holder, "reread_since": since, "reread_fault": None}
    complete = _is(order.platform, order.window), col(OrderSlice.done_at).is_not(None)
    await session.exec(update(OrderSlice).where(*complete).values(**values))


def may_commit(row: OrderSlice, order: ReadSliceInput) -> bool:
    """Whether an attempt is still the one that counts: a worker that was taken for dead changes nothing."""
    if row.split_at is not None or row.skipped_at is not None:
        return False
    if row.done_at is None:
        return row.holder == order.holder
    match order.purpose:
        case ReadPurpose.FIRST:
            return False
        case ReadPurpose.AGAIN:
            return row.reread_holder == order.holder
        case ReadPurpose.SWEEP:
            return row.sweep_holder == order.holder


async def fail_reread(session: Session, platform: str, window: TimeWindow, fault: FaultRecord) -> None:
    """Note that a complete slice could not be read again; what was read before stays, and no mark moves."""
    ended = {"reread_since": None, "reread_at": func.now(), "reread_holder": None, "stale_told_at": None}
    values = {**ended, "reread_fault": fault.model_dump()}
    await session.exec(
        update(OrderSlice).where(_is(platform, window), col(OrderSlice.done_at).is_not(None)).values(**values)
    )


async def find(session: Session, platform: str, window: TimeWindow, *, lock: bool = False) -> OrderSlice | None:
    """A slice as the ledger has it."""
    statement = select(OrderSlice).where(_is(platform, window))
    return (await session.exec(statement.with_for_update() if lock else statement)).one_or_none()


async def take(session: Session, order: ReadSliceInput, skew_seconds: float) -> Taken:
    """Take a slice for an attempt: from now on no attempt that took it before can commit what it read."""
    if order.purpose is not ReadPurpose.FIRST:
        row = await find(session, order.platform, order.window)
        if row is None or row.split_at is not None:
            return Taken.NOT
        if row.done_at is not None:
            await _hold_complete(session, order)
            return Taken.COMPLETE
    read_at = await database_now(session) + timedelta(seconds=skew_seconds)
    statement = (
        update(OrderSlice)
        .where(_is(order.platform, order.window), unfinished())
        .values(
            holder=order.holder,
            attempts=OrderSlice.attempts + 1,
            settings_version=order.settings.version,
            read_at=func.coalesce(OrderSlice.read_at, read_at),
        )
    )
    return Taken.OPEN if (await session.exec(statement)).rowcount else Taken.NOT


async def split(session: Session, row: OrderSlice, halves: Iterable[TimeWindow]) -> list[SliceJob]:
    """Replace a slice by its halves."""
    row.split_at = await database_now(session)
    row.holder, row.stale_told_at = None, None
    session.add(row)
    await session.flush()
    track = SliceTrack(row.track)
    await _enter(session, row.platform, [SliceClaim(window=window, track=track) for window in halves])
    return [SliceJob(window=window, track=track) for window in halves]


async def fail(session: Session, platform: str, window: TimeWindow, fault: FaultRecord, reader: str) -> bool:
    """Put a slice into the failed set, unless somebody finished it meanwhile or another workflow reads it."""
    is_ours = or_(col(OrderSlice.holder).startswith(f"{reader}/", autoescape=True), col(OrderSlice.holder).is_(None))
    statement = update(OrderSlice).where(_is(platform, window), unfinished(), is_ours)
    values = {"failed_at": func.now(), "fault": fault.model_dump(), "holder": None, "stale_told_at": None}
    return bool((await session.exec(statement.values(**values))).rowcount)


async def complete(session: Session, row: OrderPlatform) -> None:
    """Move `complete_to` up to the first slice that is not finished. The platform's row must be locked."""
    standing = marks_of(row)
    if standing is None:
        return
    await session.flush()
    statement = select(func.min(OrderSlice.start_at)).where(OrderSlice.platform == row.platform, unfinished())
    _note(row, standing.completed((await session.exec(statement)).one()))
    session.add(row)


async def _enter(session: Session, platform: str, claims: Sequence[SliceClaim]) -> None:
    if claims:
        values = [
            {"platform": platform, "start_at": each.window.start, "end_at": each.window.end, "track": each.track}
            for each in claims
        ]
        await session.exec(insert(OrderSlice).values([{**each, "attempts": 0} for each in values]))


def _note(row: OrderPlatform, marks: Watermarks) -> None:
    for name in Watermarks.model_fields:
        setattr(row, name, getattr(marks, name))

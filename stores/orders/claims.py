"""Claims: which slices a cycle or a backfill reads next. Whatever moves a watermark locks the platform's row."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import ColumnElement
from sqlmodel import and_, col, func, or_, select

from domain.orders import config, names, windows
from domain.orders.activity_models import ClaimInput, ClaimSlicesResult, SliceJob
from domain.orders.slices import ReadPurpose
from domain.orders.watermarks import SliceTrack, Watermarks
from domain.orders.windows import TimeWindow
from infra.database import Database, Session
from stores.orders import ledger, platforms
from stores.orders.ledger import database_now, enter, is_unfinished, set_watermarks, to_watermarks, to_window
from stores.orders.platforms import PlatformState
from stores.tables.orders import OrderPlatform, OrderSlice


async def claim(database: Database, params: ClaimInput, *, is_paused: bool, slices_ahead: int) -> ClaimSlicesResult:
    """Claim the next slices and return those to read now; or those of a time in the past, to be read again.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        here = await platforms.load(session, params.platform, lock=True)
        row, threads = here.row, here.settings.threads
        if (when := _find_reread_time(params, row)) is not None:
            jobs = await _list_at(session, params.platform, when)
            return ClaimSlicesResult(project_id=row.project_id, jobs=jobs, threads=threads, rereads=True)
        if is_paused:
            return ClaimSlicesResult(project_id=row.project_id, jobs=[], threads=threads, is_paused=True)
        # Where the credentials are refused, a single slice of both tracks tries whether they work again.
        is_refused = row.credentials_failed_since is not None
        ahead = 1 if is_refused else slices_ahead
        if params.skew_seconds is not None:
            waiting = await _count_waiting(session, params.platform)
            room_by_track = {track: max(0, ahead - waiting[track]) for track in SliceTrack}
            platform_now = await ledger.database_now(session) + timedelta(seconds=params.skew_seconds)
            await _claim_settled(session, here, platform_now, room_by_track)
            session.add(row)
            await session.flush()
        room = max(0, ahead - len(params.running))
        jobs = await _list_due(session, params.platform, SliceTrack.LIVE, params.running, ahead)
        jobs += await _list_due(session, params.platform, SliceTrack.HISTORY, params.running, room)
        jobs = jobs[:room] if is_refused else jobs
        if not jobs:
            jobs = await _list_due_sweeps(session, here, params.running, min(room, threads))
        return ClaimSlicesResult(project_id=row.project_id, jobs=jobs, threads=threads)


def _find_reread_time(params: ClaimInput, row: OrderPlatform) -> datetime | None:
    """Return the time whose slices are read again, where the run was due before `claimed_to`."""
    when, skew = params.scheduled_at, timedelta(seconds=params.skew_seconds or row.skew_seconds or 0.0)
    return when if when is not None and row.claimed_to is not None and when + skew < row.claimed_to else None


SWEEP_SUFFIX: Final = "sweep"


async def _claim_settled(
    session: Session, here: PlatformState, platform_now: datetime, most: Mapping[SliceTrack, int]
) -> None:
    """Claim the next slices, as far as the platform's orders have settled. Its row must be locked."""
    settings, row = here.settings, here.row
    settled = platform_now - timedelta(seconds=settings.settle_lag)
    horizon = windows.floor_to_second(min(settled, here.capability.newest_end(platform_now)))
    standing = to_watermarks(row)
    if standing is None:
        starts_at = config.resolve_starttime(settings.starttime, platform_now)
        if starts_at + timedelta(seconds=settings.interval) > horizon:
            return
        standing = Watermarks.first(starts_at, horizon, settings.interval)
    standing, claims = standing.claim(horizon, settings.interval, most)
    await enter(session, row.platform, claims)
    set_watermarks(row, standing)


async def _count_waiting(session: Session, platform: str) -> dict[SliceTrack, int]:
    """Count the claimed slices that wait to be read, by track."""
    statement = (
        select(OrderSlice.track, func.count())
        .where(OrderSlice.platform == platform, is_unfinished(), col(OrderSlice.failed_at).is_(None))
        .group_by(col(OrderSlice.track))
    )
    counts = {row[0]: row[1] for row in await session.exec(statement)}
    return {track: counts.get(track, 0) for track in SliceTrack}


async def _list_due(
    session: Session, platform: str, track: SliceTrack, running: Collection[TimeWindow], most: int
) -> list[SliceJob]:
    """List the slices of a track that are to be read and not running, oldest first."""
    waits = (OrderSlice.platform == platform, is_unfinished(), col(OrderSlice.failed_at).is_(None))
    statement = (
        select(OrderSlice)
        .where(*waits, OrderSlice.track == track)
        .order_by(col(OrderSlice.start_at))
        .limit(most + len(running))
    )
    jobs = [SliceJob(window=to_window(row), track=track) for row in await session.exec(statement)]
    return [job for job in jobs if job.window not in running][:most]


async def _list_due_sweeps(
    session: Session, here: PlatformState, running: Collection[TimeWindow], most: int
) -> list[SliceJob]:
    """List the slices whose sweep is due; one whose sweep failed waits as long again."""
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
        SliceJob(window=to_window(row), track=SliceTrack.HISTORY, purpose=ReadPurpose.SWEEP, suffix=SWEEP_SUFFIX)
        for row in rows
    ]
    return [job for job in jobs if job.window not in running][:most]


async def _list_at(session: Session, platform: str, moment: datetime) -> list[SliceJob]:
    """List the complete slice that holds a moment, to be read again."""
    return await list_rereadable(session, platform, moment, moment + windows.SECOND, 1)


async def list_rereadable(
    session: Session, platform: str, after: datetime, before: datetime, most: int
) -> list[SliceJob]:
    """List the first complete slices that overlap a time, to be read again."""
    statement = (
        select(OrderSlice).where(_is_rereadable(platform, after, before)).order_by(col(OrderSlice.start_at)).limit(most)
    )
    again = {"track": SliceTrack.HISTORY, "purpose": ReadPurpose.AGAIN, "suffix": names.REDO_SUFFIX}
    return [SliceJob(window=to_window(row), **again) for row in await session.exec(statement)]


async def count_rereadable(session: Session, platform: str, after: datetime, before: datetime) -> int:
    """Count the complete slices that overlap a time."""
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

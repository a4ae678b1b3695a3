"""The ledger of slices: which are claimed and read next, which attempt may read one, how it ends, and the watermarks.

Whatever moves a watermark locks the platform's row.
"""

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
from domain.orders.activity_models import ClaimSlicesInput, ClaimSlicesResult, ReadSliceInput, SliceJob
from domain.orders.slices import SliceReadPurpose
from domain.orders.windows import LiveOrHistory, SliceClaim, TimeWindow, Watermarks
from infra.database import Database, Session
from stores.orders import platforms
from stores.orders.platforms import PlatformWithSettingsInForce
from stores.tables.orders import OrderPlatform, OrderSlice


class SliceStateWhenTaken(Enum):
    """Whether an attempt may read its slice."""

    NOT = auto()
    OPEN = auto()
    COMPLETE = auto()
    """It was complete before: however many orders it has by now, it is not split any more."""


async def read_database_time(session: Session) -> datetime:
    """Return the database's time, which all workers share."""
    now: datetime = (await session.exec(select(func.clock_timestamp()))).one()
    return now.astimezone(UTC)


def build_watermarks(row: OrderPlatform) -> Watermarks | None:
    """Return the watermarks of a platform; None before its first claim."""
    if row.starts_at is None:
        return None
    return Watermarks.model_validate(row, from_attributes=True)


def build_unfinished_condition() -> ColumnElement[bool]:
    """Neither read nor skipped, and not replaced by halves."""
    return and_(
        col(OrderSlice.done_at).is_(None), col(OrderSlice.skipped_at).is_(None), col(OrderSlice.split_at).is_(None)
    )


def build_window(row: OrderSlice) -> TimeWindow:
    """Return the window of a slice."""
    return TimeWindow(start=row.start_at, end=row.end_at)


def _build_slice_condition(platform: str, window: TimeWindow) -> ColumnElement[bool]:
    return and_(
        col(OrderSlice.platform) == platform,
        col(OrderSlice.start_at) == window.start,
        col(OrderSlice.end_at) == window.end,
    )


async def _set_holder_of_complete_slice(session: Session, params: ReadSliceInput) -> None:
    """Record which attempt reads a complete slice again and, where that was requested, since when."""
    values: dict[str, Any] = {"sweep_holder": params.holder}
    if params.purpose is SliceReadPurpose.AGAIN:
        since = func.coalesce(OrderSlice.reread_since, func.now())
        values = {"reread_holder": params.holder, "reread_since": since, "reread_fault": None}
    complete = _build_slice_condition(params.platform, params.window), col(OrderSlice.done_at).is_not(None)
    await session.exec(update(OrderSlice).where(*complete).values(**values))


def is_attempt_still_holder(row: OrderSlice, params: ReadSliceInput) -> bool:
    """Return whether an attempt still has its slice: a worker that was considered lost can write nothing."""
    if row.split_at is not None or row.skipped_at is not None:
        return False
    if row.done_at is None:
        return row.holder == params.holder
    match params.purpose:
        case SliceReadPurpose.FIRST:
            return False
        case SliceReadPurpose.AGAIN:
            return row.reread_holder == params.holder
        case SliceReadPurpose.SWEEP:
            return row.sweep_holder == params.holder


async def record_failed_reread(session: Session, platform: str, window: TimeWindow, fault: FaultRecord) -> None:
    """Record that a complete slice could not be read again; its earlier content and the watermarks stay."""
    ended = {"reread_since": None, "reread_at": func.now(), "reread_holder": None, "stale_told_at": None}
    values = {**ended, "reread_fault": fault.model_dump()}
    await session.exec(
        update(OrderSlice)
        .where(_build_slice_condition(platform, window), col(OrderSlice.done_at).is_not(None))
        .values(**values)
    )


async def find_slice(session: Session, platform: str, window: TimeWindow, *, lock: bool = False) -> OrderSlice | None:
    """Return a slice, or None."""
    statement = select(OrderSlice).where(_build_slice_condition(platform, window))
    return (await session.exec(statement.with_for_update() if lock else statement)).one_or_none()


async def set_holder_and_get_taking_result(
    session: Session, params: ReadSliceInput, skew_seconds: float
) -> SliceStateWhenTaken:
    """Take a slice for an attempt: attempts that took it before can no longer commit."""
    if params.purpose is not SliceReadPurpose.FIRST:
        row = await find_slice(session, params.platform, params.window)
        if row is None or row.split_at is not None:
            return SliceStateWhenTaken.NOT
        if row.done_at is not None:
            await _set_holder_of_complete_slice(session, params)
            return SliceStateWhenTaken.COMPLETE
    read_at = await read_database_time(session) + timedelta(seconds=skew_seconds)
    statement = (
        update(OrderSlice)
        .where(_build_slice_condition(params.platform, params.window), build_unfinished_condition())
        .values(
            holder=params.holder,
            attempts=OrderSlice.attempts + 1,
            settings_version=params.settings.version,
            read_at=func.coalesce(OrderSlice.read_at, read_at),
        )
    )
    return SliceStateWhenTaken.OPEN if (await session.exec(statement)).rowcount else SliceStateWhenTaken.NOT


async def replace_slice_by_open_halves(
    session: Session, row: OrderSlice, halves: Iterable[TimeWindow]
) -> list[SliceJob]:
    """Replace a slice by its halves."""
    row.split_at = await read_database_time(session)
    row.holder, row.stale_told_at = None, None
    session.add(row)
    await session.flush()
    track = LiveOrHistory(row.track)
    await insert_claimed_slices(session, row.platform, [SliceClaim(window=window, track=track) for window in halves])
    return [SliceJob(window=window, track=track) for window in halves]


async def fail_slice_unless_finished_or_claimed_again(
    session: Session, platform: str, window: TimeWindow, fault: FaultRecord, reader: str
) -> bool:
    """Move a slice into the failed set, unless it has been finished, or another workflow reads it."""
    is_ours = or_(col(OrderSlice.holder).startswith(f"{reader}/", autoescape=True), col(OrderSlice.holder).is_(None))
    statement = update(OrderSlice).where(
        _build_slice_condition(platform, window), build_unfinished_condition(), is_ours
    )
    values = {"failed_at": func.now(), "fault": fault.model_dump(), "holder": None, "stale_told_at": None}
    return bool((await session.exec(statement.values(**values))).rowcount)


async def advance_complete_to(session: Session, row: OrderPlatform) -> None:
    """Move `complete_to` up to the first unfinished slice. The platform's row must be locked."""
    standing = build_watermarks(row)
    if standing is None:
        return
    await session.flush()
    statement = select(func.min(OrderSlice.start_at)).where(
        OrderSlice.platform == row.platform, build_unfinished_condition()
    )
    set_watermarks(row, standing.with_complete_to_before_first_unfinished((await session.exec(statement)).one()))
    session.add(row)


async def insert_claimed_slices(session: Session, platform: str, claims: Sequence[SliceClaim]) -> None:
    if claims:
        values = [
            {"platform": platform, "start_at": each.window.start, "end_at": each.window.end, "track": each.track}
            for each in claims
        ]
        await session.exec(insert(OrderSlice).values([{**each, "attempts": 0} for each in values]))


def set_watermarks(row: OrderPlatform, marks: Watermarks) -> None:
    for name in Watermarks.model_fields:
        setattr(row, name, getattr(marks, name))


async def claim_slices(
    database: Database, params: ClaimSlicesInput, *, is_paused: bool, slices_ahead: int
) -> ClaimSlicesResult:
    """Claim the next slices and return those to read now; or those of a time in the past, to be read again.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        state = await platforms.load_platform_with_settings(session, params.platform, lock=True)
        row, threads = state.row, state.settings.threads
        if (when := _get_scheduled_time_if_already_claimed(params, row)) is not None:
            jobs = await _list_rereadable_slice_at(session, params.platform, when)
            return ClaimSlicesResult(project_id=row.project_id, jobs=jobs, threads=threads, rereads=True)
        if is_paused:
            return ClaimSlicesResult(project_id=row.project_id, jobs=[], threads=threads, is_paused=True)
        # Where the credentials are refused, a single slice of both tracks tries whether they work again.
        is_refused = row.credentials_failed_since is not None
        ahead = 1 if is_refused else slices_ahead
        if params.skew_seconds is not None:
            waiting = await _count_waiting_slices_by_track(session, params.platform)
            room_by_track = {track: max(0, ahead - waiting[track]) for track in LiveOrHistory}
            platform_now = await read_database_time(session) + timedelta(seconds=params.skew_seconds)
            await _claim_settled_slices(session, state, platform_now, room_by_track)
            session.add(row)
            await session.flush()
        room = max(0, ahead - len(params.running))
        jobs = await _list_due_slices(session, params.platform, LiveOrHistory.LIVE, params.running, ahead)
        history = await _list_due_slices(session, params.platform, LiveOrHistory.HISTORY, params.running, room)
        jobs += await _group_slices_into_readings_by_recent_sizes(session, params.platform, history, threads)
        jobs = jobs[:room] if is_refused else jobs
        if not jobs:
            jobs = await _list_due_sweeps(session, state, params, min(room, threads))
        return ClaimSlicesResult(project_id=row.project_id, jobs=jobs, threads=threads)


def _get_scheduled_time_if_already_claimed(params: ClaimSlicesInput, row: OrderPlatform) -> datetime | None:
    """Return the time whose slices are read again, where the run was due before `claimed_to`."""
    when, skew = params.scheduled_at, timedelta(seconds=params.skew_seconds or row.skew_seconds or 0.0)
    return when if when is not None and row.claimed_to is not None and when + skew < row.claimed_to else None


SWEEP_SUFFIX: Final = "sweep"


async def _claim_settled_slices(
    session: Session, state: PlatformWithSettingsInForce, platform_now: datetime, most: Mapping[LiveOrHistory, int]
) -> None:
    """Claim the next slices, as far as the platform's orders have settled. Its row must be locked."""
    settings, row = state.settings, state.row
    settled = platform_now - timedelta(seconds=settings.settle_lag)
    horizon = windows.floor_to_second(min(settled, state.capability.compute_latest_answerable_window_end(platform_now)))
    standing = build_watermarks(row)
    if standing is None:
        starts_at = config.resolve_starttime(settings.starttime, platform_now)
        if starts_at + timedelta(seconds=settings.interval) > horizon:
            return
        standing = Watermarks.create_first(starts_at, horizon, settings.interval)
    standing, claims = standing.claim_next_slices(horizon, settings.interval, most)
    await insert_claimed_slices(session, row.platform, claims)
    set_watermarks(row, standing)


async def _count_waiting_slices_by_track(session: Session, platform: str) -> dict[LiveOrHistory, int]:
    """Count the claimed slices that wait to be read, by track."""
    statement = (
        select(OrderSlice.track, func.count())
        .where(OrderSlice.platform == platform, build_unfinished_condition(), col(OrderSlice.failed_at).is_(None))
        .group_by(col(OrderSlice.track))
    )
    counts = {row[0]: row[1] for row in await session.exec(statement)}
    return {track: counts.get(track, 0) for track in LiveOrHistory}


async def _list_due_slices(
    session: Session, platform: str, track: LiveOrHistory, running: Collection[TimeWindow], most: int
) -> list[SliceJob]:
    """List the slices of a track that are to be read and not running, oldest first."""
    waits = (OrderSlice.platform == platform, build_unfinished_condition(), col(OrderSlice.failed_at).is_(None))
    statement = (
        select(OrderSlice)
        .where(*waits, OrderSlice.track == track)
        .order_by(col(OrderSlice.start_at))
        .limit(most + len(running))
    )
    jobs = [SliceJob(window=build_window(row), track=track) for row in await session.exec(statement)]
    return [job for job in jobs if job.window not in running][:most]


async def _group_slices_into_readings_by_recent_sizes(
    session: Session, platform: str, jobs: list[SliceJob], threads: int
) -> list[SliceJob]:
    """Let one reading take several slices, as many as the last ones that were read allow."""
    statement = (
        select(OrderSlice.orders)
        .where(OrderSlice.platform == platform, col(OrderSlice.done_at).is_not(None))
        .order_by(col(OrderSlice.done_at).desc())
        .limit(windows.FEW_SLICES)
    )
    is_few = len(jobs) <= windows.FEW_SLICES
    sizes = [] if is_few else [orders or 0 for orders in await session.exec(statement)]
    share = windows.plan_slices_per_reading(len(jobs), sizes, threads)
    groups = [jobs[first : first + share.slices] for first in range(0, len(jobs), share.slices)][: share.readings_max]
    return [first.model_copy(update={"further": [job.window for job in further]}) for first, *further in groups]


async def _list_due_sweeps(
    session: Session, state: PlatformWithSettingsInForce, params: ClaimSlicesInput, most: int
) -> list[SliceJob]:
    """List the slices whose sweep is due; one whose sweep failed waits as long again, behind those that wait longer.

    Where the platform's clock was ahead and is set back, slices of the time to come have been read, empty: their sweep
    waits until that time has settled, and finds what has come.
    """
    settings, running = state.settings, params.running
    if not settings.sweep_after:
        return []
    now, tried_at = await read_database_time(session), func.coalesce(OrderSlice.failed_at, OrderSlice.done_at)
    before = now - timedelta(seconds=settings.sweep_after)
    skew_seconds = params.skew_seconds if params.skew_seconds is not None else state.row.skew_seconds or 0.0
    settled_to = now + timedelta(seconds=skew_seconds - settings.settle_lag)
    statement = (
        select(OrderSlice)
        .where(
            OrderSlice.platform == state.row.platform,
            col(OrderSlice.done_at).is_not(None),
            col(OrderSlice.swept_at).is_(None),
            tried_at < before,
            col(OrderSlice.end_at) <= settled_to,
        )
        .order_by(tried_at)
        .limit(most + len(running))
    )
    rows = (await session.exec(statement)).all()
    jobs = [
        SliceJob(
            window=build_window(row), track=LiveOrHistory.HISTORY, purpose=SliceReadPurpose.SWEEP, suffix=SWEEP_SUFFIX
        )
        for row in rows
    ]
    return [job for job in jobs if job.window not in running][:most]


async def _list_rereadable_slice_at(session: Session, platform: str, moment: datetime) -> list[SliceJob]:
    """List the complete slice that holds a moment, to be read again."""
    return await list_rereadable_slices(session, platform, moment, moment + windows.SECOND, 1)


async def list_rereadable_slices(
    session: Session, platform: str, after: datetime, before: datetime, most: int
) -> list[SliceJob]:
    """List the first complete slices that overlap a time, to be read again."""
    statement = (
        select(OrderSlice)
        .where(_build_rereadable_condition(platform, after, before))
        .order_by(col(OrderSlice.start_at))
        .limit(most)
    )
    again = {"track": LiveOrHistory.HISTORY, "purpose": SliceReadPurpose.AGAIN, "suffix": names.REDO_SUFFIX}
    return [SliceJob(window=build_window(row), **again) for row in await session.exec(statement)]


async def count_rereadable_slices(session: Session, platform: str, after: datetime, before: datetime) -> int:
    """Count the complete slices that overlap a time."""
    statement = select(func.count()).select_from(OrderSlice).where(_build_rereadable_condition(platform, after, before))
    return (await session.exec(statement)).one()


def _build_rereadable_condition(platform: str, after: datetime, before: datetime) -> ColumnElement[bool]:
    return and_(
        col(OrderSlice.platform) == platform,
        col(OrderSlice.start_at) < before,
        build_ends_after_condition(after),
        col(OrderSlice.split_at).is_(None),
        col(OrderSlice.done_at).is_not(None),
    )


SLICE_MAX: Final = timedelta(days=31)
"""The longest `interval`."""


def build_ends_after_condition(moment: datetime) -> ColumnElement[bool]:
    """Build the condition that a slice ends after a moment; the index by start then finds the first such slice."""
    return and_(col(OrderSlice.end_at) > moment, col(OrderSlice.start_at) > moment - SLICE_MAX)

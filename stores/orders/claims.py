"""Claims: which slices a cycle reads next, in one transaction that holds the platform's row."""

from __future__ import annotations

from datetime import datetime, timedelta

from domain.orders.activity_models import ClaimInput, ClaimResult
from domain.orders.watermarks import SliceTrack
from infra.database import Database
from stores.orders import configuration, ledger
from stores.tables.orders import OrderPlatform


async def claim(database: Database, order: ClaimInput, *, is_paused: bool, slices_ahead: int) -> ClaimResult:
    """Claim the next slices, and say which are to be read now; or those of a time that is over, to be read again.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        here = await configuration.standing(session, order.platform, lock=True)
        row, threads = here.row, here.settings.threads
        if (when := _reread(order, row)) is not None:
            jobs = await ledger.holding(session, order.platform, when)
            return ClaimResult(project_id=row.project_id, jobs=jobs, threads=threads, rereads=True)
        if is_paused:
            return ClaimResult(project_id=row.project_id, jobs=[], threads=threads, is_paused=True)
        # Where the credentials are refused, one slice of both tracks looks whether they still are.
        is_refused = row.credentials_failed_since is not None
        ahead = 1 if is_refused else slices_ahead
        if order.skew_seconds is not None:
            waiting = await ledger.waiting(session, order.platform)
            room_by_track = {track: max(0, ahead - waiting[track]) for track in SliceTrack}
            platform_now = await ledger.database_now(session) + timedelta(seconds=order.skew_seconds)
            await ledger.claim(session, here, platform_now, room_by_track)
            session.add(row)
            await session.flush()
        room = max(0, ahead - len(order.running))
        jobs = await ledger.due(session, order.platform, SliceTrack.LIVE, order.running, ahead)
        jobs += await ledger.due(session, order.platform, SliceTrack.HISTORY, order.running, room)
        jobs = jobs[:room] if is_refused else jobs
        if not jobs:
            jobs = await ledger.sweepable(session, here, order.running, min(room, threads))
        return ClaimResult(project_id=row.project_id, jobs=jobs, threads=threads)


def _reread(order: ClaimInput, row: OrderPlatform) -> datetime | None:
    """The moment whose slices are read again, where the run was due at one that is claimed already."""
    when, skew = order.scheduled_at, timedelta(seconds=order.skew_seconds or row.skew_seconds or 0.0)
    return when if when is not None and row.claimed_to is not None and when + skew < row.claimed_to else None

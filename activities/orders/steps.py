"""The steps of the room: a platform's clock, claims, one attempt at a slice, and what becomes of one that failed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from temporalio import activity

from activities.orders import raw, staging, troubles
from activities.orders.credentials import keyring
from activities.orders.reading import Harvest, Reading, TooLarge
from clients.platforms import Connector, Pace, PlatformFailure, Platforms, Tape
from domain.faults import FaultRecord
from domain.orders import lateness, names
from domain.orders.capability import Capability
from domain.orders.config import Effective
from domain.orders.marks import Track
from domain.orders.retrying import EXPIRED_WAIT_MAX_SECONDS, Setback, Trouble
from domain.orders.steps import (
    Alarms,
    Claimed,
    ClaimOrder,
    Clock,
    ClockReading,
    Ending,
    FailOrder,
    Failure,
    Named,
    Purpose,
    Read,
    ReadOrder,
)
from domain.orders.windows import Window
from infra import log, metrics, schedules
from infra.database import Session
from infra.heartbeats import beating
from infra.limits import Limiter
from services.services import Services
from stores.orders import configuration, ledger, storing
from stores.orders.alarms import alarm
from stores.orders.configuration import Standing
from stores.orders.ledger import Taken
from stores.orders.storing import Change, Copy
from stores.tables.orders import OrderPlatform, OrderSlice

CLOCK_PATIENCE: Final = timedelta(minutes=3)
"""So long a clock may not be read before somebody is told."""


class OrderSteps:
    """What needs no platform."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._database = services.database
        self._settings = services.settings.orders

    @activity.defn(name="order_claim")
    async def claim(self, order: ClaimOrder) -> Claimed:
        """Claim the next slices, and say which are to be read now; or re-read those of a time that is over."""
        is_paused = order.heeds_pause and await schedules.is_paused(self._engine, names.schedule_id(order.platform))
        async with self._database.session() as session:
            here = await configuration.standing(session, order.platform, lock=True)
            row, threads = here.row, here.settings.threads
            if (when := _reread(order, row)) is not None:
                jobs = await ledger.holding(session, order.platform, when)
                return Claimed(project_id=row.project_id, jobs=jobs, threads=threads, rereads=True)
            if is_paused:
                return Claimed(project_id=row.project_id, jobs=[], threads=threads, is_paused=True)
            # Where the credentials are refused, one slice of both tracks looks whether they still are.
            is_refused = row.credentials_failed_since is not None
            ahead = 1 if is_refused else self._settings.slices_ahead
            if order.skew_seconds is not None:
                waiting = await ledger.waiting(session, order.platform)
                room_by_track = {track: max(0, ahead - waiting[track]) for track in Track}
                platform_now = await ledger.database_now(session) + timedelta(seconds=order.skew_seconds)
                await ledger.claim(session, here, platform_now, room_by_track)
                session.add(row)
                await session.flush()
            room = max(0, ahead - len(order.running))
            jobs = await ledger.due(session, order.platform, Track.LIVE, order.running, ahead)
            jobs += await ledger.due(session, order.platform, Track.HISTORY, order.running, room)
            jobs = jobs[:room] if is_refused else jobs
            if not jobs:
                jobs = await ledger.sweepable(session, here, order.running, min(room, threads))
            return Claimed(project_id=row.project_id, jobs=jobs, threads=threads)

    @activity.defn(name="order_clock_failed")
    async def clock_failed(self, order: Failure) -> Alarms:
        """Note that a platform's clock cannot be read; when that has lasted, it is told, once."""
        async with self._database.session() as session:
            row = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
            now = await ledger.database_now(session)
            is_first = row.clock_failed_since is None
            row.clock_failed_since, row.clock_fault = row.clock_failed_since or now, order.fault.model_dump()
            is_due = not row.clock_told and now - row.clock_failed_since >= CLOCK_PATIENCE
            row.clock_told = row.clock_told or is_due
            session.add(row)
        if is_first or is_due:
            log.get(__name__).error("order_clock_unread", platform=order.platform, code=order.fault.code)
        if not is_due or row.notify is None:
            return Alarms()
        message = (
            f"The clock of platform {order.platform} cannot be read since {row.clock_failed_since.isoformat()}: "
            f"{order.fault.sentence} Nothing new is claimed until it can; what is claimed is read."
        )
        return Alarms(alarms=[alarm(row, row.notify, "orders.clock_unread", message)])

    @activity.defn(name="order_credentials_failed")
    async def credentials_failed(self, order: Failure) -> Alarms:
        """Note that a platform refuses the account's credentials, and tell it, once until others are good."""
        async with self._database.session() as session:
            row = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
            now = await ledger.database_now(session)
            if row.credentials_good_at is not None and row.credentials_good_at > order.asked_at:
                return Alarms()
            row.credentials_failed_since = row.credentials_failed_since or now
            row.credentials_fault = order.fault.model_dump()
            is_due, row.credentials_told = not row.credentials_told, True
            session.add(row)
        if is_due:
            log.get(__name__).error("order_credentials_refused", platform=order.platform, code=order.fault.code)
        if not is_due or row.notify is None:
            return Alarms()
        message = (
            f"Platform {order.platform} refuses the credentials of its account: {order.fault.sentence} Its slices "
            "wait, none is lost, and nothing more is claimed; all goes on by itself once the credentials are good."
        )
        return Alarms(alarms=[alarm(row, row.notify, "orders.credentials_refused", message)])

    @activity.defn(name="order_settings")
    async def settings(self, order: Named) -> Effective:
        """What is in force now; read before each attempt, so that a change acts on the next."""
        async with self._database.session() as session:
            return (await configuration.standing(session, order.platform)).settings

    @activity.defn(name="order_fail")
    async def fail(self, order: FailOrder) -> Alarms:
        """Put a slice into the failed set, and say whom to tell; a sweep that failed is noted, and made again later."""
        async with self._database.session() as session:
            here = await configuration.standing(session, order.platform, lock=True)
            if order.purpose is Purpose.SWEEP:
                row = await ledger.find(session, order.platform, order.window, lock=True)
                if row is not None and row.done_at is not None:
                    row.failed_at, row.fault = await ledger.database_now(session), order.fault.model_dump()
                    row.sweep_holder = None
                    session.add(row)
                log.get(__name__).warning(
                    "order_sweep_failed", platform=order.platform, window=str(order.window), code=order.fault.code
                )
                return Alarms()
            if order.purpose is Purpose.AGAIN:
                await ledger.fail_reread(session, order.platform, order.window, order.fault)
            is_failed = await ledger.fail(session, order.platform, order.window, order.fault, order.reader)
        log.get(__name__).warning(
            "order_slice_failed", platform=order.platform, window=str(order.window), code=order.fault.code
        )
        if not is_failed or here.row.notify is None:
            return Alarms()
        redo = "Redo" if order.fault.retryable else "Redo it once that is mended, or"
        message = (
            f"The slice {order.window} failed after {order.attempts} attempts: {order.fault.sentence} "
            f"{redo}, split or skip it at /v1/platforms/{order.platform}/slices/{order.window}."
        )
        return Alarms(alarms=[alarm(here.row, here.row.notify, "orders.slice_failed", message)])


class PlatformSteps:
    """What asks a platform: it runs where that platform is served."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._settings = services.settings.orders
        self._platforms = Platforms(services.http, Limiter(services.database))

    @activity.defn(name="order_presence")
    async def presence(self) -> None:
        """Answer, so that it is seen that somebody serves the platform."""

    @activity.defn(name="order_clock")
    async def clock(self, order: Named) -> ClockReading:
        """Look how far the platform's clock is before the database's."""
        async with self._database.session() as session:
            here = await configuration.standing(session, order.platform)
        with troubles.told():
            told = await self.connector(here).now()
        async with self._database.session() as session:
            row = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
            now = await ledger.database_now(session)
            before, skew = row.skew_seconds, (told - now).total_seconds()
            row.skew_seconds, row.skew_at = skew, now
            row.clock_failed_since, row.clock_fault, row.clock_told = None, None, False
            session.add(row)
        clock = Clock(platform=order.platform, skew_seconds=skew)
        most = self._settings.skew_max_seconds
        if abs(skew) <= most or (before is not None and abs(before) > most) or row.notify is None:
            return ClockReading(clock=clock)
        message = (
            f"The clock of platform {order.platform} is {skew:+.0f} s off ours, more than {most:.0f} s. "
            "Slices go by its clock, so none is lost; correct the clock that is wrong."
        )
        return ClockReading(clock=clock, alarm=alarm(row, row.notify, "orders.clock_off", message))

    @activity.defn(name="order_read")
    async def read(self, order: ReadOrder) -> Read:
        """One attempt at a slice: read, confirm, and commit orders and ledger row in one transaction."""
        async with beating(at_once=False):
            with troubles.told():
                return await self._read(order)

    async def _read(self, order: ReadOrder) -> Read:
        async with self._database.session() as session:
            here = await configuration.standing(session, order.platform)
            if here.row.credentials_failed_since is not None:
                await self._may_try(session, order)
            taken = await ledger.take(session, order, here.row.skew_seconds or 0.0)
        if taken is Taken.NOT:
            return Read(ending=Ending.OVER)
        tape = await staging.taken_up(self._objects, order, here.capability)
        try:
            return await self._attempt(here, order, tape, may_split=taken is Taken.OPEN)
        except PlatformFailure as failure:
            raise troubles.stopped(await self._stopped(here.capability, order, tape, failure)) from None

    async def _may_try(self, session: Session, order: ReadOrder) -> None:
        """Where the credentials are refused, all slices together look only now and then whether they still are."""
        row = await session.get_one(OrderPlatform, order.platform, with_for_update=True, populate_existing=True)
        if row.credentials_failed_since is None or row.credentials_fault is None:
            return
        now = await ledger.database_now(session)
        pause = timedelta(seconds=min(order.settings.retryintv, EXPIRED_WAIT_MAX_SECONDS))
        if row.credentials_tried_at is not None and now - row.credentials_tried_at < pause:
            fault = FaultRecord.model_validate(row.credentials_fault)
            raise troubles.stopped(Setback(trouble=Trouble.EXPIRED, fault=fault, place=order.place))
        row.credentials_tried_at = now
        session.add(row)

    async def _stopped(self, capability: Capability, order: ReadOrder, tape: Tape, failure: PlatformFailure) -> Setback:
        """Keep what was told, where the next attempt may build on it."""
        setback = troubles.setback_of(failure)
        if troubles.goes_on(failure):
            place = await staging.kept(self._objects, order, tape)
            return troubles.kept(setback, failure, place, tape.gained)
        if tape.has_begun and setback.trouble is Trouble.REFUSED:
            return troubles.refused_midway(setback, capability.paging.kind)
        return setback

    async def _attempt(self, here: Standing, order: ReadOrder, tape: Tape, *, may_split: bool) -> Read:
        halves = order.window.halves() if may_split else None
        reading = Reading(
            self.connector(here, order, tape),
            order.window.begun_earlier(order.settings.overlap),
            order.settings.max_rows_per_slice if halves else None,
        )
        try:
            harvest = await (reading.once() if order.purpose is Purpose.SWEEP else reading.confirmed())
        except TooLarge:
            return await self._split(order, halves or ())
        is_zone_right = here.row.zone_checked_at is None and await reading.check_zone()
        copies = await self._whole(here, reading, list(harvest.copies.values()))
        read = await self._commit(here, order, harvest, copies, is_zone_right=is_zone_right)
        await staging.cleared(self._objects, order)
        return read

    def connector(
        self, here: Standing, order: ReadOrder | None = None, tape: Tape | None = None, pace: Pace | None = None
    ) -> Connector:
        """What speaks to the platform, as fast as is configured."""
        settings = order.settings if order else here.settings
        keys = keyring(self._settings.credentials_folder, settings.credentials)
        capability = settings.adjusted(here.capability)
        pace = Pace.within(settings.timeout) if order else pace
        return self._platforms.connector(capability, here.account, keys, tape=tape, pace=pace)

    async def _whole(self, here: Standing, reading: Reading, copies: list[Copy]) -> list[Copy]:
        """Orders that are told in part are asked for one by one, but only those that are newer than ours."""
        if here.capability.detail is None:
            return copies
        async with self._database.session() as session:
            ours = await storing.known(session, here.account, copies)
        return await reading.whole([copy for copy in copies if copy.order.order_id not in ours])

    async def _split(self, order: ReadOrder, halves: tuple[Window, ...]) -> Read:
        async with self._database.session() as session:
            row = await ledger.find(session, order.platform, order.window, lock=True)
            if row is None or row.holder != order.holder:
                return Read(ending=Ending.OVER)
            jobs = await ledger.split(session, row, halves)
        return Read(ending=Ending.SPLIT, halves=jobs)

    async def _commit(
        self, here: Standing, order: ReadOrder, harvest: Harvest, copies: list[Copy], *, is_zone_right: bool
    ) -> Read:
        key = names.raw_key(order.platform, order.window, order.holder.rpartition("/")[2])
        await raw.keep(self._objects, key, harvest.sheets)
        async with self._database.session() as session:
            platform = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
            row = await ledger.find(session, order.platform, order.window, lock=True)
            if row is None or not ledger.may_commit(row, order):
                return Read(ending=Ending.OVER)
            platform.revision += 1
            if is_zone_right:
                platform.zone_checked_at = await ledger.database_now(session)
            if platform.credentials_failed_since is not None:
                platform.credentials_failed_since, platform.credentials_fault = None, None
                platform.credentials_good_at, platform.credentials_told = await ledger.database_now(session), False
            changes = await storing.merge(session, here.account, platform.revision, copies)
            result = _result(order, row, harvest, changes)
            if row.done_at is None:
                _finish(row, result, key)
                row.digest = harvest.digest
                row.done_at = await ledger.database_now(session)
            elif order.purpose is Purpose.SWEEP:
                row.swept_at, row.missed = await ledger.database_now(session), result.missed
                row.failed_at, row.fault, row.sweep_holder = None, None, None
                row.late_seconds = _lateness(row, _late(order.window, changes))
            else:
                row.reread_since, row.reread_fault, row.reread_at = None, None, await ledger.database_now(session)
                row.reread_holder, row.stale_told_at = None, None
            session.add(row)
            await ledger.complete(session, platform)
        for event, count in (("orders_outside_window", result.outside), ("orders_undated", result.undated)):
            if count:
                log.get(__name__).warning(event, platform=order.platform, window=str(order.window), orders=count)
        metrics.ORDERS.labels(order.platform).inc(len(changes))
        metrics.ORDERS_MISSED.labels(order.platform).inc(result.missed)
        return result


def _reread(order: ClaimOrder, row: OrderPlatform) -> datetime | None:
    """The moment whose slices are read again, where the run was due at one that is claimed already."""
    when, skew = order.scheduled_at, timedelta(seconds=order.skew_seconds or row.skew_seconds or 0.0)
    return when if when is not None and row.claimed_to is not None and when + skew < row.claimed_to else None


def _result(order: ReadOrder, row: OrderSlice, harvest: Harvest, changes: list[Change]) -> Read:
    """What the attempt came to; only a slice that was complete before can have missed anything."""
    late = _late(order.window, changes) if row.done_at is not None else []
    return Read(
        ending=Ending.DONE,
        orders=len(harvest.copies),
        changed=len(changes),
        total=harvest.total,
        passes=harvest.passes,
        pages=len(harvest.sheets),
        outside=harvest.outside,
        undated=harvest.undated,
        missed=len(late),
    )


def _late(window: Window, changes: list[Change]) -> list[Change]:
    return [each for each in changes if each.is_new and window.holds(each.modified_at)]


def _finish(row: OrderSlice, result: Read, key: str) -> None:
    row.failed_at, row.fault, row.holder, row.stale_told_at, row.raw_key = None, None, None, None, key
    row.orders, row.changed, row.total = result.orders, result.changed, result.total
    row.passes, row.pages, row.outside, row.undated = result.passes, result.pages, result.outside, result.undated


def _lateness(row: OrderSlice, late: list[Change]) -> float | None:
    """How late the orders were that only the sweep found.

    Where rows moved during the first reading, it may have passed an order by that was there; where nothing moved, the
    platform did not even count it.
    """
    if row.read_at is None or row.passes != 1:
        return None
    return max((lateness.seconds(each.modified_at, row.read_at) for each in late), default=None)

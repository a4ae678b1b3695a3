"""The steps of the room: a platform's clock, claims, one attempt at a slice, and what becomes of one that failed."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity

from activities.orders import configuration, ledger, raw, staging, storing, troubles
from activities.orders.configuration import Standing
from activities.orders.credentials import keyring
from activities.orders.reading import Harvest, Reading, TooLarge
from activities.orders.storing import Change, Copy
from domain.orders import lateness, places
from domain.orders.config import Effective
from domain.orders.marks import Track
from domain.orders.retrying import Setback, Trouble
from domain.orders.steps import (
    Alarm,
    Alarms,
    Claimed,
    ClaimOrder,
    Clock,
    ClockReading,
    Ending,
    FailOrder,
    Named,
    Purpose,
    Read,
    ReadOrder,
)
from domain.orders.windows import Window
from domain.sealed import Sealed
from infra import log, metrics
from infra.database import Session
from infra.heartbeats import beating
from infra.limits import Limiter
from infra.platforms import Connector, Pace, PlatformFailure, Platforms, Tape
from infra.services import Services
from infra.tables.orders import OrderPlatform, OrderSlice


class OrderSteps:
    """What needs the database alone."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._settings = services.settings.orders

    @activity.defn(name="order_claim")
    async def claim(self, order: ClaimOrder) -> Claimed:
        """Claim the next slices, and say which are to be read now; or re-read those of a time that is over."""
        async with self._database.session() as session:
            here = await configuration.standing(session, order.platform, lock=True)
            row, skew = here.row, timedelta(seconds=order.skew_seconds)
            when = order.scheduled_at
            if when is not None and row.claimed_to is not None and when + skew < row.claimed_to:
                jobs = await ledger.holding(session, order.platform, when, order.again_suffix)
                return Claimed(project_id=row.project_id, jobs=jobs, threads=here.settings.threads, rereads=True)
            ahead, waiting = self._settings.slices_ahead, await ledger.waiting(session, order.platform)
            room_by_track = {track: max(0, ahead - waiting[track]) for track in Track}
            await ledger.claim(session, here, await ledger.database_now(session) + skew, room_by_track)
            session.add(row)
            await session.flush()
            room = max(0, ahead - len(order.running))
            jobs = await ledger.due(session, order.platform, Track.LIVE, order.running, ahead)
            jobs += await ledger.due(session, order.platform, Track.HISTORY, order.running, room)
            if not jobs:
                jobs = await ledger.sweepable(session, here, order.running, min(room, here.settings.threads))
            return Claimed(project_id=row.project_id, jobs=jobs, threads=here.settings.threads)

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
                    session.add(row)
                return Alarms()
            is_failed = await ledger.fail(session, order.platform, order.window, order.fault)
        log.get(__name__).warning(
            "order_slice_failed", platform=order.platform, window=str(order.window), code=order.fault.code
        )
        if not is_failed or here.row.notify is None:
            return Alarms()
        message = (
            f"The slice {order.window} failed after {order.attempts} attempts: {order.fault.sentence} "
            f"Redo, split or skip it at /v1/platforms/{order.platform}/slices/{order.window}."
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
            if not await self._begun(session, here, order):
                return Read(ending=Ending.OVER)
        tape = await staging.taken_up(self._objects, order, here.capability)
        try:
            return await self._attempt(here, order, tape)
        except PlatformFailure as failure:
            raise troubles.stopped(await self._stopped(order, tape, failure)) from None

    async def _stopped(self, order: ReadOrder, tape: Tape, failure: PlatformFailure) -> Setback:
        """Keep what was told, where the next attempt may build on it."""
        setback = troubles.setback_of(failure)
        if troubles.goes_on(failure):
            place = await staging.kept(self._objects, order, tape)
            return setback.model_copy(update={"place": place, "gained": tape.gained})
        if tape.has_begun and setback.trouble is Trouble.REFUSED:
            # It answered before: perhaps no more is refused than a token that leads nowhere any more.
            return setback.model_copy(update={"trouble": Trouble.FAILED})
        return setback

    async def _attempt(self, here: Standing, order: ReadOrder, tape: Tape) -> Read:
        halves = order.window.halves()
        reading = Reading(
            self.connector(here, order, tape),
            order.window.begun_earlier(order.settings.overlap),
            order.settings.max_rows_per_slice if halves else None,
        )
        try:
            harvest = await (reading.once() if order.purpose is Purpose.SWEEP else reading.confirmed())
        except TooLarge:
            return await self._split(order, halves or ())
        copies = await self._whole(here, reading, list(harvest.copies.values()))
        read = await self._commit(here, order, harvest, copies)
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

    async def _begun(self, session: Session, here: Standing, order: ReadOrder) -> bool:
        """Take the slice; a complete one that is read again is nobody's."""
        if order.purpose is not Purpose.FIRST:
            row = await ledger.find(session, order.platform, order.window)
            if row is None or row.split_at is not None:
                return False
            if row.done_at is not None:
                return True
        read_at = await ledger.database_now(session) + timedelta(seconds=here.row.skew_seconds or 0.0)
        return await ledger.begin(session, order.platform, order.window, order.holder, order.settings.version, read_at)

    async def _whole(self, here: Standing, reading: Reading, copies: list[Copy]) -> list[Copy]:
        """Orders that are told in part are asked for one by one, but only those that are newer than ours."""
        detail = here.capability.detail
        if detail is None:
            return copies
        async with self._database.session() as session:
            ours = await storing.known(session, here.account, copies)
        return await reading.whole(detail, [copy for copy in copies if copy.order.order_id not in ours])

    async def _split(self, order: ReadOrder, halves: tuple[Window, ...]) -> Read:
        async with self._database.session() as session:
            row = await ledger.find(session, order.platform, order.window, lock=True)
            if row is None or row.holder != order.holder:
                return Read(ending=Ending.OVER)
            jobs = await ledger.split(session, row, halves)
        return Read(ending=Ending.SPLIT, halves=jobs)

    async def _commit(self, here: Standing, order: ReadOrder, harvest: Harvest, copies: list[Copy]) -> Read:
        key = places.raw_key(order.platform, order.window, order.holder.rpartition("/")[2])
        await raw.keep(self._objects, key, harvest.sheets)
        async with self._database.session() as session:
            platform = await session.get_one(OrderPlatform, order.platform, with_for_update=True)
            row = await ledger.find(session, order.platform, order.window, lock=True)
            if row is None or not _may_commit(row, order):
                return Read(ending=Ending.OVER)
            platform.revision += 1
            changes = await storing.merge(session, here.account, platform.revision, copies)
            result = _result(order, row, harvest, changes)
            if row.done_at is None:
                _finish(row, result, key)
                row.digest = harvest.digest
                row.done_at = await ledger.database_now(session)
            elif order.purpose is Purpose.SWEEP:
                row.swept_at, row.missed = await ledger.database_now(session), result.missed
                row.failed_at, row.fault = None, None
                _learn(platform, here, row, order.window, changes)
            session.add(row)
            await ledger.complete(session, platform)
        if result.outside:
            log.get(__name__).warning(
                "orders_outside_window", platform=order.platform, window=str(order.window), orders=result.outside
            )
        metrics.ORDERS.labels(order.platform).inc(len(changes))
        metrics.ORDERS_MISSED.labels(order.platform).inc(result.missed)
        return result


def alarm(row: OrderPlatform, notify: str, kind: str, message: str) -> Alarm:
    """What the administrator of a platform is told."""
    return Alarm(
        platform=row.platform, project_id=row.project_id, notify=Sealed(token=notify), type=kind, message=message
    )


def _may_commit(row: OrderSlice, order: ReadOrder) -> bool:
    """Whether this attempt is still the one that counts: a worker that was taken for dead changes nothing."""
    if row.split_at is not None or row.skipped_at is not None:
        return False
    if row.done_at is None:
        return row.holder == order.holder
    return order.purpose is not Purpose.FIRST


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
        missed=len(late),
    )


def _late(window: Window, changes: list[Change]) -> list[Change]:
    return [each for each in changes if each.is_new and window.holds(each.modified_at)]


def _finish(row: OrderSlice, result: Read, key: str) -> None:
    row.failed_at, row.fault, row.holder, row.raw_key = None, None, None, key
    row.orders, row.changed, row.total = result.orders, result.changed, result.total
    row.passes, row.pages, row.outside = result.passes, result.pages, result.outside


def _learn(platform: OrderPlatform, here: Standing, row: OrderSlice, window: Window, changes: list[Change]) -> None:
    """Propose a longer lag where a sweep found what the first reading had missed."""
    ages = [lateness.seconds(each.modified_at, row.read_at) for each in _late(window, changes) if row.read_at]
    proposed = lateness.proposal(here.settings.settle_lag, ages)
    if proposed is not None:
        platform.proposed_settle_lag = max(proposed, platform.proposed_settle_lag or 0)

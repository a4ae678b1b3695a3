"""Activities of orders: a platform's clock, claims, one attempt at a slice, slices that failed, and backfills."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from temporalio import activity

from activities.orders import slice_attempts
from activities.orders.reading import WindowContents, WindowReader, WindowTooLarge
from clients.platforms import Connector, Pace, PlatformFailure, Platforms, Tape
from clients.platforms.credentials import build_credentials_reader
from domain.orders import names
from domain.orders.activity_models import (
    AlarmsResult,
    BackfillBatchInput,
    BackfillBatchResult,
    BackfillInput,
    ClaimInput,
    ClaimResult,
    ClockResult,
    ClockSkew,
    EndBackfillInput,
    FailSliceInput,
    NoteFailureInput,
    PlatformInput,
    ReadSliceInput,
    ReadSliceResult,
)
from domain.orders.capability import Capability
from domain.orders.config import PlatformSettings
from domain.orders.slices import AttemptFailure, FailureKind, ReadOutcome, ReadPurpose
from domain.orders.windows import TimeWindow
from infra import log, metrics, starts
from infra.heartbeats import send_heartbeats
from infra.limits import Limiter
from services.services import Services
from stores.orders import attempts, backfills, claims, health, order_copies, platforms
from stores.orders.attempts import SliceReading
from stores.orders.ledger import SliceAccess
from stores.orders.order_copies import FetchedOrder
from stores.orders.platforms import PlatformState, build_alarm

CLOCK_PATIENCE: Final = timedelta(minutes=3)
"""How long a clock may be unreadable before an alarm is sent."""


class OrderActivities:
    """Activities that need no platform."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._database = services.database
        self._settings = services.settings.orders

    @activity.defn(name="order_claim")
    async def claim(self, order: ClaimInput) -> ClaimResult:
        """Claim the next slices and return those to read now; or those of a time in the past, to be read again."""
        is_paused = order.heeds_pause and await starts.is_schedule_paused(
            self._engine, names.schedule_id(order.platform)
        )
        ahead = self._settings.slices_ahead
        return await claims.claim(self._database, order, is_paused=is_paused, slices_ahead=ahead)

    @activity.defn(name="order_clock_failed")
    async def clock_failed(self, order: NoteFailureInput) -> AlarmsResult:
        """Record that a platform's clock cannot be read; return an alarm once that has lasted."""
        failure = await health.note_clock_failure(self._database, order, CLOCK_PATIENCE)
        row = failure.row
        if failure.is_first or failure.is_due:
            log.get(__name__).error("order_clock_unread", platform=order.platform, code=order.fault.code)
        if not failure.is_due or row.notify is None or row.clock_failed_since is None:
            return AlarmsResult()
        message = (
            f"The clock of platform {order.platform} cannot be read since {row.clock_failed_since.isoformat()}: "
            f"{order.fault.sentence} Nothing new is claimed until it can; what is claimed is read."
        )
        return AlarmsResult(alarms=[build_alarm(row, row.notify, "orders.clock_unread", message)])

    @activity.defn(name="order_credentials_failed")
    async def credentials_failed(self, order: NoteFailureInput) -> AlarmsResult:
        """Record that a platform refuses the credentials; return an alarm the first time, until others work."""
        row = await health.note_refused_credentials(self._database, order)
        if row is not None:
            log.get(__name__).error("order_credentials_refused", platform=order.platform, code=order.fault.code)
        if row is None or row.notify is None:
            return AlarmsResult()
        message = (
            f"Platform {order.platform} refuses the credentials of its account: {order.fault.sentence} Its slices "
            "wait, none is lost, and nothing more is claimed; all goes on by itself once the credentials are good."
        )
        return AlarmsResult(alarms=[build_alarm(row, row.notify, "orders.credentials_refused", message)])

    @activity.defn(name="order_settings")
    async def settings(self, order: PlatformInput) -> PlatformSettings:
        """Return the settings in force; read before each attempt, so that a change applies to the next."""
        return (await platforms.read(self._database, order.platform)).settings

    @activity.defn(name="order_fail")
    async def fail(self, order: FailSliceInput) -> AlarmsResult:
        """Move a slice into the failed set and return an alarm; a failed sweep is recorded, and repeated later."""
        here = await attempts.fail(self._database, order)
        event = "order_sweep_failed" if order.purpose is ReadPurpose.SWEEP else "order_slice_failed"
        log.get(__name__).warning(event, platform=order.platform, window=str(order.window), code=order.fault.code)
        if here is None or here.row.notify is None:
            return AlarmsResult()
        if order.purpose is ReadPurpose.SWEEP:
            return AlarmsResult(
                alarms=[
                    build_alarm(here.row, here.row.notify, "orders.sweep_failed", _build_sweep_message(here, order))
                ]
            )
        redo = "Redo" if order.fault.retryable else "Redo it once that is mended, or"
        message = (
            f"The slice {order.window} failed after {order.attempts} attempts: {order.fault.sentence} "
            f"{redo}, split or skip it at /v1/platforms/{order.platform}/slices/{order.window}."
        )
        return AlarmsResult(alarms=[build_alarm(here.row, here.row.notify, "orders.slice_failed", message)])


class PlatformActivities:
    """Activities that call a platform; they run on the workers that serve it."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._settings = services.settings.orders
        self._platforms = Platforms(services.http, Limiter(services.database))

    @activity.defn(name="order_presence")
    async def presence(self) -> None:
        """Answer, to show that a worker serves the platform."""

    @activity.defn(name="order_clock")
    async def clock(self, order: PlatformInput) -> ClockResult:
        """Measure how far the platform's clock is ahead of the database's."""
        here = await platforms.read(self._database, order.platform)
        with slice_attempts.converting_failures():
            told = await self.connector(here).now()
        seen = await health.note_clock(self._database, order.platform, told)
        row, skew, before = seen.row, seen.skew_seconds, seen.skew_before
        clock = ClockSkew(platform=order.platform, skew_seconds=skew)
        most = self._settings.skew_max_seconds
        if abs(skew) <= most or (before is not None and abs(before) > most) or row.notify is None:
            return ClockResult(clock=clock)
        message = (
            f"The clock of platform {order.platform} is {skew:+.0f} s off ours, more than {most:.0f} s. "
            "Slices go by its clock, so none is lost; correct the clock that is wrong."
        )
        return ClockResult(clock=clock, alarm=build_alarm(row, row.notify, "orders.clock_off", message))

    @activity.defn(name="order_read")
    async def read(self, order: ReadSliceInput) -> ReadSliceResult:
        """Make one attempt at a slice: read, confirm, and commit orders and the ledger's row in one transaction."""
        async with send_heartbeats(at_once=False):
            with slice_attempts.converting_failures():
                return await self._read(order)

    async def _read(self, order: ReadSliceInput) -> ReadSliceResult:
        attempt = await attempts.begin(self._database, order)
        here = attempt.here
        if attempt.refusal is not None:
            raise slice_attempts.to_application_error(
                AttemptFailure(trouble=FailureKind.EXPIRED, fault=attempt.refusal, place=order.place)
            )
        if attempt.taken is SliceAccess.NOT:
            return ReadSliceResult(ending=ReadOutcome.OVER)
        tape = await slice_attempts.load_answers(self._objects, order, here.capability)
        try:
            return await self._attempt(here, order, tape, may_split=attempt.taken is SliceAccess.OPEN)
        except PlatformFailure as failure:
            raise slice_attempts.to_application_error(
                await self._stopped(here.capability, order, tape, failure)
            ) from None

    async def _stopped(
        self, capability: Capability, order: ReadSliceInput, tape: Tape, failure: PlatformFailure
    ) -> AttemptFailure:
        """Build the failure of the attempt, and store the received answers where the next one may build on them."""
        setback = slice_attempts.to_attempt_failure(failure)
        if slice_attempts.is_resumable(failure):
            place = await slice_attempts.store_answers(self._objects, order, tape)
            return slice_attempts.with_resume_point(setback, failure, place, tape.gained)
        if tape.has_begun and setback.trouble is FailureKind.REFUSED:
            return slice_attempts.judge_refusal_midway(setback, capability.paging.kind)
        return setback

    async def _attempt(
        self, here: PlatformState, order: ReadSliceInput, tape: Tape, *, may_split: bool
    ) -> ReadSliceResult:
        query = here.capability.query
        halves = order.window.halves(query.window_min_seconds) if may_split else None
        reading = WindowReader(
            self.connector(here, order, tape),
            order.window.begun_earlier(order.settings.overlap, query.window_max_seconds),
            order.settings.max_rows_per_slice if halves else None,
        )
        try:
            harvest = await (reading.once_to_end() if order.purpose is ReadPurpose.SWEEP else reading.confirmed())
        except WindowTooLarge:
            return await self._split(order, halves or ())
        is_zone_right = here.row.zone_checked_at is None and await reading.check_zone()
        copies = await self._whole(here, reading, list(harvest.copies.values()))
        read = await self._commit(here, order, harvest, copies, is_zone_right=is_zone_right)
        await slice_attempts.delete_answers(self._objects, order)
        return read

    def connector(
        self,
        here: PlatformState,
        order: ReadSliceInput | None = None,
        tape: Tape | None = None,
        pace: Pace | None = None,
    ) -> Connector:
        """Build a connector with the platform's configured rate and credentials."""
        settings = order.settings if order else here.settings
        keys = build_credentials_reader(self._settings.credentials_folder, settings.credentials)
        capability = settings.adjusted(here.capability)
        pace = Pace.within(settings.timeout) if order else pace
        return self._platforms.connector(capability, here.account, keys, tape=tape, pace=pace)

    async def _whole(
        self, here: PlatformState, reading: WindowReader, copies: list[FetchedOrder]
    ) -> list[FetchedOrder]:
        """Fetch the details of listed orders that are not stored in this version yet."""
        if here.capability.detail is None:
            return copies
        ours = await order_copies.list_known(self._database, here.account, copies)
        return await reading.whole([copy for copy in copies if copy.order.order_id not in ours])

    async def _split(self, order: ReadSliceInput, halves: tuple[TimeWindow, ...]) -> ReadSliceResult:
        jobs = await attempts.split(self._database, order, halves)
        return (
            ReadSliceResult(ending=ReadOutcome.OVER)
            if jobs is None
            else ReadSliceResult(ending=ReadOutcome.SPLIT, halves=jobs)
        )

    async def _commit(
        self,
        here: PlatformState,
        order: ReadSliceInput,
        harvest: WindowContents,
        copies: list[FetchedOrder],
        *,
        is_zone_right: bool,
    ) -> ReadSliceResult:
        key = names.raw_key(order.platform, order.window, order.holder.rpartition("/")[2])
        await slice_attempts.store_pages(self._objects, key, harvest.sheets)
        reading = SliceReading(
            copies=copies,
            orders=len(harvest.copies),
            digest=harvest.digest,
            pages_key=key,
            pages=len(harvest.sheets),
            passes=harvest.passes,
            total=harvest.total,
            outside=harvest.outside,
            undated=harvest.undated,
            is_zone_right=is_zone_right,
        )
        result = await attempts.commit(self._database, here, order, reading)
        if result.ending is ReadOutcome.OVER:
            return result
        if harvest.may_be_cut:
            log.get(__name__).warning(
                "orders_may_be_cut", platform=order.platform, window=str(order.window), orders=result.orders
            )
        for event, count in (("orders_outside_window", result.outside), ("orders_undated", result.undated)):
            if count:
                log.get(__name__).warning(event, platform=order.platform, window=str(order.window), orders=count)
        metrics.ORDERS.labels(order.platform).inc(result.changed)
        metrics.ORDERS_MISSED.labels(order.platform).inc(result.missed)
        return result


class BackfillActivities:
    """Activities of a backfill's workflow."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine

    @activity.defn(name="order_backfill_begin")
    async def begin(self, order: BackfillInput) -> None:
        """Insert the backfill's record, unless it exists."""
        await backfills.enter(self._database, order, activity.info().workflow_id or "")

    @activity.defn(name="order_backfill_step")
    async def step(self, order: BackfillBatchInput) -> BackfillBatchResult:
        """Save the progress of a backfill, and return its next slices."""
        return BackfillBatchResult(jobs=await backfills.advance(self._database, order))

    @activity.defn(name="order_backfill_end")
    async def end(self, order: EndBackfillInput) -> AlarmsResult:
        """Close the record once, and return an alarm if the backfill has failed."""
        fault = order.fault or order.progress.fault
        told = await backfills.finish(self._database, order.backfill_id, order.progress, fault)
        return AlarmsResult(alarms=[told] if told else [])


def _build_sweep_message(here: PlatformState, order: FailSliceInput) -> str:
    return (
        f"The sweep of the slice {order.window} of platform {order.platform} has failed twice in a row, this time "
        f"after {order.attempts} attempts: {order.fault.sentence} What was read before is kept; orders that showed up "
        f"later may be missing. It is made again every {here.settings.sweep_after} seconds. "
        f"GET /v1/platforms/{order.platform}/slices?sweep=failed lists all such slices."
    )

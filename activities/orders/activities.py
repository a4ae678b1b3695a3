"""Activities of orders: a platform's clock, claims, attempts at slices, failed ones, backfills."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.orders import slice_attempts
from activities.orders.reading import READINGS_BYTES_MAX, NewestOrdersOfWindow, WindowReader, WindowTooLarge
from activities.orders.watch import is_platform_paused
from activities.orders.window_checks import require_clock_not_put_back
from clients.platforms import (
    AttemptTimeBudget,
    CredentialsRefused,
    DailyQuotaOfAllPlatforms,
    PlatformConnector,
    PlatformConnectorFactory,
    PlatformFailure,
    ReplayableAnswerLog,
)
from clients.platforms.credentials import build_credentials_reader
from domain.faults import format_count
from domain.orders import names
from domain.orders.activity_models import (
    AlarmsToAnnounce,
    BackfillBatchInput,
    BackfillInput,
    BackfillSlicesToRead,
    ClaimSlicesInput,
    ClaimSlicesResult,
    ClockSkew,
    EndBackfillInput,
    FailSliceInput,
    MeasureClockSkewInput,
    PlatformFaultInput,
    PlatformInput,
    ReadSliceInput,
    ReadSliceResult,
)
from domain.orders.config import PlatformSettings
from domain.orders.slices import SliceAttemptFailure, SliceFailureKind, SliceReadOutcome, SliceReadPurpose
from domain.orders.windows import TimeWindow
from infra import log, metrics, temporal
from infra.database import DATABASE_ERRORS
from infra.heartbeats import send_heartbeats_during_block
from infra.limits import DatabaseLimiter
from infra.memory import MemoryBudget
from services.services import Services
from stores.orders import attempts, backfills, health, ledger, order_copies, platforms
from stores.orders.attempts import SliceReadingResult
from stores.orders.fetched_orders import FetchedOrder
from stores.orders.ledger import SliceStateWhenTaken
from stores.orders.platforms import PlatformWithSettingsInForce, build_alarm

CLOCK_PATIENCE: Final = timedelta(minutes=3)
"""How long a clock may be unreadable before an alarm is sent."""
FURTHER_SECONDS: Final = 10.0
CLOCK_ANSWER_SECONDS: Final = 10.0
"""Timeout of a request for the time: three of them, and a wait for a permit, fit into the activity's timeout."""


class OrderActivities:
    """Activities that need no platform."""

    def __init__(self, services: Services) -> None:
        self._engine = services.engine
        self._database = services.database
        self._settings = services.settings.orders

    @activity.defn(name="order_claim")
    async def claim_slices(self, params: ClaimSlicesInput) -> ClaimSlicesResult:
        """Claim the next slices and return those to read now; or those of a time in the past, to be read again."""
        async with send_heartbeats_during_block(at_once=False):
            is_paused = params.heeds_pause and await is_platform_paused(self._engine, self._database, params.platform)
            ahead = self._settings.slices_ahead
            return await ledger.claim_slices(self._database, params, is_paused=is_paused, slices_ahead=ahead)

    @activity.defn(name="order_clock_failed")
    async def record_clock_failure(self, params: PlatformFaultInput) -> AlarmsToAnnounce:
        """Record that a platform's clock cannot be read; return an alarm once that has lasted."""
        failure = await health.record_unreadable_clock_and_decide_alarm(self._database, params, CLOCK_PATIENCE)
        row = failure.row
        if failure.is_first or failure.is_due:
            log.get(__name__).error("order_clock_unread", platform=params.platform, code=params.fault.code)
        if not failure.is_due or row.notify is None or row.clock_failed_since is None:
            return AlarmsToAnnounce()
        message = (
            f"The clock of platform {params.platform} cannot be read since {row.clock_failed_since.isoformat()}: "
            f"{params.fault.sentence} Nothing new is claimed until it can; what is claimed is read."
        )
        return AlarmsToAnnounce(alarms=[build_alarm(row, row.notify, "orders.clock_unread", message)])

    @activity.defn(name="order_clock_off")
    async def record_skew_alarm(self, clock: ClockSkew) -> AlarmsToAnnounce:
        """Record that the alarm about a platform's clock is sent, and return it."""
        row = await health.record_skew_alarm(self._database, clock.platform, temporal.get_activity_call())
        if row is None or row.notify is None:
            return AlarmsToAnnounce()
        message = (
            f"The clock of platform {clock.platform} is {clock.skew_seconds:+.0f} s off ours, more than "
            f"{self._settings.skew_max_seconds:.0f} s. Slices go by its clock, so none is lost; "
            "correct the clock that is wrong."
        )
        return AlarmsToAnnounce(alarms=[build_alarm(row, row.notify, "orders.clock_off", message)])

    @activity.defn(name="order_credentials_failed")
    async def record_refused_credentials(self, params: PlatformFaultInput) -> AlarmsToAnnounce:
        """Record that a platform refuses the credentials; return an alarm the first time, until others work."""
        row = await health.record_refused_credentials_and_find_due_alarm(self._database, params)
        if row is not None:
            log.get(__name__).error("order_credentials_refused", platform=params.platform, code=params.fault.code)
        if row is None or row.notify is None:
            return AlarmsToAnnounce()
        message = (
            f"Platform {params.platform} refuses the credentials of its account: {params.fault.sentence} Its slices "
            "wait, none is lost, and nothing more is claimed; all goes on by itself once the credentials are good."
        )
        return AlarmsToAnnounce(alarms=[build_alarm(row, row.notify, "orders.credentials_refused", message)])

    @activity.defn(name="order_settings")
    async def load_settings(self, params: PlatformInput) -> PlatformSettings:
        """Return the settings in force; read before each attempt, so that a change applies to the next."""
        state = await platforms.load_platform_with_settings_in_own_transaction(self._database, params.platform)
        return state.settings

    @activity.defn(name="order_fail")
    async def record_failed_slice_or_sweep(self, params: FailSliceInput) -> AlarmsToAnnounce:
        """Move a slice into the failed set and return an alarm; a failed sweep is recorded, and repeated later."""
        state = await attempts.record_failed_slice_or_sweep(self._database, params, temporal.get_activity_call())
        event = "order_sweep_failed" if params.purpose is SliceReadPurpose.SWEEP else "order_slice_failed"
        log.get(__name__).warning(event, platform=params.platform, window=str(params.window), code=params.fault.code)
        metrics.SLICES_ENDED.labels(params.platform, params.purpose.value, "failed", params.fault.code).inc()
        if state is None or state.row.notify is None:
            return AlarmsToAnnounce()
        if params.purpose is SliceReadPurpose.SWEEP:
            message = slice_attempts.build_failed_sweep_message(state, params)
            return AlarmsToAnnounce(alarms=[build_alarm(state.row, state.row.notify, "orders.sweep_failed", message)])
        redo = "Redo" if params.fault.retryable else "Redo it once that is mended, or"
        failed = f"The slice {params.window} failed after {format_count(params.attempts, 'attempt')}:"
        route = f"/v1/platforms/{params.platform}/slices/{params.window}"
        message = f"{failed} {params.fault.sentence} {redo}, split or skip it at {route}."
        return AlarmsToAnnounce(alarms=[build_alarm(state.row, state.row.notify, "orders.slice_failed", message)])


class PlatformActivities:
    """Activities that call a platform; they run on the workers that serve it."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._objects = services.objects
        self._settings = services.settings.orders
        self._quotas = services.settings.quotas
        self._connectors = PlatformConnectorFactory(services.http, DatabaseLimiter(services.database))
        self._memory = MemoryBudget(READINGS_BYTES_MAX)

    @activity.defn(name="order_presence")
    async def answer_presence(self) -> None:
        """Answer, to show that a worker serves the platform."""

    @activity.defn(name="order_clock")
    async def measure_clock_skew(self, params: MeasureClockSkewInput) -> ClockSkew:
        """Measure how far the platform's clock is ahead of the database's."""
        async with send_heartbeats_during_block(at_once=False):
            with slice_attempts.convert_platform_failures(), slice_attempts.convert_outages_to_lost_worker():
                return await self._measure_clock_skew(params)

    async def _measure_clock_skew(self, params: MeasureClockSkewInput) -> ClockSkew:
        state = await platforms.load_platform_with_settings_in_own_transaction(self._database, params.platform)
        try:
            connector = self.build_connector(state, budget=AttemptTimeBudget(answer_seconds=CLOCK_ANSWER_SECONDS))
            platform_now = await slice_attempts.fetch_platform_time(connector, state.row.skew_seconds)
            require_clock_not_put_back(state, platform_now)
        except PlatformFailure as failure:
            if params.records_failure and not failure.is_local and not isinstance(failure, CredentialsRefused):
                await self._record_first_clock_failure(params, failure)
            raise
        most = self._settings.skew_max_seconds
        return await health.record_clock_skew_and_clear_failure(self._database, params.platform, platform_now, most)

    async def _record_first_clock_failure(self, params: MeasureClockSkewInput, failure: PlatformFailure) -> None:
        """Record a failure that the next attempt may end; the workflow sends the alarm once it has lasted."""
        fault = slice_attempts.to_attempt_failure(failure).fault
        order = PlatformFaultInput(platform=params.platform, fault=fault, asked_at=datetime.now(UTC))
        if (await health.record_unreadable_clock_and_decide_alarm(self._database, order, timedelta.max)).is_first:
            log.get(__name__).error("order_clock_unread", platform=params.platform, code=fault.code)

    @activity.defn(name="order_read")
    async def read_and_commit_slice(self, params: ReadSliceInput) -> ReadSliceResult:
        """Make one attempt at a slice: read, confirm, and commit orders and the ledger's row in one transaction."""
        saver = slice_attempts.AnswerLogSaver(self._objects, params)
        async with send_heartbeats_during_block(saver.list_heartbeat_details, at_once=False):
            until = time.monotonic() + min(FURTHER_SECONDS, params.settings.timeout / 2)
            with (
                slice_attempts.convert_platform_failures(saver),
                slice_attempts.convert_outages_to_wait(params, saver),
            ):
                result = await self._take_and_read_slice_or_raise_attempt_failure(params, saver)
            is_done = result.ending is SliceReadOutcome.DONE
            further_done = await self._read_further_slices(params, until) if is_done else 0
            return result.model_copy(update={"further_done": further_done})

    async def _read_further_slices(self, params: ReadSliceInput, until: float) -> int:
        """Read the further slices as long as all goes well, and return how many; others stay due."""
        for done, window in enumerate(params.further):
            if time.monotonic() >= until:
                return done
            further = params.model_copy(update={"window": window, "resume_point": None, "further": []})
            try:
                with slice_attempts.convert_platform_failures(), slice_attempts.convert_outages_to_lost_worker():
                    read = await self._take_and_read_slice_or_raise_attempt_failure(further, None)
            except ApplicationError:
                with suppress(*DATABASE_ERRORS):
                    await attempts.release_slice_unless_retaken(self._database, further)
                return done
            if read.ending is not SliceReadOutcome.DONE:
                return done
        return len(params.further)

    async def _take_and_read_slice_or_raise_attempt_failure(
        self, params: ReadSliceInput, saver: slice_attempts.AnswerLogSaver | None
    ) -> ReadSliceResult:
        """Read a slice; a further one has no saver, because no later attempt continues it."""
        began = time.monotonic()
        attempt = await attempts.take_slice_unless_ended_or_refused(
            self._database, params, only_if_settings_unchanged=saver is None
        )
        state = attempt.state
        if attempt.refusal is not None:
            raise slice_attempts.to_application_error(
                SliceAttemptFailure(
                    kind=SliceFailureKind.EXPIRED, fault=attempt.refusal, resume_point=params.resume_point
                )
            )
        if attempt.taken is SliceStateWhenTaken.NOT:
            return ReadSliceResult(ending=SliceReadOutcome.OVER)
        answers = await slice_attempts.load_unexpired_answers_of_earlier_attempts(self._objects, params, state)
        connector = self.build_connector(
            state, params, answers, AttemptTimeBudget.for_attempt(params.settings.timeout, began)
        )
        try:
            async with (
                saver.save_at_intervals_during_block(answers, state.row.declared_revision) if saver else nullcontext()
            ):
                result = await self._read_window_and_commit(
                    state, params, connector, may_split=attempt.taken is SliceStateWhenTaken.OPEN
                )
        except PlatformFailure as failure:
            if saver is None:
                raise
            raise slice_attempts.to_application_error(
                await self._store_answers_and_build_failure(state, params, answers, failure)
            ) from None
        if saver is not None and result.ending is not SliceReadOutcome.OVER:
            await saver.delete_stored_answers()
        return result

    async def _store_answers_and_build_failure(
        self,
        state: PlatformWithSettingsInForce,
        params: ReadSliceInput,
        answers: ReplayableAnswerLog,
        failure: PlatformFailure,
    ) -> SliceAttemptFailure:
        """Build the failure of the attempt, and store the received answers where the next one may build on them."""
        result = slice_attempts.to_attempt_failure(failure)
        if slice_attempts.are_received_answers_still_valid(failure):
            resume_point = await slice_attempts.store_gained_answers_or_keep_resume_point(
                self._objects, params, answers, state.row.declared_revision
            )
            return slice_attempts.add_resume_point_and_decide_retryable(result, failure, resume_point, answers.gained)
        if answers.has_logged_answers and result.kind is SliceFailureKind.REFUSED:
            return slice_attempts.make_midway_refusal_retryable_unless_numbered(result, state.capability.paging.kind)
        return result

    async def _read_window_and_commit(
        self,
        state: PlatformWithSettingsInForce,
        params: ReadSliceInput,
        connector: PlatformConnector,
        *,
        may_split: bool,
    ) -> ReadSliceResult:
        query = state.capability.query
        halves = params.window.split_in_halves(query.window_min_seconds) if may_split else None
        asked = params.window.with_overlap(params.settings.overlap, query.window_max_seconds, query.window_min_seconds)
        if state.capability.is_in_repeated_hour(asked.start, asked.end):
            # Its halves would ask for the same whole hour.
            halves = None
        with self._memory.hold() as held:
            reading = WindowReader(connector, asked, params.settings.max_rows_per_slice if halves else None, held)
            try:
                contents = await (
                    reading.read_in_one_pass_and_check_end()
                    if params.purpose is SliceReadPurpose.SWEEP
                    else reading.read_passes_until_confirmed()
                )
            except WindowTooLarge:
                return await self._replace_slice_by_halves_and_build_result(params, halves or ())
            is_unchecked = state.row.zone_checked_at is None
            is_zone_right = is_unchecked and await reading.confirm_zone_by_query_at_modification_second()
            copies = await self._fetch_details_of_new_versions(state, reading, list(contents.copies.values()))
            return await self._store_pages_and_commit(state, params, contents, copies, is_zone_confirmed=is_zone_right)

    def build_connector(
        self,
        state: PlatformWithSettingsInForce,
        slice_input: ReadSliceInput | None = None,
        answers: ReplayableAnswerLog | None = None,
        budget: AttemptTimeBudget | None = None,
    ) -> PlatformConnector:
        """Build a connector with the platform's configured rate and credentials."""
        settings = slice_input.settings if slice_input else state.settings
        keys = build_credentials_reader(self._settings.credentials_folder, settings.credentials)
        capability = settings.apply_rate_and_api_version(state.capability)
        per_day = self._quotas.with_overrides(state.quotas).platform_requests_per_day
        quota = DailyQuotaOfAllPlatforms(state.row.project_id, per_day)
        return self._connectors.build_connector(
            capability, state.account, keys, answers=answers, budget=budget, quota=quota
        )

    async def _fetch_details_of_new_versions(
        self, state: PlatformWithSettingsInForce, reading: WindowReader, copies: list[FetchedOrder]
    ) -> list[FetchedOrder]:
        """Fetch the details of listed orders that are not stored in this version yet."""
        if state.capability.detail is None:
            return copies
        ours = await order_copies.list_ids_stored_at_least_as_new(
            self._database, state.account, copies, state.row.declared_revision
        )
        return await reading.fetch_details_of_orders([copy for copy in copies if copy.order.order_id not in ours])

    async def _replace_slice_by_halves_and_build_result(
        self, params: ReadSliceInput, halves: tuple[TimeWindow, ...]
    ) -> ReadSliceResult:
        jobs = await attempts.replace_slice_by_halves_unless_lost(self._database, params, halves)
        if jobs is None:
            return ReadSliceResult(ending=SliceReadOutcome.OVER)
        return ReadSliceResult(ending=SliceReadOutcome.SPLIT, halves=jobs)

    async def _store_pages_and_commit(
        self,
        state: PlatformWithSettingsInForce,
        params: ReadSliceInput,
        contents: NewestOrdersOfWindow,
        copies: list[FetchedOrder],
        *,
        is_zone_confirmed: bool,
    ) -> ReadSliceResult:
        key = names.build_raw_pages_key(params.platform, params.window, params.attempt_id)
        await slice_attempts.store_raw_pages_as_parquet(self._objects, key, contents.pages)
        reading = SliceReadingResult(
            copies=copies,
            orders=len(contents.copies),
            digest=contents.digest,
            pages_key=key,
            pages=len(contents.pages),
            passes=contents.passes,
            total=contents.total,
            outside=contents.outside,
            undated=contents.undated,
            is_zone_right=is_zone_confirmed,
        )
        result = await attempts.commit_orders_and_slice_unless_lost(self._database, state, params, reading)
        if result.ending is SliceReadOutcome.OVER:
            return result
        slice_attempts.log_and_count_end(params, reading, result, may_be_cut=contents.may_be_cut)
        return result


class BackfillActivities:
    """Activities of a backfill's workflow."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._engine = services.engine

    @activity.defn(name="order_backfill_begin")
    async def insert_backfill_if_new(self, params: BackfillInput) -> None:
        """Insert the backfill's record, unless it exists."""
        await backfills.insert_backfill_if_new(self._database, params, activity.info().workflow_id or "")

    @activity.defn(name="order_backfill_step")
    async def save_progress_and_list_next(self, params: BackfillBatchInput) -> BackfillSlicesToRead:
        """Save the progress of a backfill, and return its next slices."""
        return BackfillSlicesToRead(jobs=await backfills.save_progress_and_list_next(self._database, params))

    @activity.defn(name="order_backfill_end")
    async def close_backfill_and_alarm_if_failed(self, params: EndBackfillInput) -> AlarmsToAnnounce:
        """Close the record once, and return an alarm if the backfill has failed."""
        fault = params.fault or params.progress.fault
        alarm = await backfills.close_and_alarm_if_failed(
            self._database, params.backfill_id, params.progress, fault, temporal.get_activity_call()
        )
        return AlarmsToAnnounce(alarms=[alarm] if alarm else [])

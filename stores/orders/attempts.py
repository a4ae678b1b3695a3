"""Attempts at a slice: how one begins and ends, each in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from domain.faults import FaultRecord
from domain.orders import confirmation
from domain.orders.activity_models import FailSliceInput, ReadSliceInput, ReadSliceResult, SliceJob
from domain.orders.slices import EXPIRED_WAIT_MAX_SECONDS, SliceReadOutcome, SliceReadPurpose
from domain.orders.windows import TimeWindow
from infra import metrics
from infra.database import Database, Session
from stores.orders import ledger, order_copies, platforms, slices
from stores.orders.fetched_orders import FetchedOrder
from stores.orders.ledger import SliceStateWhenTaken
from stores.orders.order_copies import ChangedOrderTimes
from stores.orders.platforms import PlatformWithSettingsInForce
from stores.tables.orders import OrderPlatform, OrderSlice


class DeclarationChangedDuringRead(Exception):
    """The declaration of the platform was changed while the slice was read."""


@dataclass(frozen=True, slots=True)
class SliceAttemptOrRefusal:
    """An attempt that begins."""

    state: PlatformWithSettingsInForce
    taken: SliceStateWhenTaken
    refusal: FaultRecord | None = None
    """Why the platform refuses its credentials, where it is too early to try them again: the slice is not taken."""


@dataclass(frozen=True, slots=True)
class SliceReadingResult:
    """What an attempt has read of its window."""

    copies: Sequence[FetchedOrder]
    orders: int
    digest: bytes
    pages_key: str
    pages: int
    passes: int
    total: int | None
    outside: int
    undated: int
    is_zone_right: bool
    """Whether the platform's filter was seen to use the declared time zone."""


async def take_slice_unless_ended_or_refused(
    database: Database, params: ReadSliceInput, *, only_if_settings_unchanged: bool = False
) -> SliceAttemptOrRefusal:
    """Take a slice for an attempt, unless it has ended, or its platform refuses the credentials.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        state = await platforms.load_platform_with_settings(session, params.platform)
        if only_if_settings_unchanged and state.settings.version != params.settings.version:
            return SliceAttemptOrRefusal(state, SliceStateWhenTaken.NOT)
        if state.row.credentials_failed_since is not None and (
            refusal := await _take_credentials_try_or_get_refusal(session, params)
        ):
            return SliceAttemptOrRefusal(state, SliceStateWhenTaken.NOT, refusal)
        return SliceAttemptOrRefusal(
            state, await ledger.set_holder_and_get_taking_result(session, params, state.row.skew_seconds or 0.0)
        )


async def _take_credentials_try_or_get_refusal(session: Session, params: ReadSliceInput) -> FaultRecord | None:
    """Return the refusal, unless this attempt may try the credentials again: all slices share one try per pause."""
    row = await session.get_one(OrderPlatform, params.platform, with_for_update=True, populate_existing=True)
    if row.credentials_failed_since is None or row.credentials_fault is None:
        return None
    now = await ledger.read_database_time(session)
    pause = timedelta(seconds=min(params.settings.retryintv, EXPIRED_WAIT_MAX_SECONDS))
    if row.credentials_tried_at is not None and now - row.credentials_tried_at < pause:
        return FaultRecord.model_validate(row.credentials_fault)
    row.credentials_tried_at = now
    session.add(row)
    return None


async def replace_slice_by_halves_unless_lost(
    database: Database, params: ReadSliceInput, halves: Iterable[TimeWindow]
) -> list[SliceJob] | None:
    """Replace the slice of an attempt by its halves; None where another attempt has the slice."""
    async with database.session() as session:
        # First the platform, to which the halves refer, then the slice: as whatever else acts on slices locks them.
        await session.get_one(OrderPlatform, params.platform, with_for_update=True)
        row = await ledger.find_slice(session, params.platform, params.window, lock=True)
        if row is None or row.done_at is not None or not ledger.is_attempt_still_holder(row, params):
            return None
        return await ledger.replace_slice_by_open_halves(session, row, halves)


async def commit_orders_and_slice_unless_lost(
    database: Database, state: PlatformWithSettingsInForce, params: ReadSliceInput, reading: SliceReadingResult
) -> ReadSliceResult:
    """Write orders and the ledger's row in one transaction; writes nothing where another attempt has the slice.

    Raises:
        DeclarationChangedDuringRead: What was read by the former declaration may be other orders, or have other times.
    """
    async with database.session() as session:
        platform = await session.get_one(OrderPlatform, params.platform, with_for_update=True)
        row = await ledger.find_slice(session, params.platform, params.window, lock=True)
        if row is None or not ledger.is_attempt_still_holder(row, params):
            return ReadSliceResult(ending=SliceReadOutcome.OVER)
        if _get_declaration(platform) != _get_declaration(state.row):
            raise DeclarationChangedDuringRead(
                f"The declaration of platform {params.platform} was changed while the slice {params.window} was read."
            )
        platform.revision += 1
        if reading.is_zone_right:
            platform.zone_checked_at = await ledger.read_database_time(session)
        if platform.credentials_failed_since is not None:
            platform.credentials_failed_since, platform.credentials_fault = None, None
            platform.credentials_good_at, platform.credentials_alarm_for = (
                await ledger.read_database_time(session),
                None,
            )
        changes = await order_copies.write_copies_newer_than_stored(
            session,
            state.account,
            platform.revision,
            reading.copies,
            platform.declared_revision,
            rewrites_same=state.capability.detail is not None,
        )
        result = _build_done_slice_result(params, row, reading, changes)
        late_seconds = _compute_greatest_lateness_if_one_pass(row, params.window, changes)
        if row.done_at is None:
            _write_result_to_row(row, result, reading.pages_key)
            row.digest = reading.digest
            row.done_at = await ledger.read_database_time(session)
            metrics.SLICE_SECONDS.observe((row.done_at - row.claimed_at).total_seconds())
        elif params.purpose is SliceReadPurpose.SWEEP:
            await slices.record_completed_sweep_and_rearm_failure_alarm(
                session, platform, row, result.missed, late_seconds
            )
        else:
            row.reread_since, row.reread_fault, row.reread_at = None, None, await ledger.read_database_time(session)
            row.reread_holder, row.stale_told_at = None, None
            if row.failed_at is not None:
                # Its sweep was due, and has failed: this reading replaces it.
                await slices.record_completed_sweep_and_rearm_failure_alarm(
                    session, platform, row, result.missed, late_seconds
                )
        session.add(row)
        await ledger.advance_complete_to(session, platform)
    return result


def _get_declaration(platform: OrderPlatform) -> tuple[object, ...]:
    """Return what is declared of a platform, and the revision at which its rows were: changed and changed back, too."""
    return platform.base_url, platform.capability, platform.declared_revision


async def release_slice_unless_retaken(database: Database, params: ReadSliceInput) -> None:
    """Release the slice of an attempt that has ended, unless another attempt has taken it."""
    async with database.session() as session:
        row = await ledger.find_slice(session, params.platform, params.window, lock=True)
        if row is not None and row.done_at is None and row.holder == params.holder:
            row.holder = None
            session.add(row)


async def record_failed_slice_or_sweep(
    database: Database, params: FailSliceInput, call: str
) -> PlatformWithSettingsInForce | None:
    """Move a slice into the failed set; a failed sweep is recorded, and repeated later.

    Returns:
        The platform, if an alarm is due.

    Raises:
        Missing: There is no such platform.
    """
    async with database.session() as session:
        state = await platforms.load_platform_with_settings(session, params.platform, lock=True)
        if params.purpose is SliceReadPurpose.SWEEP:
            is_due = await slices.record_failed_sweep(session, state.row, params.window, params.fault, call)
            return state if is_due else None
        if params.purpose is SliceReadPurpose.AGAIN:
            await ledger.record_failed_reread(session, params.platform, params.window, params.fault)
        is_failed = await ledger.fail_slice_unless_finished_or_claimed_again(
            session, params.platform, params.window, params.fault, params.reader
        )
    return state if is_failed else None


def _build_done_slice_result(
    params: ReadSliceInput, row: OrderSlice, reading: SliceReadingResult, changes: list[ChangedOrderTimes]
) -> ReadSliceResult:
    """Build the result of an attempt; only a slice that was complete before can have missed orders."""
    late = _filter_new_or_updated_in_window(params.window, changes) if row.done_at is not None else []
    return ReadSliceResult(
        ending=SliceReadOutcome.DONE,
        orders=reading.orders,
        changed=len(changes),
        total=reading.total,
        passes=reading.passes,
        pages=reading.pages,
        outside=reading.outside,
        undated=reading.undated,
        missed=len(late),
    )


def _filter_new_or_updated_in_window(window: TimeWindow, changes: list[ChangedOrderTimes]) -> list[ChangedOrderTimes]:
    return [each for each in changes if each.advances_modified_at and window.contains(each.modified_at)]


def _write_result_to_row(row: OrderSlice, result: ReadSliceResult, pages_key: str) -> None:
    row.failed_at, row.fault, row.holder, row.stale_told_at, row.raw_key = None, None, None, None, pages_key
    row.orders, row.changed, row.total = result.orders, result.changed, result.total
    row.passes, row.pages, row.outside, row.undated = result.passes, result.pages, result.outside, result.undated


def _compute_greatest_lateness_if_one_pass(
    row: OrderSlice, window: TimeWindow, changes: list[ChangedOrderTimes]
) -> float | None:
    """Return how late the orders were that only the sweep found.

    Where rows moved during the first reading, it may have skipped an order that was there; where nothing moved, the
    platform did not even count it.
    """
    if row.done_at is None or row.read_at is None or row.passes != 1:
        return None
    return max(
        (
            confirmation.compute_order_age_when_missed(each.modified_at, row.read_at)
            for each in _filter_new_or_updated_in_window(window, changes)
        ),
        default=None,
    )

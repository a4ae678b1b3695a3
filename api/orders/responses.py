"""Responses about platforms, slices, backfills, reports and orders, and how rows are converted to them."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import date, datetime
from typing import Any, Final

from pydantic import AwareDatetime, Field, JsonValue

from api.http.models import Response
from domain.faults import FaultRecord
from domain.orders import names
from domain.orders.activity_models import SliceStatus
from domain.orders.config import PlatformOptions, SettingOrigin
from domain.orders.slices import BackfillState, RereadState, SliceState
from domain.orders.windows import TimeWindow
from stores.orders.slices import OpenAndFailedSliceCounts
from stores.tables.orders import OrderBackfill, OrderPlatform, OrderSlice


class BackfillResponse(Response):
    """The record of a backfill."""

    platform: str
    backfill_id: str
    requested_by: str = Field(description="the name that was sent, or where the request came from")
    requested_at: AwareDatetime
    window: TimeWindow = Field(description="the time that is read again")
    state: BackfillState = Field(description="`failed` if any of its slices could not be read again")
    slices: int = Field(description="complete slices of the time when it began")
    read: int = Field(description="of them, how many were read again")
    failed: int = Field(description="of them, how many could not be; each of them says why in its `reread`")
    read_to: AwareDatetime | None = Field(description="up to here every slice was tried; null before the first")
    finished_at: AwareDatetime | None
    fault: FaultRecord | None = Field(description="the cause of the first slice that failed")
    workflow_id: str = Field(description="where Temporal shows it")


_FIELDS_BESIDE_ROW: Final = {"is_configured", "is_paused", *(each.name for each in fields(OpenAndFailedSliceCounts))}


class ListedPlatformResponse(Response):
    """A platform in a list."""

    platform: str
    project_id: str
    kind: str
    shop: str
    base_url: str
    starts_at: AwareDatetime | None = Field(description="its starttime, resolved once; null before the first claim")
    claimed_to: AwareDatetime | None = Field(description="up to here slices are claimed, but for history")
    complete_to: AwareDatetime | None = Field(description="up to here every order is in, without a gap")
    unserved_since: AwareDatetime | None = Field(description="since when no worker serves it")
    clock_failed_since: AwareDatetime | None = Field(
        description="since when its clock cannot be read, so that nothing new is claimed"
    )
    credentials_failed_since: AwareDatetime | None = Field(
        description="since when it refuses the account's credentials, so that its slices wait"
    )
    slices_stale: int = Field(description="slices reported to take longer than `HAULAGE_ORDERS__STALE_HOURS`")
    sweeps_failed: int = Field(description="complete slices whose last sweep failed; it is made again by itself")
    slices_failed: int = Field(description="slices in the failed set")
    slices_open: int = Field(description="slices that wait or are read")
    is_configured: bool = Field(description="whether it has a configuration of its own; else the defaults are in force")
    is_paused: bool | None = Field(
        description="whether its schedule is; a list knows it a moment late, null if not at all"
    )


class PlatformResponse(ListedPlatformResponse):
    """A platform in full."""

    platform_now: AwareDatetime | None = Field(description="the platform's clock")
    zone_minutes: int = Field(description="how far its own zone is before UTC today; reports are of the days there")
    skew_seconds: float | None = Field(description="how far that is before ours")
    clock_fault: FaultRecord | None = Field(description="why its clock cannot be read")
    credentials_fault: FaultRecord | None = Field(description="why they are refused")
    lag_seconds: float | None = Field(description="how far `complete_to` is behind the platform's clock")
    gaps: list[TimeWindow] = Field(description="what is not in yet before `claimed_to`, oldest first, at most 100")
    next_slices: list[TimeWindow] = Field(description="what is claimed next, once it has settled")
    requests_in_window: int = Field(description="of the rate, how many requests are counted now")
    requests_today: int = Field(
        description="requests counted within the last 24 hours, whether or not there is a quota"
    )
    settle_lag: int = Field(description="as configured")
    proposed_settle_lag: int | None = Field(
        description="what would have caught the orders that came late; null where the one in force does"
    )
    orders_missed: int = Field(description="orders that only a later reading found")
    backfill: BackfillResponse | None = Field(description="the backfill that was requested last")
    is_paused: bool = Field(description="whether its schedule is paused")
    note: str = Field(description="why it was paused or resumed last")
    next_runs: list[AwareDatetime] = Field(description="when its schedule claims next; none while it is paused")
    workflow_id: str | None = Field(description="where Temporal shows the newest cycle; null before the first")


class SettingValueAndOrigin(Response):
    """One value, and the level that it comes from."""

    value: JsonValue
    origin: SettingOrigin


class PlatformConfigResponse(Response):
    """The configuration in force."""

    platform: str
    version: int = Field(description="grows with every change; each slice notes the one that it was read by")
    effective: dict[str, SettingValueAndOrigin]
    inherited: dict[str, SettingValueAndOrigin] = Field(description="what would be in force if this level set nothing")
    own: PlatformOptions = Field(description="what this level sets; send it back changed")


class PlatformScheduleResponse(Response):
    """State of a platform's schedule."""

    platform: str
    is_paused: bool
    note: str
    next_runs: list[AwareDatetime] = Field(description="when it claims next; none while it is paused")


class RemovedPlatformResponse(Response):
    """That a platform was removed."""

    platform: str
    slices_stopped: int = Field(description="slices that were not finished")


class LastSliceRereadResponse(Response):
    """The last requested reading of a complete slice, by a redo or a backfill."""

    state: RereadState = Field(description="`failed`: what was read before is kept")
    since: AwareDatetime | None = Field(description="since when it is read again; null where it has ended")
    ended_at: AwareDatetime | None = Field(description="when a reading again ended last")
    fault: FaultRecord | None = Field(description="why it failed")


class SliceResponse(Response):
    """A slice of the ledger."""

    slice: str = Field(description="names it in addresses")
    window: TimeWindow
    state: SliceState
    track: str
    attempts: int
    settings_version: int | None = Field(description="the configuration that it was last read by")
    orders: int | None = Field(description="different orders that were told, its overlap included")
    total: int | None = Field(description="how many the platform says there are")
    changed: int | None = Field(description="of them new or newer than what we had")
    passes: int | None
    pages: int | None
    outside: int | None = Field(description="orders outside of what was asked for; they were kept")
    undated: int | None = Field(description="orders without a time; they count as the oldest that was asked for")
    swept_at: AwareDatetime | None = Field(description="when the delayed sweep had read it again")
    missed: int | None = Field(description="orders that only the delayed sweep found; null before that")
    stale_reported_at: AwareDatetime | None = Field(
        description="when it was reported that it takes too long; null once it has ended"
    )
    reread: LastSliceRereadResponse | None = Field(
        description="of a complete slice that was asked for again; null if it never was"
    )
    fault: FaultRecord | None = Field(description="why it has failed; of one that is done, why its last sweep has")
    reason: str | None = Field(description="why it was skipped")
    raw_key: str | None = Field(description="where its pages lie in the object store")
    claimed_at: AwareDatetime
    finished_at: AwareDatetime | None
    workflow_id: str = Field(description="where Temporal shows its first reading; one that was redone has a suffix")


class SliceAttemptWithLastFaultResponse(Response):
    """The reading of a slice that is under way."""

    attempt: int = Field(description="the attempt that is being made, or was made last")
    fault: FaultRecord | None = Field(description="why the last attempt that failed did")
    next_attempt_at: AwareDatetime | None = Field(description="when the next one begins; null while one is made")


class SliceDetailsResponse(SliceResponse):
    """A slice of the ledger, and how its reading goes."""

    reading: SliceAttemptWithLastFaultResponse | None = Field(
        default=None, description="null where it is not being read, or no worker of the workflow answers"
    )


class UnchangedSliceAndReason(Response):
    """A slice that was left unchanged, and why."""

    slice: str
    code: str
    detail: str


class SlicesActionResponse(Response):
    """Result of an action on several slices."""

    dry_run: bool = Field(default=False, description="whether nothing was done, because a dry run was asked for")
    done: list[str] = Field(description="slices that were read again, split or skipped, the oldest first")
    unchanged: list[UnchangedSliceAndReason] = Field(description="slices that were left as they are, and why")
    next_start: AwareDatetime | None = Field(
        description="where more fit than are treated at a time, 1,000: send it as `start` to go on"
    )


class TimelineBucketResponse(Response):
    """Counts of the slices that overlap one of the equal parts of the time."""

    number: int = Field(description="counted from 0; one that no slice touches is left out")
    slices: int
    open: int
    failed: int
    done: int
    skipped: int
    swept: int = Field(description="of those done, how many were read again by the delayed sweep")
    missed: int = Field(description="orders that only the sweep found, in slices that begin here")
    orders: int = Field(description="orders of the slices that begin here")


class TimelineResponse(Response):
    """A platform's slices over time, with its watermarks."""

    platform: str
    start: AwareDatetime
    end: AwareDatetime
    bucket_seconds: float = Field(description="length of each bucket")
    platform_now: AwareDatetime = Field(description="the platform's clock, as near as it is known")
    settled_to: AwareDatetime = Field(description="what is younger is not read yet, by `settle_lag`")
    starts_at: AwareDatetime | None
    history_to: AwareDatetime | None = Field(description="up to here history is claimed")
    live_from: AwareDatetime | None = Field(description="from here on the present is claimed")
    claimed_to: AwareDatetime | None
    complete_to: AwareDatetime | None
    buckets: list[TimelineBucketResponse]


class ReportStartedResponse(Response):
    """A report that is being made."""

    platform: str
    day: date
    workflow_id: str


class ReportDayResponse(Response):
    """A day of which there is a report."""

    platform: str
    day: date


class ReportResponse(Response):
    """Figures of a report."""

    platform: str
    day: date
    made_at: AwareDatetime
    complete_to: AwareDatetime | None = Field(description="up to when every order was in, when it was made")
    window: TimeWindow = Field(
        description="the part of the day that was compared; what lies outside, before the platform's beginning or past "
        "`complete_to`, is not called missing"
    )
    zone_minutes: int = Field(description="how far the platform's zone is before UTC: the day is that of this zone")
    listed: int = Field(description="orders that the platform lists for this part of the day")
    stored: int = Field(description="orders that we have for it")
    missing: int = Field(description="listed, and not stored at all or only older")
    not_listed: int | None = Field(
        description="stored and not listed any more: modified again meanwhile, or deleted there; null where a platform "
        "is asked for orders by their creation, whose day only it knows"
    )
    url: str = Field(description="the workbook with the ids, for a quarter of an hour")


class OrderResponse(Response):
    """An order, as its platform listed it last."""

    platform: str
    shop: str
    order_id: str
    modified_at: AwareDatetime
    version: int
    order: JsonValue


class ExportMarkResponse(Response):
    """A mark that exports refer to."""

    platform: str
    mark: str
    complete_to: AwareDatetime | None = Field(description="up to when every order is in it")
    total: int = Field(description="how many orders it has")
    source_url: str = Field(description="what to send as `source_url`, with your key in `headers`")


def build_platform_fields(row: OrderPlatform, counts: OpenAndFailedSliceCounts) -> dict[str, Any]:
    """Build the fields that a row and the counts of its slices have."""
    same = {name: getattr(row, name) for name in ListedPlatformResponse.model_fields if name not in _FIELDS_BESIDE_ROW}
    return {**same, **asdict(counts)}


def build_slice_response(row: OrderSlice) -> SliceResponse:
    """Build the response for a row of the ledger."""
    window = TimeWindow(start=row.start_at, end=row.end_at)
    same = {
        name: getattr(row, name)
        for name in SliceResponse.model_fields
        if name
        not in {"slice", "window", "state", "finished_at", "stale_reported_at", "reread", "fault", "workflow_id"}
    }
    fault = None if row.fault is None else FaultRecord.model_validate(row.fault)
    state, finished_at = _derive_state_and_finish_time(row)
    return SliceResponse(
        slice=str(window),
        window=window,
        state=state,
        finished_at=finished_at,
        stale_reported_at=row.stale_told_at,
        reread=_build_reread_response(row),
        fault=fault,
        workflow_id=names.build_slice_workflow_id(row.platform, window),
        **same,
    )


def build_slice_details(row: OrderSlice, status: SliceStatus | None) -> SliceDetailsResponse:
    """Build the response for a row and the status of its workflow."""
    reading = None
    if status is not None:
        reading = SliceAttemptWithLastFaultResponse(
            attempt=status.attempt, fault=status.fault, next_attempt_at=status.next_attempt_at
        )
    return SliceDetailsResponse(**build_slice_response(row).model_dump(), reading=reading)


def _build_reread_response(row: OrderSlice) -> LastSliceRereadResponse | None:
    if row.reread_since is not None:
        return LastSliceRereadResponse(
            state=RereadState.RUNNING, since=row.reread_since, ended_at=row.reread_at, fault=None
        )
    if row.reread_at is None:
        return None
    fault = None if row.reread_fault is None else FaultRecord.model_validate(row.reread_fault)
    state = RereadState.SUCCEEDED if fault is None else RereadState.FAILED
    return LastSliceRereadResponse(state=state, since=None, ended_at=row.reread_at, fault=fault)


def _derive_state_and_finish_time(row: OrderSlice) -> tuple[SliceState, datetime | None]:
    if row.split_at is not None:
        return SliceState.SPLIT, row.split_at
    if row.skipped_at is not None:
        return SliceState.SKIPPED, row.skipped_at
    if row.done_at is not None:
        return SliceState.DONE, row.done_at
    return (SliceState.FAILED, row.failed_at) if row.failed_at is not None else (SliceState.OPEN, None)


def build_backfill_response(row: OrderBackfill) -> BackfillResponse:
    """Build the response for a record."""
    other = {"requested_by", "requested_at", "window", "fault"}
    same = {name: getattr(row, name) for name in BackfillResponse.model_fields if name not in other}
    fault = None if row.fault is None else FaultRecord.model_validate(row.fault)
    return BackfillResponse(
        requested_by=row.asked_by,
        requested_at=row.asked_at,
        window=TimeWindow(start=row.start_at, end=row.end_at),
        fault=fault,
        **same,
    )

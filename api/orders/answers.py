"""What callers are told of platforms and slices."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import datetime
from typing import Any, Final

from pydantic import AwareDatetime, Field

from api.http.models import Response
from api.orders.backfills import ShownBackfill
from domain.faults import FaultRecord
from domain.orders import names
from domain.orders.slices import RereadState, SliceState
from domain.orders.windows import TimeWindow
from stores.orders.slices import SliceCounts
from stores.tables.orders import OrderPlatform, OrderSlice

_COUNTED: Final = frozenset(each.name for each in fields(SliceCounts))


class ListedPlatform(Response):
    """A platform, as lists show it."""

    platform: str
    project_id: str
    kind: str
    shop: str
    base_url: str
    starts_at: AwareDatetime | None = Field(description="its starttime, resolved once; null before the first claim")
    claimed_to: AwareDatetime | None = Field(description="up to here slices are claimed, but for history")
    complete_to: AwareDatetime | None = Field(description="up to here every order is in, without a hole")
    unserved_since: AwareDatetime | None = Field(description="since when no worker serves it")
    clock_failed_since: AwareDatetime | None = Field(
        description="since when its clock cannot be read, so that nothing new is claimed"
    )
    credentials_failed_since: AwareDatetime | None = Field(
        description="since when it refuses the account's credentials, so that its slices wait"
    )
    stale: int = Field(description="slices that take longer than `HAULAGE_ORDERS__STALE_HOURS` and were reported")
    sweeps_failed: int = Field(description="complete slices whose last sweep failed; it is made again by itself")
    failed: int = Field(description="slices in the failed set")
    open: int = Field(description="slices that wait or are read")


class ShownPlatform(ListedPlatform):
    """A platform, with all that is known of how it goes."""

    platform_now: AwareDatetime | None = Field(description="the platform's clock")
    zone_minutes: int = Field(description="how far its own zone is before UTC; reports are made of the days there")
    skew_seconds: float | None = Field(description="how far that is before ours")
    clock_fault: FaultRecord | None = Field(description="why its clock cannot be read")
    credentials_fault: FaultRecord | None = Field(description="why they are refused")
    lag_seconds: float | None = Field(description="how far `complete_to` is behind the platform's clock")
    holes: list[TimeWindow] = Field(description="what is not in yet before `claimed_to`, oldest first, at most 100")
    next_slices: list[TimeWindow] = Field(description="what is claimed next, once it has settled")
    requests_in_window: int = Field(description="of the rate, how many requests are counted now")
    requests_today: int = Field(
        description="requests counted within the last 24 hours, whether or not there is a quota"
    )
    settle_lag: int = Field(description="as configured")
    proposed_settle_lag: int | None = Field(
        description="what would have caught the orders that came late; null where the one in force does"
    )
    missed: int = Field(description="orders that only a later reading found")
    backfill: ShownBackfill | None = Field(description="the backfill that was asked for last")
    paused: bool = Field(description="whether its schedule is paused")
    note: str = Field(description="why it was paused or resumed last")
    next_runs: list[AwareDatetime] = Field(description="when its schedule claims next; none while it is paused")
    workflow_id: str | None = Field(description="where Temporal shows the newest cycle; null before the first")


class Reread(Response):
    """The last reading of a complete slice that somebody asked for: by a redo, or by a backfill of its time."""

    state: RereadState = Field(description="`failed`: what was read before is kept")
    since: AwareDatetime | None = Field(description="since when it is read again; null where it has ended")
    ended_at: AwareDatetime | None = Field(description="when a reading again ended last")
    fault: FaultRecord | None = Field(description="why it failed")


class ShownSlice(Response):
    """A slice as the ledger has it."""

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
    stale_told_at: AwareDatetime | None = Field(
        description="when it was reported that it takes too long; null once it has ended"
    )
    reread: Reread | None = Field(description="of a complete slice that was asked for again; null if it never was")
    fault: FaultRecord | None = Field(description="why it has failed; of one that is done, why its last sweep has")
    reason: str | None = Field(description="why it was skipped")
    raw_key: str | None = Field(description="where its pages lie in the object store")
    claimed_at: AwareDatetime
    finished_at: AwareDatetime | None
    workflow_id: str = Field(description="where Temporal shows its first reading; one that was redone has a suffix")


def known(row: OrderPlatform, counts: SliceCounts) -> dict[str, Any]:
    """What a row and the counts of its slices tell by themselves."""
    same = {name: getattr(row, name) for name in ListedPlatform.model_fields if name not in _COUNTED}
    return {**same, **asdict(counts)}


def shown_slice(row: OrderSlice) -> ShownSlice:
    """A row of the ledger."""
    window = TimeWindow(start=row.start_at, end=row.end_at)
    same = {
        name: getattr(row, name)
        for name in ShownSlice.model_fields
        if name not in {"slice", "window", "state", "finished_at", "reread", "fault", "workflow_id"}
    }
    fault = None if row.fault is None else FaultRecord.model_validate(row.fault)
    state, finished_at = _state(row)
    return ShownSlice(
        slice=str(window),
        window=window,
        state=state,
        finished_at=finished_at,
        reread=_reread(row),
        fault=fault,
        workflow_id=names.slice_id(row.platform, window),
        **same,
    )


def _reread(row: OrderSlice) -> Reread | None:
    if row.reread_since is not None:
        return Reread(state=RereadState.RUNNING, since=row.reread_since, ended_at=row.reread_at, fault=None)
    if row.reread_at is None:
        return None
    fault = None if row.reread_fault is None else FaultRecord.model_validate(row.reread_fault)
    state = RereadState.SUCCEEDED if fault is None else RereadState.FAILED
    return Reread(state=state, since=None, ended_at=row.reread_at, fault=fault)


def _state(row: OrderSlice) -> tuple[SliceState, datetime | None]:
    if row.split_at is not None:
        return SliceState.SPLIT, row.split_at
    if row.skipped_at is not None:
        return SliceState.SKIPPED, row.skipped_at
    if row.done_at is not None:
        return SliceState.DONE, row.done_at
    return (SliceState.FAILED, row.failed_at) if row.failed_at is not None else (SliceState.OPEN, None)

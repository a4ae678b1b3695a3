"""What callers are told of platforms and slices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, Field

from api.models import Answer
from domain.faults import FaultRecord
from domain.orders import places
from domain.orders.windows import Window
from infra.tables.orders import OrderPlatform, OrderSlice


class SliceState(StrEnum):
    """What became of a slice."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SPLIT = "split"


_COUNTED = (SliceState.FAILED, SliceState.OPEN)


class ListedPlatform(Answer):
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
    failed: int = Field(description="slices in the failed set")
    open: int = Field(description="slices that wait or are read")


class ShownPlatform(ListedPlatform):
    """A platform, with all that is known of how it goes."""

    platform_now: AwareDatetime | None = Field(description="the platform's clock")
    skew_seconds: float | None = Field(description="how far that is before ours")
    lag_seconds: float | None = Field(description="how far `complete_to` is behind the platform's clock")
    holes: list[Window] = Field(description="what is not in yet before `claimed_to`, oldest first, at most 100")
    next_slices: list[Window] = Field(description="what is claimed next, once it has settled")
    requests_in_window: int = Field(description="of the rate, how many requests are counted now")
    requests_today: int = Field(description="of the daily quota, how many are counted now")
    settle_lag: int = Field(description="as configured")
    proposed_settle_lag: int | None = Field(description="what would have caught the orders that came late")
    missed: int = Field(description="orders that only a later reading found")
    paused: bool = Field(description="whether its schedule is paused")
    note: str = Field(description="why it was paused or resumed last")
    next_runs: list[AwareDatetime] = Field(description="when its schedule claims next")
    workflow_id: str | None = Field(description="where Temporal shows the newest cycle; null before the first")


class ShownSlice(Answer):
    """A slice as the ledger has it."""

    slice: str = Field(description="names it in addresses")
    window: Window
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
    swept_at: AwareDatetime | None = Field(description="when the delayed sweep had read it again")
    missed: int | None = Field(description="orders that only the delayed sweep found; null before that")
    fault: FaultRecord | None
    reason: str | None = Field(description="why it was skipped")
    raw_key: str | None = Field(description="where its pages lie in the object store")
    claimed_at: AwareDatetime
    finished_at: AwareDatetime | None
    workflow_id: str = Field(description="where Temporal shows its first reading; one that was redone has a suffix")


def known(row: OrderPlatform, unfinished: Mapping[SliceState, int]) -> dict[str, Any]:
    """What a row and its unfinished slices tell by themselves."""
    same = {name: getattr(row, name) for name in ListedPlatform.model_fields if name not in _COUNTED}
    return {**same, **{state: unfinished.get(state, 0) for state in _COUNTED}}


def shown_slice(row: OrderSlice) -> ShownSlice:
    """A row of the ledger."""
    window = Window(start=row.start_at, end=row.end_at)
    same = {
        name: getattr(row, name)
        for name in ShownSlice.model_fields
        if name not in {"slice", "window", "state", "finished_at", "fault", "workflow_id"}
    }
    fault = None if row.fault is None else FaultRecord.model_validate(row.fault)
    state, finished_at = _state(row)
    return ShownSlice(
        slice=str(window),
        window=window,
        state=state,
        finished_at=finished_at,
        fault=fault,
        workflow_id=places.slice_id(row.platform, window),
        **same,
    )


def _state(row: OrderSlice) -> tuple[SliceState, datetime | None]:
    if row.split_at is not None:
        return SliceState.SPLIT, row.split_at
    if row.skipped_at is not None:
        return SliceState.SKIPPED, row.skipped_at
    if row.done_at is not None:
        return SliceState.DONE, row.done_at
    return (SliceState.FAILED, row.failed_at) if row.failed_at is not None else (SliceState.OPEN, None)

"""Requests and responses of orders. Fields that a newer API adds are ignored, so older clients keep working."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from haulage.models import Fault


class SliceState(StrEnum):
    """State of a slice."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SPLIT = "split"


class BackfillState(StrEnum):
    """State of a backfill, or of a requested reading of a slice."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether it has ended."""
        return self is not BackfillState.RUNNING


class Window(BaseModel):
    """A time whose start is included and whose end is not."""

    model_config = ConfigDict(frozen=True)

    start: datetime
    end: datetime


class PlatformSetup(BaseModel):
    """An account at a platform."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project_id: str
    """Whose orders they are."""
    kind: str
    """A kind that is built in, or the name of your own `capability`."""
    shop: str
    base_url: str
    capability: Mapping[str, Any] | None = None
    """What the platform can do, where its kind is not built in."""
    notify_url: str | None = None
    """Receives the alarms."""
    is_paused: bool = False
    """Whether nothing is fetched before the platform is resumed."""


class Backfill(BaseModel):
    """A time that is read again."""

    platform: str
    backfill_id: str
    requested_by: str
    """The name that was sent, or where the request came from."""
    requested_at: datetime
    window: Window
    """The time that is read again."""
    state: BackfillState
    """Failed if any of its slices could not be read again."""
    slices: int
    """Complete slices of the time when it began."""
    read: int
    """Of them, how many were read again."""
    failed: int
    """Of them, how many could not be read again; the `reread` of each says why."""
    read_to: datetime | None = None
    """Up to here every slice was tried; None before the first."""
    finished_at: datetime | None = None
    """When it ended; None while it runs."""
    fault: Fault | None = None
    """Why the first slice that failed did."""
    workflow_id: str
    """Where Temporal shows it."""


class ListedPlatform(BaseModel):
    """A platform in a list."""

    platform: str
    project_id: str
    """Whose orders they are."""
    kind: str
    """A kind that is built in, or the name of its own `capability`."""
    shop: str
    base_url: str
    starts_at: datetime | None = None
    """Where its orders begin; None before the first claim."""
    claimed_to: datetime | None = None
    """Up to here slices are claimed, those of the history apart."""
    complete_to: datetime | None = None
    """Up to here every order is stored, without a gap."""
    unserved_since: datetime | None = None
    """Since when no worker serves it; None while one does."""
    clock_failed_since: datetime | None = None
    """Since when its clock cannot be read, so that nothing new is claimed; None while it can."""
    credentials_failed_since: datetime | None = None
    """Since when it refuses the account's credentials, so that its slices wait; None while it takes them."""
    slices_stale: int = 0
    """Slices that were reported because they take longer than `HAULAGE_ORDERS__STALE_HOURS`."""
    sweeps_failed: int = 0
    """Complete slices whose last sweep failed; it is repeated by itself."""
    slices_failed: int = 0
    """Slices in the failed set."""
    slices_open: int = 0
    """Slices that wait or are read."""
    is_configured: bool = True
    """Whether it has a configuration of its own; without one, the defaults are in force."""
    is_paused: bool | None = None
    """Whether its schedule is paused, in a list as of a moment ago; None where that is not known."""


class Platform(ListedPlatform):
    """A platform in full."""

    platform_now: datetime | None = None
    """The time by the platform's clock."""
    zone_minutes: int = 0
    """How far the platform's zone is ahead of UTC, negative where it is behind; reports are made of the days there."""
    skew_seconds: float | None = None
    """How far the platform's clock is ahead of Haulage's, negative where it is behind."""
    clock_fault: Fault | None = None
    """Why its clock cannot be read."""
    credentials_fault: Fault | None = None
    """Why its credentials are refused."""
    lag_seconds: float | None = None
    """How far `complete_to` is behind the platform's clock."""
    gaps: Sequence[Window] = ()
    """What is not stored yet before `claimed_to`, oldest first, at most 100."""
    next_slices: Sequence[Window] = ()
    """What is claimed next, once its orders have settled."""
    requests_in_window: int = 0
    """Requests that count against the platform's rate now."""
    requests_today: int = 0
    """Requests within the last 24 hours, whether or not there is a quota."""
    settle_lag: int = 0
    """The configured seconds after which orders have settled."""
    proposed_settle_lag: int | None = None
    """The seconds that would have caught the orders that came late; None where `settle_lag` does."""
    orders_missed: int = 0
    """Orders that only a later reading found."""
    backfill: Backfill | None = None
    """The newest one."""
    is_paused: bool = False
    """Whether its schedule is paused."""
    note: str = ""
    """Why it was paused or resumed last."""
    next_runs: Sequence[datetime] = ()
    """When its schedule claims next; empty while it is paused."""
    workflow_id: str | None = None
    """Where Temporal shows the newest cycle; None before the first."""

    @property
    def trouble(self) -> Fault | None:
        """Why nothing can be fetched now: the clock that cannot be read, or credentials that are refused."""
        return self.credentials_fault or self.clock_fault

    @property
    def has_stored_all_settled(self) -> bool:
        """Whether every order that has settled is stored."""
        is_complete = self.complete_to is not None and self.complete_to == self.claimed_to
        if self.slices_open or not is_complete or self.platform_now is None:
            return False
        settled_to = self.platform_now - timedelta(seconds=self.settle_lag)
        return not self.next_slices or self.next_slices[0].end > settled_to


class SettingValue(BaseModel):
    """A value, and the level of the configuration that it comes from."""

    value: Any
    origin: str


class PlatformConfig(BaseModel):
    """Configuration of a platform, or with the name `default` the one that all share."""

    platform: str
    version: int
    """Grows with every change; each slice has the one that it was read by."""
    effective: Mapping[str, SettingValue]
    """The values in force."""
    inherited: Mapping[str, SettingValue]
    """What would be in force if this level set nothing."""
    own: Mapping[str, Any]
    """What this level sets; send it back changed."""


class PlatformSchedule(BaseModel):
    """State of a platform's schedule."""

    platform: str
    is_paused: bool
    note: str = ""
    """Why it was paused or resumed last."""
    next_runs: Sequence[datetime] = ()
    """When it claims next; empty while it is paused."""


class LastSliceReread(BaseModel):
    """The last requested reading of a complete slice."""

    state: BackfillState
    """Where it failed, what was read before is kept."""
    since: datetime | None = None
    """Since when it is read again; None where that has ended."""
    ended_at: datetime | None = None
    """When a reading again ended last."""
    fault: Fault | None = None
    """Why it failed."""


class OrderSlice(BaseModel):
    """A slice of the ledger."""

    slice: str
    """Its id."""
    window: Window
    state: SliceState
    track: str
    """`live` or `history`."""
    attempts: int
    settings_version: int | None = None
    """The version of the configuration that it was last read by."""
    orders: int | None = None
    """Different orders that were listed, those of its overlap included."""
    total: int | None = None
    """How many the platform counted."""
    changed: int | None = None
    """Of the orders, those that were new or newer."""
    passes: int | None = None
    """How often all its pages were read until it was confirmed."""
    pages: int | None = None
    """Pages of all passes."""
    outside: int | None = None
    """Orders outside of the time that was asked for; they are stored."""
    undated: int | None = None
    """Orders without a time; they count as the oldest that was asked for."""
    swept_at: datetime | None = None
    """When the sweep had read it again."""
    missed: int | None = None
    """Orders that only the sweep found; None before it."""
    stale_reported_at: datetime | None = None
    """When it was reported that the slice takes too long; None once it has ended."""
    reread: LastSliceReread | None = None
    """The last reading again that was asked for; None if there was none."""
    fault: Fault | None = None
    """Why it failed; of one that is done, why its last sweep did."""
    reason: str | None = None
    """Why it was skipped."""
    raw_key: str | None = None
    """The key of its pages in the object store."""
    claimed_at: datetime
    finished_at: datetime | None = None
    """When it was done, failed, skipped or split; None while it is open."""
    workflow_id: str
    """Where Temporal shows its first reading; one that was redone has a suffix."""


class SliceChoice(BaseModel):
    """Slices: those with these ids, or those of the failed set that match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slices: Sequence[str] | None = None
    start: datetime | None = None
    """Of the failed set, those that end after this."""
    end: datetime | None = None
    """Of the failed set, those that begin before this."""
    cause: str | None = None
    """Of the failed set, those that failed with this code."""
    all: bool = False
    """The whole failed set."""
    dry_run: bool = False
    """Only say what would be done, and what would be left."""
    who: str | None = None
    """Your name, for the audit log."""
    reason: str | None = None
    """Why, for the audit log."""


class UnchangedSlice(BaseModel):
    """A slice that was left unchanged, and why."""

    slice: str
    code: str
    detail: str


class SlicesActionResult(BaseModel):
    """Result of an action on slices."""

    done: Sequence[str]
    unchanged: Sequence[UnchangedSlice] = ()
    next_start: datetime | None = None
    """Where more match than are changed at a time: send it as `start` to continue."""
    dry_run: bool = False
    """Whether nothing was done, because a dry run was asked for."""


class Order(BaseModel):
    """An order, as its platform listed it last."""

    platform: str
    shop: str
    order_id: str
    modified_at: datetime
    version: int
    order: Any
    """The platform's JSON; read as Python does, so that decimals are floats."""


class OrderMark(BaseModel):
    """A mark: the orders of a platform as they were at a moment, and the address that exports them."""

    platform: str
    mark: str
    complete_to: datetime | None = None
    total: int
    source_url: str
    """The `source_url` of a download of these orders; its `headers` need a key of the project."""

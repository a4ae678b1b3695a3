"""Requests about platforms, slices, backfills, reports and orders: paths, queries and bodies."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from api.http import validation
from api.http.models import Request
from api.http.pagination import PageQuery
from api.http.validation import BodyTimestamp, QueryTimestamp
from api.orders.context import PlatformPath
from domain.orders import names, windows
from domain.orders.capability import Capability
from domain.orders.slices import BackfillState, RereadState, SliceCause, SliceState
from domain.orders.windows import TimeWindow
from domain.webhooks import DELIVERY_ID_PATTERN


class PlatformDeclaration(Request):
    """A kind of platform, and where an account of it is."""

    kind: str = Field(max_length=40, description="a kind that is built in, or the name of your own `capability`")
    shop: str = Field(min_length=1, max_length=200)
    base_url: str = Field(max_length=2_000, description="where the platform's API begins")
    capability: Capability | None = Field(default=None, description="what it can do, where its kind is not built in")


class PlatformSetupRequest(PlatformDeclaration):
    """One account at a platform."""

    project_id: str = Field(max_length=64, description="whose orders they are; its webhook secret signs alarms")
    notify_url: str | None = Field(
        default=None,
        max_length=8_000,
        description="who is told of failed slices and sweeps, unserved platforms and wrong clocks",
    )
    is_paused: bool = Field(
        default=False,
        description="set it up paused, so that nothing is fetched before you have configured and resumed it; "
        "without it a new platform starts at once, and one that exists stays as it is",
    )


class TryPlatformRequest(PlatformDeclaration):
    """An account to read one page of, before it is set up."""

    credentials: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="NAME of a file NAME.json in HAULAGE_ORDERS__CREDENTIALS_FOLDER of the API",
    )
    start: BodyTimestamp | None = Field(
        default=None, description="an hour before `end` if it is left out, or as long before as the platform answers"
    )
    end: BodyTimestamp | None = Field(
        default=None, description="the platform's now if it is left out, or the latest time that it answers"
    )

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(self.start, self.end)
        return self


class PlatformsQuery(PageQuery):
    """Filter of platforms."""

    project_id: str | None = Field(default=None, max_length=64, description="only those of this project")


class PlatformDeliveryPath(PlatformPath):
    """Path of a delivery of a platform."""

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)


def _require_slice_id(slice_id: object) -> object:
    if isinstance(slice_id, str):
        windows.parse_slice_id(slice_id)
    return slice_id


SliceName = Annotated[
    str,
    Field(pattern=r"^\d{8}T\d{6}Z:\d{8}T\d{6}Z$", examples=["20261120T100000Z:20261120T101000Z"]),
    BeforeValidator(_require_slice_id),
]


class SlicePath(PlatformPath):
    """Path of a slice, by its id in the ledger and in workflow ids."""

    slice: SliceName

    @property
    def window(self) -> TimeWindow:
        """The window of the slice."""
        return windows.parse_slice_id(self.slice)


class SlicesQuery(PageQuery):
    """Filter of slices."""

    state: SliceState | None = None
    reread: RereadState | None = Field(default=None, description="only complete slices that were asked for again")
    stale: Literal["true"] | None = Field(default=None, description="only those that were reported to take too long")
    sweep: Literal["failed"] | None = Field(default=None, description="only complete ones whose last sweep failed")
    cause: SliceCause | None = Field(default=None, description="only those that failed with this code")
    start: QueryTimestamp | None = Field(default=None, description="only slices that end after this")
    end: QueryTimestamp | None = Field(default=None, description="only slices that begin before this")

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(self.start, self.end)
        return self


SLICES_MAX: Final = 1_000


class SliceActionRequest(Request):
    """Who acts on slices, and why."""

    who: str | None = Field(default=None, max_length=200, description="your name, for the audit")
    reason: str | None = Field(default=None, max_length=500, description="why, for the audit")


class SkipSliceRequest(SliceActionRequest):
    """Why a slice is skipped."""

    reason: str = Field(min_length=3, max_length=500, description="kept in the ledger, and for the audit")


class SliceSelectionRequest(SliceActionRequest):
    """Slices: by id, or those of the failed set that match."""

    slices: list[SliceName] | None = Field(default=None, min_length=1, max_length=SLICES_MAX)
    start: BodyTimestamp | None = Field(default=None, description="of the failed set, those that end after this")
    end: BodyTimestamp | None = Field(default=None, description="of the failed set, those that begin before this")
    cause: SliceCause | None = Field(default=None, description="of the failed set, those that failed with this code")
    all: bool = Field(default=False, description="the whole failed set")
    dry_run: bool = Field(default=False, description="only say what would be done, and what would be left")

    @model_validator(mode="after")
    def _require_one_selection(self) -> Self:
        filters = (self.start, self.end, self.cause, self.all or None)
        if (self.slices is None) == all(each is None for each in filters):
            raise ValueError(
                "Name `slices`, or choose of the failed set by `start`, `end` and `cause`, or all of it by `all`: true."
            )
        validation.require_start_before_end(self.start, self.end)
        return self


class SkipSlicesRequest(SliceSelectionRequest):
    """Slices to skip, and why."""

    reason: str = Field(min_length=3, max_length=500, description="kept in the ledger of each")


class TimelineQuery(Request):
    """A time, and into how many buckets it is cut."""

    start: QueryTimestamp | None = Field(default=None, description="the platform's beginning if it is left out")
    end: QueryTimestamp | None = Field(default=None, description="the platform's now if it is left out")
    bucket_count: int = Field(default=240, ge=1, le=1_000, description="into how many equal buckets the time is cut")

    @model_validator(mode="after")
    def _require_valid_window(self) -> Self:
        validation.require_start_before_end(self.start, self.end)
        return self


BACKFILL_MAX: Final = timedelta(hours=12)


class BackfillRequest(Request):
    """A time to read again, and who asks for it."""

    start: BodyTimestamp
    end: BodyTimestamp
    who: str | None = Field(
        default=None,
        max_length=200,
        description="your name, for the record; left out, it says whether the console or the admin key asked",
    )

    @model_validator(mode="after")
    def _require_valid_window(self) -> Self:
        validation.require_start_before_end(self.start, self.end)
        if self.end - self.start > BACKFILL_MAX:
            raise ValueError(
                f"start {self.start.isoformat()} and end {self.end.isoformat()} are {self.end - self.start} apart; "
                f"send at most {BACKFILL_MAX.total_seconds() / 3600:.0f} hours at a time."
            )
        return self

    @property
    def window(self) -> TimeWindow:
        """The whole seconds that hold the time."""
        start, last = windows.floor_to_second(self.start), windows.floor_to_second(self.end)
        return TimeWindow(start=start, end=last if last == self.end else last + windows.SECOND)


class BackfillPath(PlatformPath):
    """Path of a backfill."""

    backfill_id: str = Field(pattern=r"^[0-9a-f]{1,64}$")


class BackfillsQuery(PageQuery):
    """Filter of backfills."""

    state: BackfillState | None = None


Day = Annotated[date, Field(ge=date(1970, 1, 1), le=date(2199, 12, 31))]


class ReportRequest(Request):
    """A day, in the platform's own zone."""

    day: Day


class ReportDayPath(PlatformPath):
    """Path of a day."""

    day: Day


class OrdersQuery(PageQuery):
    """Filter of orders."""

    # It holds the id of an order and the name of its shop, whose letters may take four bytes each.
    cursor: str | None = Field(default=None, max_length=3_500, description="`next_cursor` of the page before")
    platform: str | None = Field(default=None, pattern=names.PLATFORM_PATTERN)
    shop: str | None = Field(default=None, max_length=200)
    order_id: str | None = Field(default=None, max_length=1_000)
    field: str | None = Field(
        default=None,
        max_length=400,
        pattern=r"^[^=.]+(\.[^=.]+)*=",
        description="a field inside, `path=value`, like `buyer.name=Ann`: each step a key of an object or a place of a "
        "list; numbers and words are compared as they are written",
    )
    modified_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    modified_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @property
    def field_condition(self) -> tuple[tuple[str, ...], str] | None:
        """The path of the field, and its value."""
        if self.field is None:
            return None
        path, _, value = self.field.partition("=")
        return tuple(path.split(".")), value

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.modified_after, self.modified_before, ("modified_after", "modified_before")
        )
        return self


PAGE_SIZE_MAX: Final = 10_000

MARK: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,11})")
"""A revision, and when it was current: copies replaced later are kept for some days from then on."""


class SnapshotFilter(Request):
    """Filter of the orders of a snapshot."""

    platform: str = Field(pattern=names.PLATFORM_PATTERN)
    modified_after: QueryTimestamp | None = Field(default=None, description="at or after this time")
    modified_before: QueryTimestamp | None = Field(default=None, description="before this time")

    @model_validator(mode="after")
    def _require_start_before_end(self) -> Self:
        validation.require_start_before_end(
            self.modified_after, self.modified_before, ("modified_after", "modified_before")
        )
        return self


class ExportMarkRequest(SnapshotFilter):
    """Whose orders a mark is of, all or those of a time."""

    modified_after: BodyTimestamp | None = Field(default=None, description="at or after this time")
    modified_before: BodyTimestamp | None = Field(default=None, description="before this time")


class DownloadSourcePageQuery(SnapshotFilter):
    """One page of the orders of a mark, in the protocol of a download's source."""

    mark: str = Field(pattern=f"^{MARK.pattern}$", description="`mark` of POST /v1/orders/marks")
    page: int = Field(ge=0, le=10**9)
    page_size: int = Field(ge=1, le=PAGE_SIZE_MAX)

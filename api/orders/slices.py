"""Slices: the ledger of what is claimed, and what became of it."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from api.http import pagination, timestamps
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Access, Call
from api.http.timestamps import QueryTimestamp
from api.orders import answers
from api.orders.answers import ShownSlice
from api.orders.room import PlatformPath, routes
from domain.faults import Invalid, Missing
from domain.orders import windows
from domain.orders.slices import RereadState, SliceState
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders import ledger, platforms
from stores.orders import slices as store
from stores.orders.slices import SliceFilter
from stores.tables.orders import OrderSlice


def _named(name: object) -> object:
    if isinstance(name, str):
        windows.parse_slice_id(name)
    return name


SliceName = Annotated[
    str,
    Field(pattern=r"^\d{8}T\d{6}Z:\d{8}T\d{6}Z$", examples=["20261120T100000Z:20261120T101000Z"]),
    BeforeValidator(_named),
]


class SlicePath(PlatformPath):
    """Names one slice, as the ledger and workflow ids do."""

    slice: SliceName

    @property
    def window(self) -> TimeWindow:
        """What it names."""
        return windows.parse_slice_id(self.slice)


class Wanted(PageQuery):
    """Which slices to list."""

    state: SliceState | None = None
    reread: RereadState | None = Field(default=None, description="only complete slices that were asked for again")
    stale: Literal["true"] | None = Field(default=None, description="only those that were reported to take too long")
    sweep: Literal["failed"] | None = Field(default=None, description="only complete ones whose last sweep failed")
    start: QueryTimestamp | None = Field(default=None, description="only slices that end after this")
    end: QueryTimestamp | None = Field(default=None, description="only slices that begin before this")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        timestamps.require_start_before_end(self.start, self.end)
        return self


@routes.get("/v1/platforms/{platform}/slices", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse_slices(call: Call, path: PlatformPath, query: Wanted) -> PageResponse[ShownSlice]:
    """List a platform's slices, the latest first; `state=failed` is the failed set."""
    wanted = SliceFilter(
        path.platform,
        state=query.state,
        reread=query.reread,
        is_stale=query.stale is not None,
        has_failed_sweep=query.sweep is not None,
        ends_after=query.start,
        begins_before=query.end,
    )
    after = query.after and (query.after[0], pagination.parse_numeric_id(query.after[1]))
    async with call.services.database.session() as session:
        await platforms.load(session, path.platform)
        rows = await store.list_page(session, wanted, after, query.limit)
    return pagination.build_page(rows, query.limit, answers.shown_slice, lambda row: (row.start_at, str(row.slice_id)))


@routes.get("/v1/platforms/{platform}/slices/{slice}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_slice(call: Call, path: SlicePath) -> ShownSlice:
    """Show a slice as the ledger has it."""
    async with call.services.database.session() as session:
        return answers.shown_slice(await find(session, path))


async def find(session: Session, path: SlicePath) -> OrderSlice:
    """A slice's row, locked.

    Raises:
        Missing: There is none of this name.
    """
    row = await ledger.find(session, path.platform, path.window, lock=True)
    if row is None:
        raise unknown(path.platform, path.slice)
    return row


def unknown(platform: str, name: str) -> Missing:
    """What is told of an id that names no slice of the platform."""
    return Missing(
        "not_found",
        f"Platform {platform} has no slice {name}.",
        f"GET /v1/platforms/{platform}/slices lists those that there are; one that was split has halves instead.",
    )

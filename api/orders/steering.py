"""Steering slices, one or many: read again, split, or skip with a reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, Self, assert_never

from pydantic import AwareDatetime, Field, model_validator

from api.http import timestamps
from api.http.models import Request, Response
from api.http.routes import Access, Call
from api.http.timestamps import BodyTimestamp
from api.orders import answers
from api.orders.answers import ShownSlice
from api.orders.room import PlatformPath, routes
from api.orders.slices import SliceName, SlicePath, find, unknown
from domain.faults import Conflict, Missing
from domain.orders import names, windows
from domain.orders.activity_models import SliceInput, SliceJob
from domain.orders.slices import ReadPurpose, SliceState
from domain.orders.watermarks import SliceTrack
from domain.orders.windows import TimeWindow
from infra.database import Session
from stores.orders import ledger, platforms, slices
from stores.orders.slices import SliceFilter
from stores.tables.orders import OrderPlatform, OrderSlice
from workflows.orders import handle

MANY_MAX: Final = 1_000
_NOT_ENDED, _NOT_FAILED, _TOO_SHORT = "slice_not_ended", "slice_not_failed", "slice_too_short"
_PROBLEMS = {"not_found": Missing, _NOT_FAILED: Conflict}


class Skip(Request):
    """Why a slice is skipped."""

    reason: str = Field(min_length=3, max_length=500, description="kept in the ledger")


class Choice(Request):
    """Which slices: those that are named, or those of the failed set that fit."""

    slices: list[SliceName] | None = Field(default=None, min_length=1, max_length=MANY_MAX)
    start: BodyTimestamp | None = Field(default=None, description="of the failed set, those that end after this")
    end: BodyTimestamp | None = Field(default=None, description="of the failed set, those that begin before this")
    code: str | None = Field(default=None, max_length=100, description="of the failed set, those with this code")
    all: bool = Field(default=False, description="the whole failed set")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        filters = (self.start, self.end, self.code, self.all or None)
        if (self.slices is None) == all(each is None for each in filters):
            raise ValueError(
                "Name `slices`, or choose of the failed set by `start`, `end` and `code`, or all of it by `all`: true."
            )
        timestamps.require_start_before_end(self.start, self.end)
        return self


class ChoiceToSkip(Choice):
    """Which slices are skipped, and why."""

    reason: str = Field(min_length=3, max_length=500, description="kept in the ledger of each")


class Left(Response):
    """A slice that was left as it is."""

    slice: str
    code: str
    detail: str


class Steered(Response):
    """What became of many."""

    done: list[str] = Field(description="slices that were read again, split or skipped, the oldest first")
    left: list[Left] = Field(description="slices that were left as they are, and why")
    next_start: AwareDatetime | None = Field(
        description="where more fit than are treated at a time, 1,000: send it as `start` to go on"
    )


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/redo",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing, _NOT_ENDED: Conflict},
)
async def redo(call: Call, path: SlicePath) -> ShownSlice:
    """Read a slice again: one that failed is completed by it, one that is complete stays so."""
    async with call.services.database.session() as session:
        row = await find(session, path)
        _require_end(row)
        platform = await platforms.require(session, path.platform)
    await _read_again(call, platform, path.window)
    return answers.shown_slice(row)


@routes.post(
    "/v1/platforms/{platform}/slices/{slice}/split",
    access=Access.ADMIN,
    problems={**_PROBLEMS, _TOO_SHORT: Conflict},
)
async def split(call: Call, path: SlicePath) -> ShownSlice:
    """Replace a failed slice by its halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _platform(session, path)
        row = await find(session, path)
        await _split(session, row)
    await _hurry(call, platform)
    return answers.shown_slice(row)


@routes.post("/v1/platforms/{platform}/slices/{slice}/skip", access=Access.ADMIN, problems=_PROBLEMS)
async def skip(call: Call, path: SlicePath, body: Skip) -> ShownSlice:
    """Give a failed slice up: its orders may be missing, and `complete_to` may pass it."""
    async with call.services.database.session() as session:
        platform = await _platform(session, path)
        row = await find(session, path)
        await _skip(session, row, body.reason)
        await ledger.advance_complete_to(session, platform)
        return answers.shown_slice(row)


@routes.post(
    "/v1/platforms/{platform}/slices:redo",
    access=Access.ADMIN,
    status=HTTPStatus.ACCEPTED,
    problems={"not_found": Missing},
)
async def redo_many(call: Call, path: PlatformPath, body: Choice) -> Steered:
    """Read many slices again, those named or those of the failed set that fit."""

    async def check(row: OrderSlice) -> None:
        _require_end(row)

    async with call.services.database.session() as session:
        platform = await _platform(session, path)
        steered = await _each(session, platform, body, check)
    for name in steered.done:
        await _read_again(call, platform, windows.parse_slice_id(name))
    return steered


@routes.post("/v1/platforms/{platform}/slices:split", access=Access.ADMIN, problems={"not_found": Missing})
async def split_many(call: Call, path: PlatformPath, body: Choice) -> Steered:
    """Replace many failed slices by their halves, which are read at once."""
    async with call.services.database.session() as session:
        platform = await _platform(session, path)
        steered = await _each(session, platform, body, lambda row: _split(session, row))
    await _hurry(call, platform)
    return steered


@routes.post("/v1/platforms/{platform}/slices:skip", access=Access.ADMIN, problems={"not_found": Missing})
async def skip_many(call: Call, path: PlatformPath, body: ChoiceToSkip) -> Steered:
    """Give many failed slices up, for one reason."""
    async with call.services.database.session() as session:
        platform = await _platform(session, path)
        steered = await _each(session, platform, body, lambda row: _skip(session, row, body.reason))
        await ledger.advance_complete_to(session, platform)
    return steered


async def _each(
    session: Session, platform: OrderPlatform, choice: Choice, deed: Callable[[OrderSlice], Awaitable[None]]
) -> Steered:
    """Do it to all that were chosen; what does not allow it is left, and said."""
    rows = await _chosen(session, platform, choice)
    done, left = list[str](), list[Left]()
    for row in rows[:MANY_MAX]:
        name = str(ledger.to_window(row))
        try:
            await deed(row)
        except Conflict as refusal:
            left.append(Left(slice=name, code=refusal.record.code, detail=refusal.record.sentence))
        else:
            done.append(name)
    found = {str(ledger.to_window(row)) for row in rows}
    for name in choice.slices or []:
        if name not in found:
            record = unknown(platform.platform, name).record
            left.append(Left(slice=name, code=record.code, detail=record.sentence))
    return Steered(done=done, left=left, next_start=rows[MANY_MAX].start_at if len(rows) > MANY_MAX else None)


async def _chosen(session: Session, platform: OrderPlatform, choice: Choice) -> Sequence[OrderSlice]:
    """What was chosen, the oldest first, and one more where there are more than are treated at a time."""
    wanted = SliceFilter(
        platform.platform,
        state=SliceState.FAILED if choice.slices is None else None,
        windows=None if choice.slices is None else [windows.parse_slice_id(name) for name in choice.slices],
        ends_after=choice.start,
        begins_before=choice.end,
        code=choice.code,
    )
    return await slices.lock_oldest(session, wanted, MANY_MAX + 1)


async def _platform(session: Session, path: PlatformPath) -> OrderPlatform:
    """The platform's row, locked: whoever moves a mark holds it."""
    return (await platforms.load(session, path.platform, lock=True)).row


async def _read_again(call: Call, platform: OrderPlatform, window: TimeWindow) -> None:
    """Start a reading, unless one is under way."""
    job = SliceJob(window=window, track=SliceTrack.LIVE, purpose=ReadPurpose.AGAIN, suffix=names.REDO_SUFFIX)
    order = SliceInput(platform=platform.platform, project_id=platform.project_id, job=job)
    await handle.redo_slice(call.services.engine, order)


async def _hurry(call: Call, platform: OrderPlatform) -> None:
    """Let the platform's schedule take up what is new."""
    schedule = await handle.find_platform(call.services.engine, platform.platform, platform.project_id)
    await schedule.trigger()


async def _split(session: Session, row: OrderSlice) -> None:
    _require_failed(row)
    halves = ledger.to_window(row).halves()
    if halves is None:
        raise Conflict(_TOO_SHORT, f"The slice {ledger.to_window(row)} is too short to be split.", "Redo or skip it.")
    await ledger.split(session, row, halves)


async def _skip(session: Session, row: OrderSlice, reason: str) -> None:
    _require_failed(row)
    await slices.skip(session, row, reason)


def _require_end(row: OrderSlice) -> None:
    state = answers.shown_slice(row).state
    if state not in (SliceState.FAILED, SliceState.DONE):
        raise Conflict(
            _NOT_ENDED,
            f"The slice {ledger.to_window(row)} is {state}; one that failed or is done can be read again.",
            _instead(state),
        )


def _require_failed(row: OrderSlice) -> None:
    state = answers.shown_slice(row).state
    if state is not SliceState.FAILED:
        raise Conflict(
            _NOT_FAILED,
            f"The slice {ledger.to_window(row)} is {state}; only one in the failed set can be split or skipped.",
            _instead(state),
        )


def _instead(state: SliceState) -> str:
    """What to do with a slice in this state."""
    match state:
        case SliceState.OPEN:
            return "It is read by itself: wait for its end."
        case SliceState.SPLIT:
            return "Its halves are slices of their own: name those."
        case SliceState.SKIPPED:
            return "It was given up, and stays so; for its orders, set up the same account under another number."
        case SliceState.DONE:
            return "Its orders are in; redo it if you doubt that."
        case SliceState.FAILED:
            return "Redo, split or skip it."
        case _:
            assert_never(state)

"""Quarantine: messages that could not be read, and why; removed once nobody needs them."""

from __future__ import annotations

import base64
from typing import Annotated, Final

from pydantic import AwareDatetime, Field
from sqlalchemy.orm import defer
from sqlmodel import col, select, tuple_

from activities.addresses import steering
from activities.addresses.steering import By
from api import paging
from api.addresses.answers import LARGEST, Signed
from api.addresses.room import routes
from api.models import Answer, Request
from api.paging import Page, PageQuery
from api.routes import Access, Call
from domain.addresses.messages import Topic
from domain.faults import Invalid, Missing
from infra.tables.addresses import QuarantinedMessage

DISCARDED_MAX: Final = 1_000

QuarantineId = Annotated[int, Field(ge=1, le=LARGEST)]


class QuarantinePath(Request):
    """Names one message in quarantine."""

    quarantine_id: QuarantineId


class Wanted(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None


class Discard(Signed):
    """Which messages are to go."""

    ids: list[QuarantineId] = Field(min_length=1, max_length=DISCARDED_MAX)


class Discarded(Answer):
    """How many went."""

    discarded: int = Field(description="the others were not in quarantine any more")


class ListedUnreadable(Answer):
    """A message that could not be read, as lists show it."""

    id: int
    topic: str
    msg_no: str
    reason: str = Field(description="why it could not be read")
    raw_bytes: int = Field(description="how long it was")
    created_at: AwareDatetime
    published_at: AwareDatetime | None


class ShownUnreadable(ListedUnreadable):
    """A message that could not be read, with its first megabyte."""

    text: str | None = Field(description="as text, where it is UTF-8")
    raw: str = Field(description="as it came, in base64")


@routes.get("/v1/addresses/quarantine", access=Access.ADMIN, problems={"cursor_invalid": Invalid})
async def browse_quarantine(call: Call, query: Wanted) -> Page[ListedUnreadable]:
    """List messages that could not be read, the newest first."""
    place = (QuarantinedMessage.created_at, QuarantinedMessage.id)
    statement = (
        select(QuarantinedMessage)
        .options(defer(QuarantinedMessage.raw))  # type: ignore[arg-type] # SQLModel shows columns as their values
        .order_by(*(col(each).desc() for each in place))
        .limit(query.limit + 1)
    )
    if query.topic is not None:
        statement = statement.where(QuarantinedMessage.topic == query.topic)
    if query.after:
        statement = statement.where(tuple_(*place) < (query.after[0], paging.number(query.after[1])))
    async with call.services.database.session() as session:
        rows = (await session.exec(statement)).all()
    return paging.page(rows, query.limit, _listed, lambda row: (row.created_at, str(row.id)))


@routes.post("/v1/addresses/quarantine/discard", access=Access.ADMIN)
async def discard(call: Call, body: Discard) -> Discarded:
    """Remove messages from quarantine, because they were published again, or nobody wants them.

    Topic and number of each stay in the audit, with who removed it and why.
    """
    by = By(body.who, body.reason)
    return Discarded(discarded=await steering.discard(call.services.database, body.ids, by))


@routes.get("/v1/addresses/quarantine/{quarantine_id}", access=Access.ADMIN, problems={"not_found": Missing})
async def read_quarantined(call: Call, path: QuarantinePath) -> ShownUnreadable:
    """Show a message that could not be read; publish it again once it is mended."""
    async with call.services.database.session() as session:
        row = await session.get(QuarantinedMessage, path.quarantine_id)
    if row is None:
        raise Missing(
            "not_found",
            f"There is no message {path.quarantine_id} in quarantine.",
            "GET /v1/addresses/quarantine lists those that there are.",
        )
    return ShownUnreadable(**_listed(row).model_dump(), text=_text(row.raw), raw=base64.b64encode(row.raw).decode())


def _listed(row: QuarantinedMessage) -> ListedUnreadable:
    return ListedUnreadable.model_validate(row, from_attributes=True)


def _text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None

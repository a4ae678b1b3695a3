"""Messages as they arrive: pushed by Pub/Sub, or in quarantine because they could not be read."""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Annotated, Final

from aiohttp import web
from pydantic import AwareDatetime, Base64Encoder, EncodedBytes, Field
from pydantic_core import PydanticCustomError

from api.addresses import queries
from api.addresses.context import CYCLE_TRIGGER, INT64_MAX, PUSH_INBOX, routes
from api.addresses.responses import MessageResponse
from api.http import pagination
from api.http.models import LenientRequest, OperatorRequest, Request, Response
from api.http.pagination import PageQuery, PageResponse
from api.http.routes import Call, RouteAccess
from domain.addresses.messages import PublishedMessage, Topic
from domain.faults import Conflict, Invalid, Missing
from stores.addresses import quarantine
from stores.addresses.actions import ActorWithReason
from stores.addresses.inbox import RAW_MAX_BYTES, DeliveredMessage, MessageLogAndQuarantineWriter
from stores.addresses.quarantine import MessageCorrection, QuarantinedMessageAndTextStart
from stores.tables.addresses import QuarantinedMessage

PUSH_MAX_BYTES: Final = 16 * 1024 * 1024
"""Pub/Sub's largest message has 10 MB, a third more in base64, and may have attributes."""


class StrictBase64Encoder(Base64Encoder):
    """Base64 that refuses any other character: pydantic's own drops those, and accepts the rest as the message."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        try:
            return binascii.a2b_base64(data, strict_mode=True)
        except binascii.Error as error:
            reason = f"it is not base64 ({error}): send the message in the standard alphabet, padded"
            raise PydanticCustomError("base64_decode", "{reason}", {"reason": reason}) from error


StrictBase64Bytes = Annotated[bytes, EncodedBytes(encoder=StrictBase64Encoder)]


class TopicPath(Request):
    topic: Topic


class PushQuery(Request):
    """The credential of a push without a signed token."""

    token: str | None = Field(
        default=None, max_length=500, description="the push secret, for pushes without a signed token"
    )


class PushedMessage(LenientRequest):
    """A message as Pub/Sub wraps it."""

    message_id: str = Field(
        alias="messageId", max_length=1_000, description="the same for every delivery of the message"
    )
    data: StrictBase64Bytes = Field(
        default=b"", max_length=PUSH_MAX_BYTES, description="the message: JSON, see the reference of topics"
    )
    publish_time: str = Field(default="", alias="publishTime", max_length=100)


class PushRequest(LenientRequest):
    """The body that Pub/Sub sends to a push endpoint."""

    message: PushedMessage


@routes.post("/v1/addresses/events/{topic}", access=RouteAccess.PUSH, body_max_bytes=PUSH_MAX_BYTES)
async def receive_push(call: Call, path: TopicPath, query: PushQuery, body: PushRequest) -> None:
    """Receive a change message that Pub/Sub pushes.

    The response is sent when the message is in the log, so that Pub/Sub may forget it. A message that was delivered
    before changes nothing. One that cannot be read goes into quarantine with the reason, and gets the same response,
    since delivering it again would not help.
    """
    message = PublishedMessage(
        message_id=body.message.message_id, data=body.message.data, publish_time=body.message.publish_time
    )
    await call.request.app[PUSH_INBOX].store_together_with_other_pushes(DeliveredMessage(path.topic, message))


DISCARD_MAX: Final = 1_000
EXCERPT_MAX_BYTES: Final = 1024 * 1024
"""The part of a text that is shown among other fields; the whole text has a route of its own."""
MEND_BODY_MAX_BYTES: Final = 32 * 1024 * 1024
"""JSON escapes make the largest text of a message longer."""
OCTET_STREAM: Final = "application/octet-stream"

QuarantineId = Annotated[int, Field(ge=1, le=INT64_MAX)]


class QuarantinePath(Request):
    """The id of a message in quarantine."""

    quarantine_id: QuarantineId


class QuarantineQuery(PageQuery):
    """Which messages to list."""

    topic: Topic | None = None
    mended: bool = Field(default=False, description="mended messages instead of unmended ones")


class DiscardMessagesRequest(OperatorRequest):
    """Which messages to delete."""

    ids: list[QuarantineId] = Field(min_length=1, max_length=DISCARD_MAX)


class DiscardMessagesResponse(Response):
    """The number of deleted messages."""

    discarded: int = Field(description="the others were no longer in quarantine, or are kept as mended")


class MendMessageRequest(OperatorRequest):
    """The corrected text of a message."""

    text: str = Field(max_length=RAW_MAX_BYTES, description="the whole message, as its publisher should have sent it")


class QuarantinedMessageSummary(Response):
    """A message that could not be read, in a list."""

    quarantine_id: int
    topic: str
    msg_no: str = Field(description="its number, or a digest if it has none that can be stored")
    reason: str = Field(description="why it could not be read")
    raw_bytes: int = Field(description="its length")
    created_at: AwareDatetime
    published_at: AwareDatetime | None
    mended_at: AwareDatetime | None = Field(description="when a corrected text was inserted into the log")
    mended_by: str | None
    mended_as: int | None = Field(description="the message of the log that the corrected text became")


class QuarantinedMessageResponse(QuarantinedMessageSummary):
    """A message that could not be read, with the first megabyte of its text."""

    kept_bytes: int = Field(description=f"the length of the kept text: all, up to {RAW_MAX_BYTES:,} bytes")
    truncated: bool = Field(description="whether `text` and `raw` end before the message does")
    text: str | None = Field(description="its first megabyte as text, if it is UTF-8")
    raw: str = Field(description="its first megabyte as it came, in base64; GET …/raw returns all that is kept")


@routes.get("/v1/addresses/quarantine", access=RouteAccess.ADMIN, problems={"cursor_invalid": Invalid})
async def list_quarantined_messages(call: Call, query: QuarantineQuery) -> PageResponse[QuarantinedMessageSummary]:
    """List messages that could not be read, newest first."""
    after = query.after and (query.after[0], pagination.parse_numeric_id_or_zero(query.after[1]))
    rows = await quarantine.list_quarantine_page_plus_one(
        call.services.database, query.topic, is_mended=query.mended, after=after, limit=query.limit
    )
    return pagination.build_page(
        rows, query.limit, _build_quarantined_message_summary, lambda row: (row.created_at, str(row.id))
    )


@routes.post("/v1/addresses/quarantine:discard", access=RouteAccess.ADMIN)
async def discard_quarantined_messages(call: Call, body: DiscardMessagesRequest) -> DiscardMessagesResponse:
    """Delete messages from quarantine, because they were published again or are not needed.

    The audit keeps the topic and number of each, with who deleted it and why.
    """
    actor = ActorWithReason(body.who, body.reason)
    return DiscardMessagesResponse(
        discarded=await quarantine.delete_from_quarantine_with_audit_entry(call.services.database, body.ids, actor)
    )


@routes.get("/v1/addresses/quarantine/{quarantine_id}", access=RouteAccess.ADMIN, problems={"not_found": Missing})
async def read_quarantined_message(call: Call, path: QuarantinePath) -> QuarantinedMessageResponse:
    """Show a message that could not be read."""
    found = await _require_quarantined_text(call, path.quarantine_id, EXCERPT_MAX_BYTES)
    truncated = len(found.raw) < found.message.raw_bytes
    return QuarantinedMessageResponse(
        **_build_quarantined_message_summary(found.message).model_dump(),
        kept_bytes=found.kept_bytes,
        truncated=truncated,
        text=_decode_utf8_or_none(found.raw, is_whole=not truncated),
        raw=base64.b64encode(found.raw).decode(),
    )


@routes.get(
    "/v1/addresses/quarantine/{quarantine_id}/raw",
    access=RouteAccess.ADMIN,
    media_type=OCTET_STREAM,
    problems={"not_found": Missing},
)
async def download_raw_message(call: Call, path: QuarantinePath) -> web.Response:
    """Return the bytes of a message that could not be read as they came, as far as they are kept."""
    raw = (await _require_quarantined_text(call, path.quarantine_id, RAW_MAX_BYTES)).raw
    # As an attachment: an operator's browser must not execute what a publisher sent.
    headers = {"Content-Disposition": f'attachment; filename="quarantine-{path.quarantine_id}"'}
    return web.Response(body=raw, content_type=OCTET_STREAM, headers=headers)


@routes.post(
    "/v1/addresses/quarantine/{quarantine_id}/mend",
    access=RouteAccess.ADMIN,
    body_max_bytes=MEND_BODY_MAX_BYTES,
    problems={
        "not_found": Missing,
        "already_mended": Conflict,
        "event_already_received": Conflict,
        "message_unreadable": Invalid,
    },
)
async def mend_message(call: Call, path: QuarantinePath, body: MendMessageRequest) -> MessageResponse:
    """Insert a corrected text into the log, as a new message of the same topic.

    It is read like any published message: if it cannot be read either, it is refused with the reason, and nothing
    changes. A message can be mended once. It stays in quarantine as mended, with who did it and the id of the new
    message, whose actions in turn name the quarantined message.
    """
    inbox = MessageLogAndQuarantineWriter(call.services.database, call.services.settings.addresses.message_max_bytes)
    correction = MessageCorrection(path.quarantine_id, body.text, ActorWithReason(body.who, body.reason))
    log_id = await quarantine.mend_and_get_new_id(call.services.database, inbox, correction)
    call.request.app[CYCLE_TRIGGER].request_cycle()
    return await queries.load_message(call, log_id)


async def _require_quarantined_text(call: Call, quarantine_id: int, max_bytes: int) -> QuarantinedMessageAndTextStart:
    found = await quarantine.find_quarantined_text(call.services.database, quarantine_id, max_bytes)
    if found is None:
        raise quarantine.build_not_in_quarantine_fault(quarantine_id)
    return found


def _build_quarantined_message_summary(row: QuarantinedMessage) -> QuarantinedMessageSummary:
    same = QuarantinedMessageSummary.model_fields.keys() - {"quarantine_id"}
    return QuarantinedMessageSummary.model_validate(
        {"quarantine_id": row.id, **{name: getattr(row, name) for name in same}}
    )


def _decode_utf8_or_none(raw: bytes, *, is_whole: bool) -> str | None:
    """Decode a text; a character that truncation has split is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(raw, final=is_whole)
    except UnicodeDecodeError:
        return None

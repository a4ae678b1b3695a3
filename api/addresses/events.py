"""Messages that Pub/Sub pushes."""

from __future__ import annotations

import binascii
from typing import Annotated, Final

from pydantic import Base64Encoder, EncodedBytes, Field
from pydantic_core import PydanticCustomError

from api.addresses.context import PUSH_INBOX, routes
from api.http.models import ForeignRequest, Request
from api.http.routes import Access, Call
from domain.addresses.messages import PublishedMessage, Topic
from stores.addresses.inbox import DeliveredMessage

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


class PushedMessage(ForeignRequest):
    """A message as Pub/Sub wraps it."""

    message_id: str = Field(
        alias="messageId", max_length=1_000, description="the same for every delivery of the message"
    )
    data: StrictBase64Bytes = Field(
        default=b"", max_length=PUSH_MAX_BYTES, description="the message: JSON, see the reference of topics"
    )
    publish_time: str = Field(default="", alias="publishTime", max_length=100)


class PushRequest(ForeignRequest):
    """The body that Pub/Sub sends to a push endpoint."""

    message: PushedMessage


@routes.post("/v1/addresses/events/{topic}", access=Access.PUSH, body_max_bytes=PUSH_MAX_BYTES)
async def push(call: Call, path: TopicPath, query: PushQuery, body: PushRequest) -> None:
    """Receive a change message that Pub/Sub pushes.

    The response is sent when the message is in the log, so that Pub/Sub may forget it. A message that was delivered
    before changes nothing. One that cannot be read goes into quarantine with the reason, and gets the same response,
    since delivering it again would not help.
    """
    message = PublishedMessage(
        message_id=body.message.message_id, data=body.message.data, publish_time=body.message.publish_time
    )
    await call.request.app[PUSH_INBOX].store(DeliveredMessage(path.topic, message))

"""Envelopes: what Pub/Sub wraps each message in when it is pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from domain.addresses.messages import PublishedMessage

_OF_A_DELIVERY: Final = ("ackId", "deliveryAttempt")
"""Fields that differ each time that a message is delivered."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was pulled: it comes again unless it is acknowledged in time."""

    ack_id: str
    message: PublishedMessage
    refusal: str = ""
    """Why its envelope cannot be read; the data of the message is then the envelope as it came."""


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    ack_id: str
    message: PublishedMessage


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_envelope(raw: bytes) -> Received:
    """Return a message that was pulled; one that cannot be read keeps its text, and says why.

    Raises:
        ValueError: It names nothing by which it could be acknowledged.
    """
    try:
        envelope = _ENVELOPE.decode(raw)
    except ValueError as error:
        return _unreadable(raw, error)
    return Received(envelope.ack_id, envelope.message)


def _unreadable(raw: bytes, error: ValueError) -> Received:
    fields = _FIELDS.decode(raw)
    ack_id = msgspec.json.decode(fields.get("ackId", msgspec.Raw(b"null")), type=str)
    rest = {name: value for name, value in fields.items() if name not in _OF_A_DELIVERY}
    text = bytes(rest["message"]) if "message" in rest else msgspec.json.encode(rest)
    named = {name: value for name, value in _object(text).items() if isinstance(value, str)}
    message = PublishedMessage(named.get("messageId", ""), text, named.get("publishTime", ""))
    refusal = (
        f"The envelope of the message cannot be read: {error}. Pub/Sub sends a messageId as text and data in base64; "
        "mended is the message itself, without its envelope."
    )
    return Received(ack_id, message, refusal)


def _object(text: bytes) -> dict[str, Any]:
    """Return what a text holds, if it is an object that can be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except ValueError:
        return {}

"""Webhooks by Standard Webhooks 1.0.0: what a receiver is told, how it is signed, and when it is told again."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from domain.sealed import SealedText

DELIVERY_ID_PATTERN: Final = r"^msg_[0-9a-f]{32}$"
EVENT_TYPE_PATTERN: Final = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$"
BODY_MAX_BYTES: Final = 20_000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 (what every secret begins with is no secret)
SECRET_BYTES: Final = 36  # a multiple of three, so that base64 needs no padding
RETRY_AFTER_MAX_SECONDS: Final = 24 * 3600.0
JITTER: Final = 0.1
ERROR_MAX_CHARACTERS: Final = 500
EXCERPT_MAX_CHARACTERS: Final = 200

# 429, 502 and 504 are the standard's signs of a busy receiver; 503 is the status that RFC 9110 made the header for.
_BUSY = frozenset({429, 502, 503, 504})
# Long texts give way first: names and figures stay whole.
_TEXT_LIMITS = (BODY_MAX_BYTES, 2_000, 500, 100)


class DeliveryState(StrEnum):
    """How a delivery stands."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISABLED = "disabled"


class WebhookEvent(BaseModel):
    """What happened."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(pattern=EVENT_TYPE_PATTERN, max_length=100)
    timestamp: AwareDatetime
    data: dict[str, JsonValue]

    @property
    def body(self) -> bytes:
        """What is posted: less than 20 kB, whatever sentences a source or a user put into it.

        Raises:
            ValueError: It is too large even with its texts cut, because it has too many fields.
        """
        for limit in _TEXT_LIMITS:
            cut = WebhookEvent(type=self.type, timestamp=self.timestamp.astimezone(UTC), data=_cut(self.data, limit))
            body = cut.model_dump_json().encode()
            if len(body) < BODY_MAX_BYTES:
                return body
        raise ValueError(f"The event {self.type} has too many fields for {BODY_MAX_BYTES:,} bytes. Send ids and links.")


class Owner(BaseModel):
    """Whose event it is: deliveries are listed by it."""

    model_config = ConfigDict(frozen=True)

    system: str
    id: str
    """Names it within its system."""


class WebhookOrder(BaseModel):
    """One event for one receiver."""

    model_config = ConfigDict(frozen=True)

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)
    """The `webhook-id` too: the same on every attempt, so that a receiver knows what it has seen."""
    project_id: str
    owner: Owner
    url: SealedText
    event: WebhookEvent
    redelivery: bool = False
    """Whether a person asked for it: then it is tried even where an earlier answer was 410."""


class AttemptOrder(BaseModel):
    """Which attempt is due."""

    delivery_id: str
    number: int = Field(ge=1)


class Progress(BaseModel):
    """Where a delivery stands after an attempt."""

    state: DeliveryState = DeliveryState.PENDING
    number: int = 0
    status: int | None = None
    error: str | None = None
    pause_seconds: float | None = None
    """Until the next attempt; none when there will be no other."""


class Answered(BaseModel):
    """How a receiver took an attempt: its status, or the sentence about why there was none."""

    status: int | None = None
    error: str | None = None
    retry_after_seconds: float | None = None
    hopeless: bool = False
    """Whether no later attempt can go better, as with an address that we never call."""


def judge(number: int, answered: Answered, pauses: Sequence[float], chance: float) -> Progress:
    """What follows from an attempt.

    Args:
        number: Which attempt on the ladder it was, from 1.
        answered: How it went.
        pauses: The ladder: seconds between attempts.
        chance: From 0 to 1, spreads the attempts of many deliveries that failed at once.
    """
    state, pause = DeliveryState.PENDING, None
    match answered.status:
        case status if status is not None and 200 <= status < 300:
            state = DeliveryState.SUCCEEDED
        case HTTPStatus.GONE:
            state = DeliveryState.DISABLED
        case _ if answered.hopeless or number > len(pauses):
            state = DeliveryState.FAILED
        case status:
            pause = pauses[number - 1] * (1 + JITTER * chance)
            if status in _BUSY:
                pause = max(pause, min(answered.retry_after_seconds or 0.0, RETRY_AFTER_MAX_SECONDS))
    return Progress(state=state, number=number, status=answered.status, error=answered.error, pause_seconds=pause)


def describe(status: int, body: bytes) -> str | None:
    """What a person is told of an answer; nothing when all is well."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"The receiver answered {status}. Redirects are not followed: give the address that answers directly."
    if status == HTTPStatus.GONE:
        return "The receiver answered 410, so nothing more is sent to this address. Redeliver to begin again."
    excerpt = " ".join("".join(each if each.isprintable() else " " for each in body.decode(errors="replace")).split())
    said = f": “{bounded(excerpt, EXCERPT_MAX_CHARACTERS)}”" if excerpt else ""
    return f"The receiver answered {status}{said}."


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """What a `Retry-After` header asks for, in either of its forms; none when it cannot be read."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:10])
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds())


def headers(delivery_id: str, moment: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The headers of an attempt at this moment, with one signature a secret while secrets rotate."""
    timestamp = str(int(moment.timestamp()))
    signed = b".".join((delivery_id.encode(), timestamp.encode(), body))
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_signature(secret, signed) for secret in secrets),
    }


def secret_text(random: bytes) -> str:
    """A signing secret as its owner keeps it."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def masked(last4: str) -> str:
    """A signing secret as it may be shown at any time."""
    return f"{SECRET_PREFIX}…{last4}"


def bounded(text: str, limit: int = ERROR_MAX_CHARACTERS) -> str:
    """Cut text so that it can be shown in a list."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _cut(value: JsonValue, limit: int) -> JsonValue:
    match value:
        case str():
            return bounded(value, limit)
        case list():
            return [_cut(each, limit) for each in value]
        case dict():
            return {key: _cut(each, limit) for key, each in value.items()}
        case _:
            return value

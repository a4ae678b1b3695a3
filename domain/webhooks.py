"""Webhooks by Standard Webhooks 1.0.0: names, the event, its signature, and when an attempt is repeated."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from domain.secrets import SealedText

DELIVERY_WORKFLOW = "WebhookDelivery"

QUEUE = "webhooks"
QUEUES = (QUEUE,)
PURGE = "webhook_purge"
"""Deletes deliveries past their retention."""
PURGE_RECORDS = "shared_records_purge"
"""Deletes entries of the audit log and idempotency keys past theirs: records that belong to no other system."""
HOUSEKEEPING = (PURGE, PURGE_RECORDS)
SYSTEM = "webhooks"
REDELIVER = "redeliver"
"""The signal that begins the attempts of a delivery anew."""


DELIVERY_ID_PATTERN: Final = r"^msg_[0-9a-f]{32}$"
EVENT_TYPE_PATTERN: Final = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$"
BODY_MAX_BYTES: Final = 20_000
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix of every secret is public
SECRET_BYTES: Final = 36  # a multiple of three, so that base64 needs no padding
RETRY_AFTER_MAX_SECONDS: Final = 24 * 3600.0
JITTER: Final = 0.1
ERROR_MAX_CHARACTERS: Final = 500
EXCERPT_MAX_CHARACTERS: Final = 200

# 429, 502 and 504 are the standard's signs of a busy receiver; 503 is the status that RFC 9110 made the header for.
_BUSY = frozenset({429, 502, 503, 504})
# Long texts are cut first; names and numbers stay whole.
_TEXT_LIMITS = (BODY_MAX_BYTES, 2_000, 500, 100)


class DeliveryState(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISABLED = "disabled"


class WebhookEvent(BaseModel):
    """An event of a system."""

    model_config = ConfigDict(frozen=True)

    type: str = Field(pattern=EVENT_TYPE_PATTERN, max_length=100)
    timestamp: AwareDatetime
    data: dict[str, JsonValue]

    @property
    def body(self) -> bytes:
        """The event as JSON, below 20 kB: texts are cut as far as needed.

        Raises:
            ValueError: The event has too many fields to fit, even with its texts cut.
        """
        for limit in _TEXT_LIMITS:
            cut = WebhookEvent(
                type=self.type, timestamp=self.timestamp.astimezone(UTC), data=_truncate_texts(self.data, limit)
            )
            body = cut.model_dump_json().encode()
            if len(body) < BODY_MAX_BYTES:
                return body
        raise ValueError(f"The event {self.type} has too many fields for {BODY_MAX_BYTES:,} bytes. Send ids and links.")


class WebhookEventSubject(BaseModel):
    """What an event is about, such as a download; deliveries are listed by owner."""

    model_config = ConfigDict(frozen=True)

    system: str
    id: str
    """Unique within the system."""


class WebhookDeliveryInput(BaseModel):
    """The input of the workflow: one event for one receiver."""

    model_config = ConfigDict(frozen=True)

    delivery_id: str = Field(pattern=DELIVERY_ID_PATTERN)
    """Also the `webhook-id`: the same on every attempt, so that a receiver recognizes repetitions."""
    project_id: str
    owner: WebhookEventSubject
    url: SealedText
    event: WebhookEvent
    redelivery: bool = False
    """Whether a user asked for it; then it is attempted even if the receiver answered 410 before."""


class WebhookAttemptInput(BaseModel):
    """The attempt that is due."""

    delivery_id: str
    number: int = Field(ge=1)
    redelivery: bool = False
    """Whether a user asked for it; then it is made although the receiver answered 410 before."""


class DeliveryStateAfterAttempt(BaseModel):
    """The state of a delivery after an attempt."""

    state: DeliveryState = DeliveryState.PENDING
    number: int = 0
    status: int | None = None
    error: str | None = None
    pause_seconds: float | None = None
    """Until the next attempt; None after the last one."""


class ReceiverResponse(BaseModel):
    """The response of a receiver to an attempt: its status, or why there is none."""

    status: int | None = None
    error: str | None = None
    retry_after_seconds: float | None = None
    is_final: bool = False
    """Whether another attempt cannot succeed, as with a denied address."""


def build_delivery_workflow_id(project_id: str, delivery_id: str) -> str:
    """Return the id of a delivery's workflow; the project in it keeps other projects from using the same id."""
    return f"webhook:{project_id}:{delivery_id}"


def decide_state_and_pause_after_attempt(
    number: int, response: ReceiverResponse, pauses: Sequence[float], jitter: float
) -> DeliveryStateAfterAttempt:
    """Decide the state after an attempt, and the pause before the next one.

    Args:
        number: The number of the attempt, from 1.
        response: The receiver's response to it.
        pauses: Seconds between attempts, in order; an attempt beyond them is the last.
        jitter: From 0 to 1; spreads the attempts of deliveries that failed at the same time.
    """
    state, pause = DeliveryState.PENDING, None
    match response.status:
        case status if status is not None and 200 <= status < 300:
            state = DeliveryState.SUCCEEDED
        case HTTPStatus.GONE:
            state = DeliveryState.DISABLED
        case _ if response.is_final or number > len(pauses):
            state = DeliveryState.FAILED
        case status:
            pause = pauses[number - 1] * (1 + JITTER * jitter)
            if status in _BUSY:
                pause = max(pause, min(response.retry_after_seconds or 0.0, RETRY_AFTER_MAX_SECONDS))
    return DeliveryStateAfterAttempt(
        state=state, number=number, status=response.status, error=response.error, pause_seconds=pause
    )


def describe_error_response(status: int, body: bytes) -> str | None:
    """Describe a response that is no success, with an excerpt of its body; return None for a success."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"The receiver answered {status}. Redirects are not followed: give the address that answers directly."
    if status == HTTPStatus.GONE:
        return "The receiver answered 410, so nothing more is sent to this address. Redeliver to begin again."
    excerpt = " ".join("".join(each if each.isprintable() else " " for each in body.decode(errors="replace")).split())
    said = f": “{truncate_text(excerpt, EXCERPT_MAX_CHARACTERS)}”" if excerpt else ""
    return f"The receiver answered {status}{said}."


def build_signed_headers(delivery_id: str, now: datetime, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """Return the headers of an attempt, with one signature for each secret."""
    timestamp = str(int(now.timestamp()))
    signed = b".".join((delivery_id.encode(), timestamp.encode(), body))
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(_build_signature(secret, signed) for secret in secrets),
    }


def format_secret(random: bytes) -> str:
    """Return a signing secret in the form of Standard Webhooks."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def mask_secret(last4: str) -> str:
    """Return a signing secret in a form that may be shown."""
    return f"{SECRET_PREFIX}…{last4}"


def truncate_text(text: str, limit: int = ERROR_MAX_CHARACTERS) -> str:
    """Cut a text at a limit, with an ellipsis at its end."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _build_signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def _truncate_texts(value: JsonValue, limit: int) -> JsonValue:
    match value:
        case str():
            return truncate_text(value, limit)
        case list():
            return [_truncate_texts(each, limit) for each in value]
        case dict():
            return {key: _truncate_texts(each, limit) for key, each in value.items()}
        case _:
            return value

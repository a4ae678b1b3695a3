"""A client of the few calls of Google Pub/Sub's REST interface that Haulage needs, and its credentials."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import jwt
import msgspec

from clients.http import (
    BUSY_STATUSES,
    CallConcurrencyAndRateLimiter,
    CircuitBreaker,
    HttpResponse,
    HttpTransport,
    RetryingServiceCaller,
    RetryPolicy,
    ServiceFailure,
    SharedRenewingToken,
    TokenAndLifeSeconds,
    TransportError,
    TransportFailureKind,
    parse_retry_after,
)
from domain.addresses.messages import PublishedMessage
from infra import log
from infra.address_settings import METADATA, PubSubSettings

ACKS_MAX: Final = 1_000
"""Ids in one call: a request may have 512 KiB, and an id has some hundred bytes."""
PUBLISH_MAX: Final = 1_000
"""Messages that Pub/Sub takes in one call."""
PUBLISH_MAX_BYTES: Final = 7_000_000
"""Data of one call: Pub/Sub takes requests of 10 MB, and base64 makes the data a third longer."""
CONNECT_TIMEOUT_SECONDS: Final = 10.0
CALL_TIMEOUT_SECONDS: Final = 30.0
ANSWER_MAX_BYTES: Final = 64 * 1024 * 1024
"""Several messages of the largest size fit, in base64; of large ones, fewer are pulled at a time."""
EXCERPT_CHARACTERS: Final = 500
RETRY: Final = RetryPolicy((0.2, 1.0), patience_seconds=10.0)
BREAKER_FAILURES: Final = 20
BREAKER_SECONDS: Final = 5.0
CONCURRENCY: Final = 64


class PubSubFailure(ServiceFailure, ConnectionError):
    """Pub/Sub did not do what was asked. The call may be repeated: Pub/Sub delivers again what was not acknowledged."""

    status: int | None = None
    """The status of the answer; None if there was none."""
    is_too_large = False
    """Whether the answer was larger than what is read: fewer messages at a time may fit."""


class _PullResponse(msgspec.Struct, rename="camel"):
    received_messages: list[msgspec.Raw] = []


class _PublishResponse(msgspec.Struct, rename="camel"):
    message_ids: list[str]


_PULL_RESPONSE: Final = msgspec.json.Decoder(_PullResponse)
_PUBLISH_RESPONSE: Final = msgspec.json.Decoder(_PublishResponse)
_NO_MESSAGE: Final = "haulage-doctor"
_log = log.get(__name__)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A pulled message; unless it is acknowledged in time, it is delivered again."""

    ack_id: str
    message: PublishedMessage
    refusal: str = ""
    """Why its envelope cannot be read; the data of the message is then the envelope as it came."""


class PubSubClient:
    """A client of the subscriptions of one project."""

    def __init__(self, settings: PubSubSettings) -> None:
        self._settings = settings
        self._transport = HttpTransport(connect_timeout_seconds=CONNECT_TIMEOUT_SECONDS)
        self._credentials = PubSubCredentials(self._transport, settings.key_file)
        self._caller = RetryingServiceCaller(
            "pubsub",
            retry=RETRY,
            limiter=CallConcurrencyAndRateLimiter(CONCURRENCY),
            breaker=CircuitBreaker(BREAKER_FAILURES, BREAKER_SECONDS),
            build_open_failure=self._build_open_failure,
        )

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._transport.__aexit__(kind, error, traceback)

    async def pull(self, subscription: str, max_messages: int | None = None) -> list[ReceivedMessage]:
        """Wait for messages and return them; return none if there are none within the timeout.

        A message whose envelope cannot be read says why, and is acknowledged like any other once it is stored. One
        without an id to acknowledge it by is logged and left to its deadline.

        Args:
            max_messages: The most messages; by default as many as the settings allow.

        Raises:
            PubSubFailure: There was no response, or not a valid one. Pulls are not repeated here.
        """
        wanted = {"maxMessages": max_messages or self._settings.pull_max}
        body = await self._call_with_retries(subscription, "pull", wanted, self._settings.timeout_seconds)
        try:
            return _parse_messages_unless_all_unreadable(subscription, _PULL_RESPONSE.decode(body).received_messages)
        except (ValueError, RecursionError) as error:
            raise PubSubFailure(f"Pub/Sub's answer to a pull of {subscription} cannot be read: {error}.") from error

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Acknowledge messages; Pub/Sub may deliver them again all the same."""
        for first in range(0, len(ack_ids), ACKS_MAX):
            ids = ack_ids[first : first + ACKS_MAX]
            await self._call_with_retries(subscription, "acknowledge", {"ackIds": ids}, CALL_TIMEOUT_SECONDS)

    async def make_available_for_next_pull(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Return messages for the next pull at once, instead of when their deadline ends."""
        for first in range(0, len(ack_ids), ACKS_MAX):
            ids = ack_ids[first : first + ACKS_MAX]
            body = {"ackIds": ids, "ackDeadlineSeconds": 0}
            await self._call_with_retries(subscription, "modifyAckDeadline", body, CALL_TIMEOUT_SECONDS)

    async def require_pullable_subscription(self, subscription: str) -> None:
        """Check that a subscription is there and may be pulled, by a call about a message that there is not.

        Raises:
            PubSubFailure: It is not there, access is denied, or there was no answer.
        """
        try:
            await self.make_available_for_next_pull(subscription, [_NO_MESSAGE])
        except PubSubFailure as failure:
            if failure.status != HTTPStatus.BAD_REQUEST:
                raise

    async def publish(self, topic: str, payloads: Sequence[bytes]) -> list[str]:
        """Publish messages, and return the ids that Pub/Sub gave them. A call is not repeated: it would publish twice.

        Raises:
            PubSubFailure: A call failed. Messages of the calls before it are published.
        """
        ids: list[str] = []
        for payloads_of_call in _split_by_count_and_size(payloads):
            batch = [{"data": b64encode(each).decode()} for each in payloads_of_call]
            body = await self._call_with_retries(topic, "publish", {"messages": batch}, CALL_TIMEOUT_SECONDS)
            try:
                ids += _PUBLISH_RESPONSE.decode(body).message_ids
            except ValueError as error:
                raise PubSubFailure(f"Pub/Sub's answer to a publish to {topic} cannot be read: {error}.") from error
        return ids

    async def _call_with_retries(self, resource: str, verb: str, body: object, timeout_seconds: float) -> bytes:
        content = msgspec.json.encode(body)
        return await self._caller.call_with_retries(
            verb,
            lambda: self._post_with_renewed_token(resource, verb, content, timeout_seconds),
            # While a call waits for a token nothing is sent: if it is cancelled, it was no trial of the breaker.
            before_sending=self._credentials.fetch_token_if_due,
            repeats=verb not in ("pull", "publish"),
        )

    async def _post_with_renewed_token(self, resource: str, verb: str, content: bytes, timeout_seconds: float) -> bytes:
        token = await self._credentials.get_token()
        try:
            response = await self._post(resource, verb, content, token, timeout_seconds)
            if response.status == 401 and token is not None:
                # The key may have been replaced since the token was signed.
                renewed = await self._credentials.get_token(refused=token)
                response = await self._post(resource, verb, content, renewed, timeout_seconds)
        except TransportError as error:
            if verb == "pull" and error.fault is TransportFailureKind.TIMEOUT:
                # There were no messages to wait for.
                return b"{}"
            failure = PubSubFailure(
                f"Pub/Sub at {self._settings.base_url} gave no answer to {verb} of {resource} ({error}). "
                "Check the network, and HAULAGE_ADDRESSES__PUBSUB__BASE_URL.",
                is_transient=error.fault is not TransportFailureKind.TOO_LARGE,
            )
            failure.is_too_large = error.fault is TransportFailureKind.TOO_LARGE
            raise failure from error
        if response.status == 200:
            return response.body
        excerpt = response.body.decode(errors="replace")[:EXCERPT_CHARACTERS]
        failure = PubSubFailure(
            f"Pub/Sub answered {response.status} to {verb} of {resource} in {self._settings.project!r}: {excerpt} "
            "Check HAULAGE_ADDRESSES__PUBSUB__… and that the service account may do this.",
            is_transient=response.status in BUSY_STATUSES,
            is_answered=True,
            retry_after_seconds=parse_retry_after(response.headers),
        )
        failure.status = response.status
        raise failure

    async def _post(
        self, resource: str, verb: str, content: bytes, token: str | None, timeout_seconds: float
    ) -> HttpResponse:
        settings, headers = self._settings, {"Content-Type": "application/json"}
        kind = "topics" if verb == "publish" else "subscriptions"
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return await self._transport.request(
            "POST",
            f"{settings.base_url}/v1/projects/{settings.project}/{kind}/{resource}:{verb}",
            headers=headers,
            body=content,
            max_bytes=ANSWER_MAX_BYTES,
            timeout_seconds=timeout_seconds,
        )

    def _build_open_failure(self, breaker: CircuitBreaker) -> PubSubFailure:
        return PubSubFailure(
            f"Pub/Sub at {self._settings.base_url} {breaker.describe_open_state()} "
            "Check the network, and HAULAGE_ADDRESSES__PUBSUB__BASE_URL."
        )


def _split_by_count_and_size(payloads: Sequence[bytes]) -> list[list[bytes]]:
    """Split messages into calls that Pub/Sub takes; one message alone may be larger, which it then refuses."""
    calls: list[list[bytes]] = []
    size = 0
    for each in payloads:
        if not calls or len(calls[-1]) == PUBLISH_MAX or size + len(each) > PUBLISH_MAX_BYTES:
            calls.append([])
            size = 0
        calls[-1].append(each)
        size += len(each)
    return calls


def _parse_messages_unless_all_unreadable(subscription: str, pulled: Sequence[msgspec.Raw]) -> list[ReceivedMessage]:
    """Return the messages that can be acknowledged.

    Raises:
        ValueError: There are messages, and none can be: that is another interface rather than a malformed message.
    """
    received: list[ReceivedMessage] = []
    for raw in pulled:
        try:
            received.append(_parse_envelope(raw))
        except ValueError as error:
            if not received and raw is pulled[-1]:
                raise
            excerpt = bytes(raw)[:EXCERPT_CHARACTERS].decode(errors="replace")
            _log.warning("pubsub_message_unreadable", subscription=subscription, error=str(error), excerpt=excerpt)
    return received


_DELIVERY_FIELDS: Final = ("ackId", "deliveryAttempt")
"""Fields that differ between deliveries of a message."""


class _PulledMessageEnvelope(msgspec.Struct, frozen=True, rename="camel"):
    ack_id: str
    message: PublishedMessage


_ENVELOPE_DECODER: Final = msgspec.json.Decoder(_PulledMessageEnvelope)
_FIELDS_DECODER: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _parse_envelope(raw: bytes) -> ReceivedMessage:
    """Read a pulled message; one that cannot be read keeps its text, with the reason.

    Raises:
        ValueError: It has no id by which it could be acknowledged.
    """
    try:
        envelope = _ENVELOPE_DECODER.decode(raw)
    except ValueError as error:
        return _build_unreadable_message(raw, error)
    return ReceivedMessage(envelope.ack_id, envelope.message)


def _build_unreadable_message(raw: bytes, error: ValueError) -> ReceivedMessage:
    fields = _FIELDS_DECODER.decode(raw)
    ack_id = msgspec.json.decode(fields.get("ackId", msgspec.Raw(b"null")), type=str)
    rest = {name: value for name, value in fields.items() if name not in _DELIVERY_FIELDS}
    text = bytes(rest["message"]) if "message" in rest else msgspec.json.encode(rest)
    named = {name: value for name, value in _decode_object_or_empty(text).items() if isinstance(value, str)}
    message = PublishedMessage(named.get("messageId", ""), text, named.get("publishTime", ""))
    refusal = (
        f"The envelope of the message cannot be read: {error}. Pub/Sub sends a messageId as text and data in base64; "
        "To mend it, enter the message without its envelope."
    )
    return ReceivedMessage(ack_id, message, refusal)


def _decode_object_or_empty(text: bytes) -> dict[str, Any]:
    """Decode a text, or return {} if it is not a readable object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except ValueError:
        return {}


AUDIENCE: Final = "https://pubsub.googleapis.com/"
METADATA_URL: Final = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
METADATA_TIMEOUT_SECONDS: Final = 10.0
TOKEN_MAX_BYTES: Final = 64 * 1024
LIFETIME_SECONDS: Final = 3_600
"""The longest life that Google accepts of a token that its owner signed."""
RENEWAL_SECONDS: Final = 300.0
"""How long before it expires a token is replaced."""


class PubSubCredentials:
    """The authorization of requests to Pub/Sub.

    Args:
        transport: Reaches the metadata server.
        source: The path of a service account's key, `metadata`, or nothing for an emulator.
    """

    def __init__(self, transport: HttpTransport, source: str) -> None:
        self._transport = transport
        self._source = source
        self._token = SharedRenewingToken(early_seconds=RENEWAL_SECONDS, early_share=1.0)

    async def get_token(self, refused: str | None = None) -> str | None:
        """Return the token of a request; None if requests have none.

        Args:
            refused: A token that Pub/Sub has refused.

        Raises:
            PubSubFailure: There is no token.
        """
        return await self._token.get_or_fetch(refused, self._fetch_token) if self._source else None

    async def fetch_token_if_due(self) -> None:
        """Fetch a token if the one at hand is not valid; raises PubSubFailure."""
        await self.get_token()

    async def _fetch_token(self) -> TokenAndLifeSeconds:
        if self._source == METADATA:
            return await self._fetch_token_from_metadata_server()
        return await asyncio.to_thread(_sign_service_account_token, Path(self._source))

    async def _fetch_token_from_metadata_server(self) -> TokenAndLifeSeconds:
        try:
            response = await self._transport.request(
                "GET",
                METADATA_URL,
                headers={"Metadata-Flavor": "Google"},
                max_bytes=TOKEN_MAX_BYTES,
                timeout_seconds=METADATA_TIMEOUT_SECONDS,
            )
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            values = msgspec.json.decode(response.body, type=dict[str, Any])
            return str(values["access_token"]), float(values["expires_in"])
        except (TransportError, KeyError, ValueError) as error:
            raise PubSubFailure(
                f"Google's metadata server gave no token ({type(error).__name__}). "
                "Outside Google Cloud, name a key file in HAULAGE_ADDRESSES__PUBSUB__KEY_FILE.",
                is_transient=isinstance(error, TransportError),
            ) from error


def _sign_service_account_token(path: Path) -> TokenAndLifeSeconds:
    """Return a token that the service account signs itself: Google accepts it for one service without an exchange."""
    now = int(time.time())
    try:
        key = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        owner = key["client_email"]
        claims = {"iss": owner, "sub": owner, "aud": AUDIENCE, "iat": now, "exp": now + LIFETIME_SECONDS}
        text = jwt.encode(claims, key["private_key"], algorithm="RS256", headers={"kid": key["private_key_id"]})
    except (OSError, KeyError, ValueError, TypeError, jwt.PyJWTError) as error:
        raise PubSubFailure(
            f"The key of the service account cannot be used ({type(error).__name__}). HAULAGE_ADDRESSES__PUBSUB__"
            "KEY_FILE must name the JSON file that Google made, with client_email, private_key and private_key_id."
        ) from error
    return text, LIFETIME_SECONDS

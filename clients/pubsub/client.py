"""The client: the few calls of Pub/Sub's REST interface that a subscriber needs."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec

from clients.pubsub.envelopes import Received, read_envelope
from clients.pubsub.tokens import Tokens
from infra import log
from infra.pubsub_settings import PubSubSettings

ACKS_MAX: Final = 1_000
"""Ids of one call: a request may have 512 KiB, and an id some hundred bytes."""
CONNECT_TIMEOUT_SECONDS: Final = 10.0
CALL_TIMEOUT_SECONDS: Final = 30.0
EXCERPT_CHARACTERS: Final = 500


class PubSubFailure(ConnectionError):
    """Pub/Sub did not do what was asked; the same may be asked again, and what it delivered comes again."""


class _Pulled(msgspec.Struct, rename="camel"):
    received_messages: list[msgspec.Raw] = []


_PULLED: Final = msgspec.json.Decoder(_Pulled)
_log = log.get(__name__)


class PubSub:
    """Subscriptions of one project."""

    _session: aiohttp.ClientSession

    def __init__(self, settings: PubSubSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> Self:
        # Two pulls of each topic wait most of the time, and must not keep acknowledgements from going out.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"User-Agent": "Haulage"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        self._tokens = Tokens(self._session, self._settings.key_file)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    async def pull(self, subscription: str) -> list[Received]:
        """Messages as soon as there are some; none after a while without.

        One whose envelope cannot be read says why, and is acknowledged as any other once it is kept. One that names
        nothing to acknowledge it by is logged and left to its deadline.

        Raises:
            PubSubFailure: There was no answer, or not the right one.
        """
        body = await self._call(
            subscription, "pull", {"maxMessages": self._settings.pull_max}, self._settings.timeout_seconds
        )
        try:
            return _read_all(subscription, _PULLED.decode(body).received_messages)
        except (ValueError, RecursionError) as error:
            raise PubSubFailure(f"Pub/Sub's answer to a pull of {subscription} cannot be read: {error}.") from error

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Say that messages need not come again; that they still may is in the nature of Pub/Sub."""
        for first in range(0, len(ack_ids), ACKS_MAX):
            ids = ack_ids[first : first + ACKS_MAX]
            await self._call(subscription, "acknowledge", {"ackIds": ids}, CALL_TIMEOUT_SECONDS)

    async def release(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """Give messages back, for whoever pulls next, at once and not when their deadline ends."""
        for first in range(0, len(ack_ids), ACKS_MAX):
            ids = ack_ids[first : first + ACKS_MAX]
            given = {"ackIds": ids, "ackDeadlineSeconds": 0}
            await self._call(subscription, "modifyAckDeadline", given, CALL_TIMEOUT_SECONDS)

    async def _call(self, subscription: str, verb: str, body: object, timeout_seconds: float) -> bytes:
        settings = self._settings
        url = f"{settings.base_url}/v1/projects/{settings.project}/subscriptions/{subscription}:{verb}"
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=CONNECT_TIMEOUT_SECONDS)
        try:
            headers = {"Content-Type": "application/json", **await self._tokens.headers()}
            async with self._session.post(
                url, data=msgspec.json.encode(body), headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                text = await answer.read()
                if answer.status == 200:
                    return text
        except aiohttp.ConnectionTimeoutError as error:
            raise _unreachable(verb, subscription, settings.base_url, error) from error
        except TimeoutError as error:
            if verb == "pull":
                # It waited for messages, and there were none.
                return b"{}"
            raise _unreachable(verb, subscription, settings.base_url, error) from error
        except aiohttp.ClientError as error:
            raise _unreachable(verb, subscription, settings.base_url, error) from error
        said = text.decode(errors="replace")[:EXCERPT_CHARACTERS]
        raise PubSubFailure(
            f"Pub/Sub answered {answer.status} to {verb} of {subscription} in {settings.project!r}: {said} "
            "Check HAULAGE_ADDRESSES__PUBSUB__… and that the service account may subscribe."
        )


def _read_all(subscription: str, pulled: Sequence[msgspec.Raw]) -> list[Received]:
    """Return the messages that can be acknowledged.

    Raises:
        ValueError: There are messages, and none can be: that is another interface rather than a strange message.
    """
    received: list[Received] = []
    for raw in pulled:
        try:
            received.append(read_envelope(raw))
        except ValueError as error:
            if not received and raw is pulled[-1]:
                raise
            excerpt = bytes(raw)[:EXCERPT_CHARACTERS].decode(errors="replace")
            _log.warning("pubsub_message_unreadable", subscription=subscription, error=str(error), excerpt=excerpt)
    return received


def _unreachable(verb: str, subscription: str, base_url: str, error: Exception) -> PubSubFailure:
    return PubSubFailure(
        f"Pub/Sub at {base_url} gave no answer to {verb} of {subscription} ({type(error).__name__}). "
        "Check the network, and HAULAGE_ADDRESSES__PUBSUB__BASE_URL."
    )

"""Delivery: the messages of a world are pushed to the API, with all that publishers and Pub/Sub do wrong."""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from yarl import URL

from tests.support.addresses import Addresses
from tests.support.waiting import eventually
from tests.worlds.addresses.publications import REFUSED, Names, Publication

SECRET = "a-secret-of-worlds"
FOREIGN = "Basic cHJveHk6c2VjcmV0"
"""What a proxy shows in `Authorization`."""
TAKEN = 204


@dataclass
class Delivery:
    """How a world's messages get to the API."""

    names: Names
    addresses: Addresses
    taken: Counter[str] = field(default_factory=Counter)
    """By their numbers: how often each message was pushed and acknowledged."""
    refused: dict[str, int] = field(default_factory=dict)
    """Poisons that the API did not take in, and its answers."""
    unread: set[str] = field(default_factory=set)
    """Messages whose first connection ended before the answer."""
    foreign: int = 0
    """Pushes that were acknowledged though they showed a proxy's `Authorization`."""

    async def deliver(self, each: Publication) -> None:
        """Deliver a message as often as its world says, until each time is acknowledged."""
        if each.is_unread:
            await self._break_off(each)
        for _ in range(each.times):
            await self.push(each)

    async def deliver_at_once(self, messages: Iterable[Publication]) -> None:
        """Deliver messages again, all at the same time, as when a stream of Pub/Sub closes."""
        await asyncio.gather(*(self.push(each) for each in messages if each.poison not in REFUSED))

    async def push(self, each: Publication) -> None:
        """Push a message until it is acknowledged, or refused as one that must be."""
        wanted = REFUSED.get(each.poison, TAKEN)
        is_foreign = self.names.world.has("foreign_authorization")
        headers = {"Content-Type": "application/json", **({"Authorization": FOREIGN} if is_foreign else {})}

        async def is_answered() -> bool:
            reply = await self.addresses.api_client.ask(
                "POST", _path(each), data=io.BytesIO(_envelope(each)), headers=headers, params={"token": SECRET}
            )
            return reply.status == wanted

        await eventually(is_answered)
        if wanted == TAKEN:
            self.taken[each.number] += 1
            self.foreign += is_foreign
        else:
            self.refused[each.number] = wanted

    async def _break_off(self, each: Publication) -> None:
        """Push a message and close the connection before the answer: whether it was accepted is unknown."""
        url, body = URL(self.addresses.api_client.address), _envelope(each)
        head = f"POST {_path(each)}?token={SECRET} HTTP/1.1\r\nHost: {url.authority}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(head.encode() + body)
        with suppress(ConnectionError):
            await writer.drain()
            self.unread.add(each.number)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _path(each: Publication) -> str:
    return f"/v1/addresses/events/{each.topic}"


def _envelope(each: Publication) -> bytes:
    data = "not base64!" if each.poison == "wrong_base64" else b64encode(each.payload).decode()
    message: Mapping[str, str] = {"messageId": each.number, "data": data}
    return json.dumps({"message": message, "subscription": "projects/p/subscriptions/s"}).encode()

"""Helpers for tests that watch downloads: by WebSocket and by server-sent events, as programs and browsers do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.support.api import ApiClient

Answer = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    identity: str
    data: Answer


@asynccontextmanager
async def socket(api_client: ApiClient, key: str, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    """A WebSocket to a path."""
    headers = {"Authorization": f"Bearer {key}"}
    async with api_client.session.ws_connect(f"{api_client.address}{path}", headers=headers) as opened:
        yield opened


async def read_messages(opened: aiohttp.ClientWebSocketResponse) -> list[Answer]:
    """All that a WebSocket sends until it is closed."""
    return [json.loads(message.data) async for message in opened]


@asynccontextmanager
async def events(
    api_client: ApiClient, key: str, task_id: str, last_event_id: str | None = None
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of events of a download."""
    headers = {"Authorization": f"Bearer {key}"} | ({"Last-Event-ID": last_event_id} if last_event_id else {})
    async with api_client.session.get(f"{api_client.address}/v1/downloads/{task_id}/events", headers=headers) as answer:
        yield answer


async def read_events(answer: aiohttp.ClientResponse) -> list[Event]:
    """All events until the stream ends, read as the standard says."""
    told = []
    for block in (await answer.text()).split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            told.append(Event(fields["id"], json.loads(fields["data"])))
    return told

"""The log of messages as it is now, read once for all worlds that want to know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.addresses import Addresses
from tests.worlds.addresses.seen import Told

LOOK_SECONDS = 0.15
PAGE = 200
EARLIER = timedelta(seconds=5)
"""Clocks of the database and of this process may differ by less."""


@dataclass
class Log:
    """Reads the log again and again while worlds are played."""

    addresses: Addresses
    begun: list[datetime] = field(default_factory=list)
    """When the worlds began that are being played."""
    told: Mapping[str, Told] = field(default_factory=dict)
    """By their numbers: messages of those worlds that are not in the history."""
    kinds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By their numbers: why messages were not done at some time."""
    _read: asyncio.Event = field(default_factory=asyncio.Event)

    async def look(self) -> Mapping[str, Told]:
        """Return what a walk found that began after this moment."""
        await self._read.wait()
        await self._read.wait()
        return self.told

    async def watch(self) -> None:
        """Read it again and again."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.begun:
                told = await self._walk(min(self.begun) - EARLIER)
                self.told = {each.number: each for each in told}
                for each in told:
                    if each.kind is not None:
                        self.kinds[each.number].add(each.kind)
            self._read.set()
            self._read = asyncio.Event()

    async def _walk(self, since: datetime) -> list[Told]:
        return await list_messages(self.addresses, created_after=since.isoformat().replace("+00:00", "Z"))


async def list_messages(addresses: Addresses, **wanted: str) -> list[Told]:
    """List messages over all pages."""
    found, cursor = [], None
    while True:
        params = {"limit": str(PAGE), **wanted, **({"cursor": cursor} if cursor else {})}
        reply = await addresses.ask("GET", "messages", params=params)
        assert reply.status == 200, reply.body
        found += [Told.read(each) for each in reply.body["items"]]
        cursor = reply.body["next_cursor"]
        if not cursor:
            return found

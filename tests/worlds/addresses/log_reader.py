"""The log of messages as it is now, read once for all worlds that want to know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.support.addresses import Addresses
from tests.worlds.addresses.observation import MessageReport

READ_INTERVAL_SECONDS = 0.15
PAGE = 200
EARLIER = timedelta(seconds=5)
"""Clocks of the database and of this process may differ by less."""


@dataclass
class LogReader:
    """Reads the log again and again while worlds are played."""

    addresses: Addresses
    start_times: list[datetime] = field(default_factory=list)
    """When the worlds began that are being played."""
    reports: Mapping[str, MessageReport] = field(default_factory=dict)
    """By their numbers: messages of those worlds that are not in the history."""
    kinds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By their numbers: why messages were not done at some time."""
    _read: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_next(self) -> Mapping[str, MessageReport]:
        """Return what a walk found that began after this moment."""
        await self._read.wait()
        await self._read.wait()
        return self.reports

    async def read_repeatedly(self) -> None:
        """Read it again and again."""
        while True:
            await asyncio.sleep(READ_INTERVAL_SECONDS)
            if self.start_times:
                reports = await self._read_log(min(self.start_times) - EARLIER)
                self.reports = {each.number: each for each in reports}
                for each in reports:
                    if each.kind is not None:
                        self.kinds[each.number].add(each.kind)
            self._read.set()
            self._read = asyncio.Event()

    async def _read_log(self, since: datetime) -> list[MessageReport]:
        return await list_messages(self.addresses, created_after=since.isoformat().replace("+00:00", "Z"))


async def list_messages(addresses: Addresses, **wanted: str) -> list[MessageReport]:
    """List messages over all pages."""
    found, cursor = [], None
    while True:
        params = {"limit": str(PAGE), **wanted, **({"cursor": cursor} if cursor else {})}
        reply = await addresses.ask("GET", "messages", params=params)
        assert reply.status == 200, reply.body
        found += [MessageReport.read(each) for each in reply.body["items"]]
        cursor = reply.body["next_cursor"]
        if not cursor:
            return found
